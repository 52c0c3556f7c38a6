"""Rivals: learners of other papers that ``beyond`` compares, by ``experiments.rivals.module:name``."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from exaul.kernels.game import RuleParams
from exaul.kernels.play import Decision

DELTA = 0.05  # a certificate holds with probability 1 - delta


@dataclass(frozen=True)
class OneThreshold:
    """A learner of one game on H arms, whose state has the field ``arm``, the arm in use."""

    arms: int

    def decide(self, state: Any, params: RuleParams, cut: Any, u: Any) -> tuple[Any, Decision]:
        """Answer if the score reaches the threshold."""
        answer = state.arm < cut
        return state, Decision(answer, answer.astype(jnp.float64))

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


def no_labels(arm: int, arms: int) -> LabelCounts:
    """Return the state before round 1, with an arm in 0..H-1."""
    nothing = jnp.zeros(arms)
    return LabelCounts(jnp.asarray(arm, jnp.int32), jnp.asarray(False), nothing, nothing)
