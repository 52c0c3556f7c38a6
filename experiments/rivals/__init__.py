"""Rivals: learners of other papers that ``beyond`` compares, by ``experiments.rivals.module:name``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from exaul.kernels.game import RuleParams
from exaul.kernels.play import Decision

DELTA = 0.05  # a certificate holds with probability 1 - delta


@jax.tree_util.register_static
@dataclass(frozen=True)
class OneThreshold:
    """A learner of one game on H arms, which before each block chooses an arm by the labels so far.

    Attributes:
        arms: H.
        labels: returns for H the state before round 1: the field ``arm``, and ``add(cut, error, is_seen)``.
        choose: returns for a state, the parameters and H the arm of the next block.
        sees_all: whether it also sees the labels of rounds without an answer.
    """

    arms: int
    labels: Callable[[int], Any]
    choose: Callable[[Any, RuleParams, int], Any]
    sees_all: bool = False

    def init(self, start: Any) -> Any:
        """Return the state before round 1."""
        return self.labels(self.arms)

    def reweigh(self, state: Any, params: RuleParams) -> Any:
        """Return the state with the arm of the next block."""
        return state._replace(arm=self.choose(state, params, self.arms))

    def decide(self, state: Any, params: RuleParams, cut: Any, u: Any) -> tuple[Any, Decision]:
        """Answer if the score reaches the threshold."""
        answer = state.arm < cut
        return state, Decision(answer, answer.astype(jnp.float64))

    def learn(self, state: Any, params: RuleParams, cut: Any, decision: Decision, error: Any) -> Any:
        """Return the state with the label of a round, if it is seen."""
        return state.add(cut, error, decision.answer | self.sees_all)

    def distribution(self, state: Any, params: RuleParams) -> jax.Array:
        """Return all probability on the threshold, [H]."""
        return jax.nn.one_hot(state.arm, self.arms, dtype=jnp.float64)


class LabelCounts(NamedTuple):
    """The arm in use, and the labels of a copy, counted by cut."""

    arm: Any  # [] int32
    is_fractional: Any  # [] bool, whether some error was neither 0 nor 1
    count: Any  # [H] labels
    wrong: Any  # [H] sums of their errors

    def add(self, cut: Any, error: Any, is_seen: Any) -> "LabelCounts":
        """Return the counts with one more label, if it is seen."""
        return self._replace(
            is_fractional=self.is_fractional | (is_seen & (error > 0) & (error < 1)),
            count=self.count.at[cut].add(jnp.where(is_seen, 1.0, 0.0)),
            wrong=self.wrong.at[cut].add(jnp.where(is_seen, error, 0.0)),
        )

    def answered(self) -> tuple[Any, Any]:
        """Return the number of labels above each threshold but the last, and the sums of their errors, [H - 1]."""
        count, wrong = (jnp.sum(x) - jnp.cumsum(x)[:-1] for x in (self.count, self.wrong))
        return count, wrong

    def lowest(self, qualifies: Any) -> Any:
        """Return the lowest threshold that ``qualifies`` [H - 1], or the last arm, which answers nothing."""
        return jnp.where(jnp.any(qualifies), jnp.argmax(qualifies), self.count.size - 1).astype(jnp.int32)


def no_labels(arms: int) -> LabelCounts:
    """Return the counts before round 1, for H arms."""
    nothing = jnp.zeros(arms)
    return LabelCounts(jnp.zeros((), jnp.int32), jnp.asarray(False), nothing, nothing)
