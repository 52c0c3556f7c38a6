"""``refit``: a threshold that is refitted to a moving window, a widely used baseline.

The learner answers everything in the first 256 rounds. Then, before every block of 256 rounds, it takes the lowest
threshold at which a share of at most alpha of its last 2,000 labels was wrong, without a margin (selection by the
empirical risk, as in Geifman and El-Yaniv, "Selective classification for deep neural networks", 2017, without their
confidence bound). Only answers give labels, so labels of scores below the threshold are old or missing; nothing is
proved. If no threshold qualifies, it uses the last arm, which answers nothing: it then gets no labels and never
answers again.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from exaul.kernels.backends.backend import Backend, Decision, Halves, backend_of_halves, decide_by_arm, mass_of_arm
from exaul.kernels.game import Block, Parameters
from exaul.kernels.learners.learner import Learner, Own

LABELS = 2000  # size of the window
ROUNDING = 1e-9  # in wrong answers: a sum of errors this little above alpha n counts as equal to it


def lowest(cuts: Any, errors: Any, alpha: Any, arms: int) -> Any:
    """Return the lowest threshold whose error rate on some labels is at most alpha.

    ``min {k : 0 < n_k, W_k <= alpha n_k}``, where n_k is the number of labels that threshold k would have answered,
    and W_k the sum of their errors (the empirical selective risk of Geifman and El-Yaniv 2017).

    Args:
        cuts: [N] int32 in 0..H-1; 0 in an empty place.
        errors: [N] in [0, 1].
        alpha: [] in (0, 1).
        arms: H.

    Returns:
        [] int32 in 0..H-1; H - 1, which never answers, if there is none.
    """
    none = jnp.zeros(arms, jnp.float64)
    # Threshold k answers the labels with cut > k: total minus cumulative sum. Empty places have cut 0, below all k.
    count, wrong = none.at[cuts].add(1.0), none.at[cuts].add(errors)
    above, wrong_above = (jnp.sum(x) - jnp.cumsum(x) for x in (count, wrong))
    good = (above > 0) & (wrong_above <= alpha * above + ROUNDING)
    return jnp.where(jnp.any(good), jnp.argmax(good), arms - 1).astype(jnp.int32)


class RefitState(NamedTuple):
    """The last 2,000 labels of a copy, in a ring buffer."""

    cuts: Any  # [2000] int32, 0 if empty
    errors: Any  # [2000] float64
    number: Any  # [] int64, number of labels so far
    arms: Any  # [H] bool, unused values: its static shape carries H into the trace


def backend(precision: str) -> Backend:
    """Make the only backend of this learner, whatever the precision. The carry within a block is the arm."""

    def init(arms: int, best: Any) -> RefitState:
        nothing = jnp.zeros(LABELS)
        return RefitState(nothing.astype(jnp.int32), nothing, jnp.zeros((), jnp.int64), jnp.zeros(arms, bool))

    def begin(state: RefitState, parameters: Parameters) -> Any:
        fitted = lowest(state.cuts, state.errors, parameters.alpha, state.arms.size)
        return jnp.where(state.number == 0, 0, fitted)

    def decide(arm: Any, x: Block, parameters: Parameters, waiting: Any) -> tuple[Any, Decision]:
        return arm, decide_by_arm(arm, x)

    def learn(arm: Any, x: Block, decision: Decision, parameters: Parameters) -> tuple[Any, Any]:
        return arm, (x.cuts, x.errors, decision.answered)

    def end(state: RefitState, arm: Any, changes: tuple[Any, ...]) -> RefitState:
        cuts, errors, answered = changes
        number = state.number + jnp.cumsum(answered)
        place = jnp.where(answered, (number - 1) % LABELS, LABELS)  # index LABELS is out of range: dropped
        return RefitState(
            state.cuts.at[place].set(cuts, mode="drop"),
            state.errors.at[place].set(errors, mode="drop"),
            number[-1],
            state.arms,
        )

    def masses(arm: Any, parameters: Parameters, arms: int) -> jax.Array:
        return mass_of_arm(arm, arms)

    return backend_of_halves(init, Halves(begin, decide, learn, end, masses))


refit = Learner(feedback="bandit", rule=Own(backend))
