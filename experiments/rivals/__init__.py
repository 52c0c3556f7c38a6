"""Rivals: learners of other papers that ``beyond`` compares, by ``experiments.rivals.module:name``."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from exaul.kernels.game import Parameters
from exaul.kernels.play import Decision


@dataclass(frozen=True)
class OneThreshold:
    """A learner of one game on H arms whose state has the arm that it uses, ``arm``."""

    arms: int

    def decide(self, state: Any, params: Parameters, cut: Any, u: Any) -> tuple[Any, Decision]:
        """Answer if the score reaches the threshold."""
        answer = state.arm < cut
        return state, Decision(answer, answer.astype(jnp.float64))

    def masses(self, state: Any, params: Parameters) -> jax.Array:
        """Return all probability on the threshold, [H]."""
        return jax.nn.one_hot(state.arm, self.arms, dtype=jnp.float64)
