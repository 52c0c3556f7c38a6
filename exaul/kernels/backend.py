"""Backends that JAX traces: a learner as functions of one game, to which ``vmap`` adds copies and ``scan`` rounds.

Every module of backends has ``make(learner, precision)``, which returns the ``Backend`` of a learner, or None if it
has none for the learner's rule. ``precision`` is the dtype of the weights and their sums, ``float64`` or
``float32``. Backends differ in rounding and speed only.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import lax

from exaul.kernels.game import Array, Block, ImperfectFeedback, Parameters, Start
from exaul.kernels.play import ByBlocks, reweigh, step


class Backend(NamedTuple):
    """A learner in JAX.

    Attributes:
        game: ``game(arms)`` returns the learner as functions of one game: with ``decide`` and ``learn``, or with
            ``advance`` of whole blocks, as of ``advance``.
        imperfect: as of ``Parameters``.
    """

    game: Callable[[int], Any]
    imperfect: ImperfectFeedback | None = None


def advance(game: Any, state: Any, block: Block, params: Parameters) -> tuple[Any, Array]:
    """Simulate a block of C rounds of one copy; return the state, and which rounds were answered [C]."""
    chex.assert_equal_shape([block.cuts, block.errors, block.active])
    if isinstance(game, ByBlocks):
        return game.advance(state, block, params)
    return lax.scan(lambda state, x: step(game, state, params, x), reweigh(game, state, params), block)


# vmap axes: all copies share the block's number; rates, alpha and the costs differ by copy.
COPY_AXES: Any = Parameters(0, 0, 0, 0, 0, None, None, None)


def advance_copies(
    game: Any, state: Any, block: Block, params: Parameters, same_records: bool
) -> tuple[Any, Array]:
    """Simulate a block of B copies.

    Args:
        game: of the learner.
        state: [B, ...].
        block: cuts and errors [C] if ``same_records``, else [C, B]; draws [C, B].
        params: [B].
        same_records: whether all copies have the same cuts and errors.

    Returns:
        The state, and which rounds were answered [C, B].
    """
    records = None if same_records else 1
    axes: Any = Block(records, records, 1, None)  # type: ignore[arg-type]
    return jax.vmap(partial(advance, game), in_axes=(0, axes, COPY_AXES), out_axes=(0, 1))(state, block, params)


def initial_states(game: Any, start: Start) -> Any:
    """Return the states of B copies before round 1, [B, ...]."""
    axes: Any = Start(0, 0, None)
    return jax.vmap(game.init, in_axes=(axes,))(jax.tree.map(jnp.asarray, start))
