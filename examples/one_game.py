"""Play one game of the learner ``exaul``, round after round, in JAX."""

import jax
import numpy as np

import exaul

HORIZON, ARMS, ALPHA = 10_000, 100, 0.1


def make_records(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw the scores [T] of some answers, and their errors [T]: the higher the score, the fewer are wrong."""
    scores = rng.beta(4, 1, HORIZON)
    return scores, (rng.random(HORIZON) > scores).astype(np.float64)


def main() -> None:
    """Play a game, and print its results."""
    rng = np.random.default_rng(0)
    scores, errors = make_records(rng)
    with jax.enable_x64(True):
        learner, params = exaul.make("exaul", ARMS, alpha=ALPHA, horizon=HORIZON)
        cuts = exaul.cuts(exaul.grid("uniform", ARMS), scores)  # how many thresholds each score reaches
        answers = exaul.play(learner, params, cuts, errors, rng.random(HORIZON))
        regret = exaul.regret(learner, params, cuts, errors, answers)
    answered = np.asarray(answers)
    fdr = errors[answered].mean()
    print(f"answered {answered.mean():.1%} of {HORIZON:,} questions, {fdr:.1%} of these wrongly", end="")
    print(f" (target: at most {ALPHA:.0%}), with a regret of {regret[-1]:.0f}")


if __name__ == "__main__":
    main()
