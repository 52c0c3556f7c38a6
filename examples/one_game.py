"""Simulate one game: one copy of the learner ``exaul``, on the readable backend ``dense``, round after round."""

import jax
import numpy as np

from exaul.kernels import metrics
from exaul.kernels.backends import dense
from exaul.kernels.game import Block, Parameters, compute_costs, compute_cuts, uniform_grid
from exaul.kernels.learners.exaul import exaul
from exaul.kernels.rates import block_rates
from exaul.kernels.uniforms import Draws

HORIZON, ARMS, ALPHA = 3000, 100, 0.1
BACKEND = dense.sided(exaul, "float64")
RATES = block_rates(exaul, HORIZON, ARMS, anytime=False, eta=None, gamma=None)  # per block; here all are equal
PARAMETERS = Parameters(RATES.eta[0], RATES.gamma[0], np.float64(ALPHA), *compute_costs(ALPHA, np.sqrt(HORIZON)))


def make_records(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw the scores [T] of some answers, and their errors [T]: the higher the score, the fewer are wrong."""
    scores = rng.beta(4, 1, HORIZON)
    return scores, (rng.random(HORIZON) > scores).astype(np.float64)


def simulate_game(scores: np.ndarray, errors: np.ndarray, uniforms: np.ndarray) -> jax.Array:
    """Return in which rounds [T] the learner answers."""
    cuts = compute_cuts(uniform_grid(ARMS, scores), scores)  # how many thresholds each score reaches

    halves = BACKEND.halves
    assert halves is not None  # it is for backends that simulate only whole blocks

    def step(losses: jax.Array, x: Block) -> tuple[jax.Array, jax.Array]:
        losses, decision = halves.decide(losses, x, PARAMETERS, None)  # does not read the error
        losses, _ = halves.learn(losses, x, decision, PARAMETERS)  # reads it if the learner answered
        return losses, decision.answered

    rounds = Block(cuts, errors, Draws(uniforms), np.ones(HORIZON, np.bool_))
    return jax.lax.scan(step, BACKEND.init(ARMS, 0), rounds)[1]


def main() -> None:
    """Simulate a game, and print its results."""
    rng = np.random.default_rng(0)
    scores, errors = make_records(rng)
    with jax.enable_x64(True):
        answered = np.asarray(simulate_game(scores, errors, rng.random(HORIZON)))
    fdr = metrics.fdr(answered.sum(), errors[answered].sum(), ALPHA)
    print(f"answered {answered.mean():.1%} of the questions, {fdr:.1%} of these wrongly (target {ALPHA:.0%})")


if __name__ == "__main__":
    main()
