"""The backend for devices, in JAX: it simulates pieces of 8 rounds on 9 numbers, with no sort and no scatter.

Over n rounds at most n cuts occur, so the arms keep their ratios within at most n + 1 groups, and sums over the
groups replace their weights without loss. An arm's group is the number of cuts that it reaches:

    cuts of n rounds       |      |   |          |
    arms               ...............................     H weights
    groups              0     1    2      3       4        n + 1 sums; two rounds of one cut leave a group empty

A round (line "Update" of Algorithm "ExAUL") changes 9 numbers, and XLA computes it for all copies in a few
elementwise kernels. After a piece each arm gets what its group got. Weights are computed anew every 256 rounds.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from exaul.kernels.dense import FixedLearner, RankedLearner, RankedState, visible_error, weights_of
from exaul.kernels.game import BLOCK, Block, RuleParams, Start
from exaul.kernels.learners.learner import Fixed, Learner, Ranked, Sided
from exaul.kernels.play import Backend

PIECE = 8  # rounds of a piece, which is written out (measured: 16 compile four times longer, and run no faster)
WORD = 64  # bits


def _sum_in_order(parts: Sequence[jax.Array]) -> jax.Array:
    """Sum arrays from the first to the last; jnp.sum would leave the order to XLA."""
    return functools.reduce(jnp.add, parts)


def _in_pieces(advance: Any, state: Any, block: Block) -> tuple[Any, jax.Array]:
    """Simulate 256 rounds, piece by piece; ``advance(state, rounds, group of each cut)`` returns state and answers.

    The answers are the bits of four words, which the kernel of the rounds shifts: a separate kernel would store
    them in an array.
    """
    chex.assert_shape(block[:2], (BLOCK,))
    pieces = jax.tree.map(lambda x: x.reshape(-1, PIECE), block)

    def one_piece(carry: tuple[Any, list[jax.Array]], x: tuple[Block, jax.Array]) -> Any:
        state, answers = advance(carry[0], *x)
        bits = functools.reduce(lambda bits, answer: bits << 1 | answer.astype(jnp.uint64), answers, jnp.uint64(0))
        pairs = zip(carry[1], [*carry[1][1:], bits << WORD - PIECE], strict=True)
        return (state, [word << PIECE | following >> WORD - PIECE for word, following in pairs]), None

    zeros = [jnp.uint64(0)] * (BLOCK // WORD)
    (state, words), _ = lax.scan(one_piece, (state, zeros), (pieces, jax.vmap(_group_of)(pieces.cuts, pieces.cuts)))
    shifts = jnp.arange(WORD - 1, -1, -1, dtype=jnp.uint64)
    return state, jnp.concatenate([word >> shifts & 1 == 1 for word in words])


def _group_of(arms: jax.Array, cuts: jax.Array) -> jax.Array:
    """Return the group of each arm, in 0..PIECE: the number of cuts that it reaches."""
    return _sum_in_order([(cut <= arms).astype(jnp.int8) for cut in cuts])


def _collapse(values: jax.Array, cuts: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    """Return the sums of values [H] over the groups of a piece, and the group of each arm [H].

    The sums are scalars, not an array: under vmap each is an array [B], and a round is elementwise over copies.
    """
    # behind the barrier XLA stores a byte for each arm, in place of nine masks [B, H]
    group = lax.optimization_barrier(_group_of(jnp.arange(values.size, dtype=jnp.int32), cuts))
    masked = [jnp.where(group == g, values, 0) for g in range(PIECE + 1)]
    zeros = [jnp.zeros((), values.dtype)] * len(masked)
    # one reduction of all groups is one kernel, which reads the values once
    return lax.reduce(masked, zeros, lambda x, y: [a + b for a, b in zip(x, y, strict=True)], (0,)), group


@jax.tree_util.register_static
@dataclass(frozen=True)
class SidedBlocks:
    """A learner with two charges, below the cut and above; the state is losses up to a constant, [H] float64."""

    definition: Learner[Sided]
    arms: int
    precision: str

    def init(self, start: Start) -> jax.Array:
        """Return the state before round 1."""
        return jnp.zeros(self.arms)

    def advance_block(self, losses: jax.Array, block: Block, params: RuleParams) -> tuple[jax.Array, jax.Array]:
        """Simulate 256 rounds."""
        weights = weights_of(losses, params.eta, self.definition.rule.prior, self.precision)
        (losses, _), answered = _in_pieces(partial(self._advance_piece, params), (losses, weights), block)
        return losses, answered

    def _advance_piece(
        self, params: RuleParams, arrays: Any, rounds: Block, cut_groups: jax.Array
    ) -> tuple[Any, list[jax.Array]]:
        """Simulate a piece with losses and weights [H]; return both after the piece, and the answers."""
        losses, weights = arrays
        sums, group = _collapse(weights, rounds.cuts)
        outcomes: Any = [(1.0, 0.0)] * len(sums)  # factor of the weights, and charge
        answers = []
        for i in range(PIECE):
            x: Block = jax.tree.map(lambda field, i=i: field[i], rounds)
            is_below = [g < cut_groups[i] for g in range(len(sums))]
            pairs = list(zip(is_below, sums, strict=True))
            low = _sum_in_order([jnp.where(b, w, 0) for b, w in pairs]).astype(jnp.float64)
            high = _sum_in_order([jnp.where(b, 0, w) for b, w in pairs]).astype(jnp.float64)
            P, Q = low / (low + high), high / (low + high)
            answers.append(answered := (x.draws.decision < P) & x.active)
            error = visible_error(self.definition, answered, x.errors)
            below, above = self.definition.rule.charge(jnp.where, P, Q, answered, error, params)
            gap = jnp.where(x.active, below - above, 0.0)
            # Only the ratio of the factors matters. The side with the larger charge gets exp(-eta |gap|), the other
            # 1: one exponential per round, and no weight grows.
            factor = jnp.exp(-params.eta * jnp.abs(gap)).astype(self.precision)
            factors = jnp.where(gap > 0, factor, 1), jnp.where(gap > 0, 1, factor)
            sides = [jnp.where(b, *factors) for b in is_below]
            sums = [w * side for w, side in zip(sums, sides, strict=True)]
            updates = zip(outcomes, sides, is_below, strict=True)
            outcomes = [(product * side, charge + jnp.where(b, gap, 0.0)) for (product, charge), side, b in updates]
        columns = zip(*outcomes, strict=True)
        factor, charge = (_sum_in_order([jnp.where(group == g, x, 0) for g, x in enumerate(y)]) for y in columns)
        return (losses + charge, weights * factor), answers


@jax.tree_util.register_static
class RankedBlocks(RankedLearner):
    """A learner that goes by ranks, which follow from counts of the cuts."""

    def advance_block(self, state: RankedState, block: Block, params: RuleParams) -> tuple[RankedState, jax.Array]:
        """Simulate 256 rounds."""
        return _in_pieces(partial(self._advance_piece, params), state, block)

    def _advance_piece(
        self, params: RuleParams, state: RankedState, rounds: Block, cut_groups: jax.Array
    ) -> tuple[RankedState, list[jax.Array]]:
        """Simulate a piece; padding is counted like rounds, since nothing reads the counts after it."""
        rule, (rule_state, counts) = self.definition.rule, state
        sums, _ = _collapse(counts, rounds.cuts)
        fades = rule.decay ** np.arange(PIECE + 1.0)
        answers = []
        for i in range(PIECE):
            x: Block = jax.tree.map(lambda field, i=i: field[i], rounds)
            low = _sum_in_order([jnp.where(g < cut_groups[i], n, 0.0) for g, n in enumerate(sums)])
            repeats = [jnp.where(rounds.cuts[j] == x.cuts, fades[i - 1 - j], 0.0) for j in range(i)]
            high = low + _sum_in_order([counts[x.cuts] * fades[i], *repeats])
            P = rule.decide(jnp.where, rule_state, *(n / _sum_in_order(sums) for n in (high, low)))
            answers.append(answered := (x.draws.decision < P) & x.active)
            error = visible_error(self.definition, answered, x.errors)
            new_state = rule.learn(jnp.where, rule_state, answered, error, params)
            rule_state = jax.tree.map(partial(jnp.where, x.active), new_state, rule_state)
            # the arm of the cut is in the group of the cut, the first that is not below the cut
            sums = [n * rule.decay + jnp.where(g == cut_groups[i], 1.0, 0.0) for g, n in enumerate(sums)]
        # behind the barrier the counts change in place, after the old ones were read
        counts, rule_state = lax.optimization_barrier((counts, rule_state))
        arms = jnp.arange(self.arms, dtype=jnp.int32)
        added = [jnp.where(arms == rounds.cuts[i], fades[PIECE - 1 - i], 0.0) for i in range(PIECE)]
        return RankedState(rule_state, _sum_in_order([counts * fades[PIECE], *added])), answers


@jax.tree_util.register_static
class FixedBlocks(FixedLearner):
    """A fixed threshold."""

    def advance_block(self, arm: jax.Array, block: Block, params: RuleParams) -> tuple[jax.Array, jax.Array]:
        """Simulate 256 rounds."""
        return arm, (arm < block.cuts) & block.active


def make_backend(learner: Learner[Any], precision: str) -> Backend | None:
    """Return the backend of a learner; None if its rule draws an arm, or is the user's."""
    sided = partial(SidedBlocks, precision=precision)
    kinds: dict[type, Any] = {Sided: sided, Ranked: RankedBlocks, Fixed: FixedBlocks}
    kind = kinds.get(type(learner.rule))
    return None if kind is None else Backend(partial(kind, learner))
