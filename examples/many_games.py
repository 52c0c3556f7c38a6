"""Simulate many games at once with ``vmap``, and compare them with a sweep, which makes the same decisions."""

import jax
import numpy as np

from examples.one_game import ALPHA, ARMS, HORIZON, make_records, simulate_game
from exaul import Sweep, run
from exaul.engine.logs.log import Records
from exaul.kernels import uniforms
from exaul.kernels.game import ROUNDS

TRIALS = 20


def draw_uniforms(seed: int) -> np.ndarray:
    """Return the uniforms [T, trials] that a sweep draws for its learners."""
    keys = uniforms.draw_keys(seed, np.arange(TRIALS), imperfect=False)
    t = np.arange(HORIZON, dtype=np.uint32)[:, None]
    return uniforms.draws(keys, t // ROUNDS, t % ROUNDS).decision


def main() -> None:
    """Simulate the same games twice, and print the results."""
    scores, errors = make_records(np.random.default_rng(0))
    with jax.enable_x64(True):
        games = jax.vmap(simulate_game, in_axes=(None, None, 1))  # all trials have the same records
        answered = np.asarray(games(scores, errors, draw_uniforms(seed=0))).sum(axis=1)
    sweep = Sweep(environment="replay", learners=("exaul",), alphas=(ALPHA,), arms=ARMS, trials=TRIALS, seed=0)
    result = run(sweep, [Records("example", scores, errors, 0, None)])
    print(f"answered on average {answered.mean():.1f} of {HORIZON} questions")
    print(f"as in the sweep: {np.array_equal(answered, result.trials['answered'])}")


if __name__ == "__main__":
    main()
