"""``refit``: a threshold that is refitted to a moving window, a widely used baseline.

The learner answers everything in the first 256 rounds. Then, before every block of 256 rounds, it takes the lowest
threshold at which a share of at most alpha of its last 2,000 labels was wrong, without a margin (selection by the
empirical risk, as in Geifman and El-Yaniv, "Selective classification for deep neural networks", 2017, without their
confidence bound). Only answers give labels, so labels of scores below the threshold are old or missing; nothing is
proved. If no threshold qualifies, it uses the last arm, which answers nothing: it then gets no labels and never
answers again.
"""

from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp

from exaul.kernels.game import RuleParams
from exaul.kernels.learners.learner import Learner, Own
from experiments.rivals import OneThreshold, no_labels

LABELS = 2000  # size of the window
ROUNDING = 1e-9  # in wrong answers: a sum of errors this little above alpha n counts as equal to it


class Window(NamedTuple):
    """The arm of a block, and the last 2,000 labels of a copy in a ring buffer."""

    arm: Any  # [] int32
    cuts: Any  # [2000] int32, 0 if empty
    errors: Any  # [2000] float64
    total: Any  # [] int64, number of labels so far

    def add(self, cut: Any, error: Any, is_seen: Any) -> "Window":
        """Return the labels with one more, if it is seen."""
        # LABELS is out of range: dropped
        index = jnp.where(is_seen, self.total % LABELS, LABELS)
        cuts = self.cuts.at[index].set(cut, mode="drop")
        errors = self.errors.at[index].set(error, mode="drop")
        return Window(self.arm, cuts, errors, jnp.where(is_seen, self.total + 1, self.total))


def no_window(arms: int) -> Window:
    """Return the state before round 1, without labels."""
    zero = jnp.zeros((), jnp.int32)
    return Window(zero, jnp.zeros(LABELS, jnp.int32), jnp.zeros(LABELS), zero.astype(jnp.int64))


def fitted_arm(window: Window, params: RuleParams, arms: int) -> Any:
    """Return the lowest threshold whose error rate on the labels is at most alpha; 0 if there is no label yet.

    ``min {k : 0 < n_k, W_k <= alpha n_k}``, where n_k is the number of labels that threshold k would have answered,
    and W_k the sum of their errors (the empirical selective risk of Geifman and El-Yaniv 2017). H - 1, which never
    answers, if there is none.
    """
    cuts, labels = window.cuts, no_labels(arms)  # no threshold answers a cut of 0, which empty entries have
    labels = labels._replace(count=labels.count.at[cuts].add(1.0), wrong=labels.wrong.at[cuts].add(window.errors))
    above, wrong_above = labels.answered()
    fitted = labels.lowest((above > 0) & (wrong_above <= params.alpha * above + ROUNDING))
    return jnp.where(window.total == 0, 0, fitted)


refit = Learner(feedback="bandit", rule=Own(partial(OneThreshold, labels=no_window, choose=fitted_arm)))
