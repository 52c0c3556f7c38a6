"""The backend for devices, in JAX: rounds in pieces of 8, on 9 numbers; no sort, gather or scatter.

Over C rounds at most C cuts occur, so the arms keep their ratios within at most C + 1 groups, and sums over the
groups replace their weights without loss. An arm's group is the number of cuts that it reaches:

    cuts of C rounds       |      |   |          |
    arms               ...............................     H weights
    groups              0     1    2      3       4        C + 1 sums; two rounds of one cut leave a group empty

A round (line "Update" of Algorithm "ExAUL") changes 9 numbers, and XLA computes it for all copies in a few
elementwise kernels. After a piece the arms get what their group got. Weights are computed anew every 256 rounds.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
from jax import lax

from exaul.kernels.dense import FixedGame, RankedGame, RankedState, weights_of
from exaul.kernels.game import ROUNDS, Block, Parameters, Start
from exaul.kernels.learners.learner import Fixed, Learner, Ranked, Sided
from exaul.kernels.play import Backend, ByBlocks

PIECE = 8  # rounds of a piece, which is written out (measured: 16 compile four times longer, and run no faster)
TOGETHER = 31  # rounds of a sum: from 32 on, XLA shares a sum among the threads of a warp


def sum_by_cut(arms: int, cuts: jax.Array, amounts: jax.Array) -> jax.Array:
    """Return the sum of the amounts [C] of the rounds of each cut, [H]."""
    each = jnp.arange(arms, dtype=jnp.int32)[None]
    some = [slice(i, i + TOGETHER) for i in range(0, len(cuts), TOGETHER)]
    return _sum_in_order([jnp.sum(jnp.where(cuts[x, None] == each, amounts[x, None], 0.0), axis=0) for x in some])


def _sum_in_order(parts: Sequence[jax.Array]) -> jax.Array:
    """Sum arrays from the first to the last; jnp.sum would leave the order to XLA."""
    return functools.reduce(jnp.add, parts)


@jax.tree_util.register_static
@dataclass(frozen=True)
class SidedBlocks(ByBlocks):
    """A learner with two charges, below the cut and above; the state is losses up to a constant, [H] float64."""

    learner: Learner[Sided]
    arms: int
    precision: str

    def init(self, start: Start) -> jax.Array:
        """Return the state before round 1."""
        return jnp.zeros(self.arms)

    def advance(self, losses: jax.Array, block: Block, params: Parameters) -> tuple[jax.Array, jax.Array]:
        """Simulate 256 rounds."""
        chex.assert_shape(block[:2], (ROUNDS,))
        weights = weights_of(losses, params.eta, self.learner.rule.prior, self.precision)
        pieces = jax.tree.map(lambda x: x.reshape(-1, PIECE), block)
        (losses, _), answered = lax.scan(partial(self._advance_piece, params), (losses, weights), pieces)
        return losses, answered.reshape(ROUNDS)

    def losses(self, losses: jax.Array) -> jax.Array:
        """Return the cumulative charges of the arms [H], up to a constant."""
        return losses

    def _advance_piece(
        self, params: Parameters, arrays: tuple[jax.Array, jax.Array], rounds: Block
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        """Simulate a piece, with losses and weights [H]; return these after it, and the answers."""
        losses, weights = arrays

        def group_of(items: jax.Array, cuts: jax.Array) -> jax.Array:
            return jnp.sum(cuts[:, None] <= items[None], axis=0, dtype=jnp.int32)

        arms, groups = jnp.arange(self.arms, dtype=jnp.int32), range(PIECE + 1)
        group, below = group_of(arms, rounds.cuts), group_of(rounds.cuts, rounds.cuts)
        # Scalars, not an array: under vmap each is an array [B], and a round is elementwise over copies.
        inner = [jnp.sum(jnp.where(group == g, weights, 0)) for g in groups]
        outcomes: Any = [(1.0, 0.0)] * len(groups)  # factor of the weights, and charge
        answers = []
        for i in range(PIECE):
            x: Block = jax.tree.map(lambda each, i=i: each[i], rounds)
            is_below = [g < below[i] for g in groups]
            pairs = list(zip(is_below, inner, strict=True))
            low = _sum_in_order([jnp.where(b, w, 0) for b, w in pairs]).astype(jnp.float64)
            high = _sum_in_order([jnp.where(b, 0, w) for b, w in pairs]).astype(jnp.float64)
            P, Q = low / (low + high), high / (low + high)
            answered = (x.draws.decision < P) & x.active
            answers.append(answered)
            error = x.errors if self.learner.feedback == "full" else jnp.where(answered, x.errors, 0.0)
            under, over = self.learner.rule.charge(jnp.where, P, Q, answered, error, params)
            gap = jnp.where(x.active, under - over, 0.0)
            # Only the ratio of the factors matters. The side with the larger charge gets exp(-eta |gap|), the other
            # 1: one exponential per round, and no weight grows.
            factor = jnp.exp(-params.eta * jnp.abs(gap)).astype(self.precision)
            factors = jnp.where(gap > 0, factor, 1), jnp.where(gap > 0, 1, factor)
            sides = [jnp.where(b, *factors) for b in is_below]
            inner = [w * side for w, side in zip(inner, sides, strict=True)]
            before = zip(outcomes, sides, is_below, strict=True)
            outcomes = [(change * side, charge + jnp.where(b, gap, 0.0)) for (change, charge), side, b in before]
        # Behind the barrier XLA computes the groups of the arms again, in place of storing nine masks [B, H].
        group = group_of(arms, lax.optimization_barrier(rounds.cuts))
        of_groups = zip(*outcomes, strict=True)
        factor, charge = (_sum_in_order([jnp.where(group == g, x, 0) for g, x in enumerate(z)]) for z in of_groups)
        return (losses + charge, weights * factor), jnp.stack(answers)


@jax.tree_util.register_static
class RankedBlocks(RankedGame, ByBlocks):
    """A learner that goes by ranks; they depend on no decision, and are computed for 256 rounds at once."""

    def advance(self, state: RankedState, block: Block, params: Parameters) -> tuple[RankedState, jax.Array]:
        """Simulate 256 rounds."""
        chex.assert_shape(block[:2], (ROUNDS,))
        rule, (numbers, counts) = self.learner.rule, state
        cuts, others = block.cuts[:, None], block.cuts[None]
        arms = jnp.arange(counts.size, dtype=jnp.int32)[None]
        # Instead of fading all counts in every round, round n counts ``decay^-n`` times as much as those before.
        each = jnp.where(block.active, rule.decay ** -jnp.arange(1.0, ROUNDS + 1.0), 0.0)
        earlier = jnp.tri(ROUNDS, k=-1, dtype=bool)  # [round, earlier round]

        def counted(old: jax.Array, new: jax.Array) -> jax.Array:
            """Sum old counts [C, H], and those of earlier rounds of the block [C, C], where these hold."""
            old_counts = jnp.sum(jnp.where(old, counts[None], 0.0), axis=1)
            return old_counts + jnp.sum(jnp.where(new & earlier, each[None], 0.0), axis=1)

        total = counted(jnp.ones_like(arms, bool), earlier)
        high = counted(arms <= cuts, others <= cuts) / total
        low = counted(arms < cuts, others < cuts) / total

        def one(numbers: Any, x: tuple[Any, ...]) -> tuple[Any, Any]:
            high, low, error, u, active = x
            P = rule.decide(jnp.where, numbers, high, low)
            answered = (u < P) & active
            after = rule.learn(jnp.where, numbers, answered, error, params)
            return jax.tree.map(lambda y, z: jnp.where(active, y, z), after, numbers), answered

        rounds = high, low, block.errors, block.draws.decision, block.active
        numbers, answered = lax.scan(one, numbers, rounds, unroll=PIECE)
        scale = jnp.maximum(jnp.max(each), 1.0)  # what the last round counted
        return RankedState(numbers, (counts + sum_by_cut(self.arms, block.cuts, each)) / scale), answered


@jax.tree_util.register_static
class FixedBlocks(FixedGame, ByBlocks):
    """A fixed threshold."""

    def advance(self, arm: jax.Array, block: Block, params: Parameters) -> tuple[jax.Array, jax.Array]:
        """Simulate 256 rounds."""
        return arm, (arm < block.cuts) & block.active


def make(learner: Learner[Any], precision: str) -> Backend | None:
    """Return the backend of a learner; None if its rule draws an arm, or is the user's."""
    sided = partial(SidedBlocks, precision=precision)
    games: dict[type, Any] = {Sided: sided, Ranked: RankedBlocks, Fixed: FixedBlocks}
    game = games.get(type(learner.rule))
    return None if game is None else Backend(partial(game, learner))
