"""The backend for devices, in JAX: blocks in pieces of 16 rounds, on 17 numbers; no sort, gather or scatter.

Over C rounds at most C cuts occur, so the arms keep their ratios within at most C + 1 groups, and sums over the
groups replace their weights without loss. An item's group is the number of cuts that it reaches:

    cuts of C rounds       |      |   |          |
    arms               ...............................     H weights
    groups              0     1    2      3       4        C + 1 sums; two rounds of one cut leave a group empty

It happens twice: H weights collapse to 257 sums for a block, and those to 17 for a piece. A round (line "Update"
of Algorithm "ExAUL") changes 17 numbers, and XLA computes it for all copies in a few elementwise kernels. The state
is the differences ``L_k - L_{k-1}``, of which a round changes one; weights are computed anew every 256 rounds.

The ranks of a ``Ranked`` rule do not depend on decisions: they are computed for 256 rounds at once.
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

from exaul.kernels.dense import RankedGame, RankedState, weights_of
from exaul.kernels.game import ROUNDS, Block, Parameters, Start
from exaul.kernels.learners.learner import Learner, Ranked, Sided
from exaul.kernels.play import Backend, ByBlocks

PIECE = 16  # rounds of a piece, which is written out (chosen; more compile longer)


def _groups_of(items: jax.Array, cuts: jax.Array) -> jax.Array:
    """Return how many of the cuts [C] each item [N] reaches, its group."""
    return jnp.sum(cuts[:, None] <= items[None], axis=0, dtype=jnp.int32)


def _collapse(weights: jax.Array, cuts: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the group of each item [N], and the sums of their weights [C + 1]."""
    items, groups = (jnp.arange(size, dtype=jnp.int32) for size in (weights.size, cuts.size + 1))
    group = _groups_of(items, cuts)
    return group, jnp.sum(jnp.where(group[None] == groups[:, None], weights[None], 0), axis=1)


def _total(parts: Sequence[jax.Array]) -> jax.Array:
    # From low groups to high ones; jnp.sum would leave the order to XLA.
    return functools.reduce(jnp.add, parts).astype(jnp.float64)


def _update(
    learner: Learner[Sided], x: Block, P: jax.Array, Q: jax.Array, parameters: Parameters, precision: str
) -> tuple[jax.Array, tuple[jax.Array, jax.Array], jax.Array]:
    """Return a round's decision, the factors of the weights on both sides of the cut, and the charges' gap."""
    answered = (x.draws.decision < P) & x.active
    error = x.errors if learner.feedback == "full" else jnp.where(answered, x.errors, 0.0)
    under, over = learner.rule.charge(jnp.where, P, Q, answered, error, parameters)
    gap = jnp.where(x.active, under - over, 0.0)
    # Only the ratio of the factors matters. The side with the larger charge gets exp(-eta |gap|), the other 1: one
    # exponential per round, and no weight grows.
    factor = jnp.exp(-parameters.eta * jnp.abs(gap)).astype(precision)
    return answered, (jnp.where(gap > 0, factor, 1), jnp.where(gap > 0, 1, factor)), gap


def _simulate_piece(
    learner: Learner[Sided], weights: jax.Array, x: tuple[jax.Array, Block], parameters: Parameters, precision: str
) -> tuple[jax.Array, tuple[Any, ...]]:
    """Simulate a piece of one copy; ``weights`` [257] are the sums of the groups of a block."""
    cuts, rounds = x
    group, sums = _collapse(weights, cuts)
    below = _groups_of(cuts, cuts)  # the number of groups below the cut of each round
    # Scalars instead of an array: under vmap each is an array [B], and a round is elementwise over copies.
    inner = [sums[g] for g in range(PIECE + 1)]
    change = [jnp.ones((), weights.dtype)] * (PIECE + 1)
    outcomes = []
    for i in range(PIECE):
        one = jax.tree.map(lambda each, i=i: each[i], rounds)
        is_below = [g < below[i] for g in range(PIECE + 1)]
        low = _total([jnp.where(b, w, 0) for b, w in zip(is_below, inner, strict=True)])
        high = _total([jnp.where(b, 0, w) for b, w in zip(is_below, inner, strict=True)])
        P, Q = low / (low + high), high / (low + high)
        answered, factors, gap = _update(learner, one, P, Q, parameters, precision)
        sides = [jnp.where(b, *factors) for b in is_below]
        inner = [w * side for w, side in zip(inner, sides, strict=True)]
        change = [c * side for c, side in zip(change, sides, strict=True)]
        outcomes.append((answered, gap))
    spread = functools.reduce(jnp.add, [jnp.where(group == g, change[g], 0) for g in range(PIECE + 1)])
    return weights * spread, tuple(jnp.stack(column) for column in zip(*outcomes, strict=True))


@jax.tree_util.register_static
@dataclass(frozen=True)
class SidedBlocks(ByBlocks):
    """A learner with two charges, below the cut and above; the state is the differences, [H] float64."""

    learner: Learner[Sided]
    arms: int
    precision: str

    def init(self, start: Start) -> jax.Array:
        """Return the state before round 1."""
        return jnp.zeros(self.arms)

    def advance(self, differences: jax.Array, block: Block, params: Parameters) -> tuple[jax.Array, jax.Array]:
        """Simulate 256 rounds."""
        chex.assert_shape(block[:2], (ROUNDS,))
        weights = weights_of(self.losses(differences), params.eta, self.learner.rule.prior, self.precision)
        _, groups = _collapse(weights, block.cuts)
        pieces = jax.tree.map(lambda x: x.reshape(-1, PIECE), (_groups_of(block.cuts, block.cuts), block))
        simulate = partial(_simulate_piece, self.learner, parameters=params, precision=self.precision)
        _, results = lax.scan(simulate, groups, pieces)
        answered, gaps = (x.reshape(ROUNDS) for x in results)
        is_cut = block.cuts[:, None] == jnp.arange(differences.size, dtype=jnp.int32)[None]
        return differences - jnp.sum(jnp.where(is_cut, gaps[:, None], 0.0), axis=0), answered

    def losses(self, differences: jax.Array) -> jax.Array:
        """Return the cumulative charges of the arms [H], up to a constant."""
        return jnp.cumsum(differences)


@jax.tree_util.register_static
class RankedBlocks(RankedGame, ByBlocks):
    """A learner that goes by the rank of a score, with the ranks of 256 rounds at once."""

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
        added = jnp.sum(jnp.where(cuts == arms, each[:, None], 0.0), axis=0)
        scale = jnp.maximum(jnp.max(each), 1.0)  # what the last round counted
        return RankedState(numbers, (counts + added) / scale), answered


def make(learner: Learner[Any], precision: str) -> Backend | None:
    """Return the backend of a learner that charges both sides of the cut or goes by ranks; None for others."""
    games: dict[type, Any] = {Sided: partial(SidedBlocks, precision=precision), Ranked: RankedBlocks}
    game = games.get(type(learner.rule))
    return None if game is None else Backend(partial(game, learner))
