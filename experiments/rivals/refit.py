"""``refit``: a threshold that is refitted to a moving window, a widely used baseline.

The learner answers everything in the first 256 rounds. Then, before every block of 256 rounds, it takes the lowest
threshold at which a share of at most alpha of its last 2,000 labels was wrong, without a margin (selection by the
empirical risk, as in Geifman and El-Yaniv, "Selective classification for deep neural networks", 2017, without their
confidence bound). Only answers give labels, so labels of scores below the threshold are old or missing; nothing is
proved. If no threshold qualifies, it uses the last arm, which answers nothing: it then gets no labels and never
answers again.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from exaul.kernels.game import RuleParams
from exaul.kernels.learners.learner import Learner, Own
from exaul.kernels.play import Decision
from experiments.rivals import OneThreshold, no_labels

LABELS = 2000  # size of the window
ROUNDING = 1e-9  # in wrong answers: a sum of errors this little above alpha n counts as equal to it


def lowest(cuts: Any, errors: Any, alpha: Any, arms: int) -> Any:
    """Return the lowest threshold whose error rate on some labels is at most alpha.

    ``min {k : 0 < n_k, W_k <= alpha n_k}``, where n_k is the number of labels that threshold k would have answered,
    and W_k the sum of their errors (the empirical selective risk of Geifman and El-Yaniv 2017).

    Args:
        cuts: [N] int32 in 0..H-1; 0 in an empty entry.
        errors: [N] in [0, 1].
        alpha: [] in (0, 1).
        arms: H.

    Returns:
        [] int32 in 0..H-1; H - 1, which never answers, if there is none.
    """
    labels = no_labels(0, arms)  # no threshold answers a cut of 0, which empty entries have
    labels = labels._replace(count=labels.count.at[cuts].add(1.0), wrong=labels.wrong.at[cuts].add(errors))
    above, wrong_above = labels.answered()
    return labels.lowest((above > 0) & (wrong_above <= alpha * above + ROUNDING))


class RefitState(NamedTuple):
    """The arm of a block, and the last 2,000 labels of a copy in a ring buffer."""

    arm: Any  # [] int32
    cuts: Any  # [2000] int32, 0 if empty
    errors: Any  # [2000] float64
    total: Any  # [] int64, number of labels so far


@jax.tree_util.register_static
@dataclass(frozen=True)
class Refit(OneThreshold):
    """The learner as functions of one game on H arms; the threshold of a block is fitted before it."""

    def init(self, start: Any) -> RefitState:
        """Return the state before round 1, without labels."""
        zero = jnp.zeros((), jnp.int32)
        return RefitState(zero, jnp.zeros(LABELS, jnp.int32), jnp.zeros(LABELS), zero.astype(jnp.int64))

    def reweigh(self, state: RefitState, params: RuleParams) -> RefitState:
        """Return the state with the threshold of the next block."""
        fitted = lowest(state.cuts, state.errors, params.alpha, self.arms)
        return state._replace(arm=jnp.where(state.total == 0, 0, fitted))

    def learn(self, state: RefitState, params: RuleParams, cut: Any, decision: Decision, error: Any) -> RefitState:
        """Return the state with the label of an answer."""
        # LABELS is out of range: dropped
        index = jnp.where(decision.answer, state.total % LABELS, LABELS)
        cuts = state.cuts.at[index].set(cut, mode="drop")
        errors = state.errors.at[index].set(error, mode="drop")
        return RefitState(state.arm, cuts, errors, jnp.where(decision.answer, state.total + 1, state.total))


refit = Learner(feedback="bandit", rule=Own(Refit))
