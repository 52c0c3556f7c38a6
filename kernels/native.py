"""The native backend: the same game in compiled loops over tiles of copies, for a CPU.

A round charges one number to the arms below its cut and one to those above, so over C rounds the arms between
two neighbouring cuts keep their ratios, and H arms collapse without loss to at most C + 1 groups. That is done
twice: H arms to the groups of a block of 256 rounds, and those to the groups of 16 rounds. Weights are linear
within a block; the state, differences of cumulative losses between neighbouring arms, changes in one place a
round. Copies that play the same records share their groups; otherwise each lane of a tile has its own.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import numba as nb
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic
from numpy.typing import NDArray

from kernels.game import ROUNDS, Block, Outcome, Parameters
from kernels.learner import Backend, Learner

LANES = 32  # copies come in multiples of this: whole vectors, whatever else is played
WIDEST = 128  # copies of a tile, at most
INNER = 16  # rounds of the inner collapse
ROW = 32  # arms of a row, where an arm is drawn
_compiled: Any = partial(nb.njit, nogil=True, error_model="numpy", fastmath={"contract", "nsz"})

_intrinsic: Any = intrinsic


@_intrinsic
def _bits(context, x):
    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return nb.int64(nb.float64), generate


@_intrinsic
def _float(context, x):
    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return nb.float64(nb.int64), generate


@_compiled
def exp(x):
    """Exponential of a float64 in [-inf, 0], to 1e-15 relative, in operations that vectorise.

    ``2^n e^r`` with ``r = x - n ln 2`` in [-ln 2 / 2, ln 2 / 2] and e^r by its Taylor polynomial of degree 12.
    Below -708 the result is at most 1e-307 instead of less.
    """
    x = max(x, -708.0)
    shifted = x * 1.4426950408889634 + 6755399441055744.0  # 1.5 * 2**52: rounds to an integer, in the low bits
    n = shifted - 6755399441055744.0
    r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10
    r2 = r * r
    r4 = r2 * r2
    low = (1.0 + r) + r2 * (0.5 + r * 0.16666666666666666)
    middle = (0.041666666666666664 + r * 0.008333333333333333) + r2 * (
        0.001388888888888889 + r * 0.0001984126984126984
    )
    high = (2.48015873015873e-05 + r * 2.7557319223985893e-06) + r2 * (
        2.755731922398589e-07 + r * 2.505210838544172e-08
    )
    p = low + r4 * (middle + r4 * (high + r4 * 2.08767569878681e-09))
    return _float(_bits(p) + (_bits(shifted) << 52))


@_compiled
def _where(condition, x, y):
    return x if condition else y


@_compiled
def _split(values, size, bounds, ranks, below):
    """Cut 0..size-1 into groups at the distinct values of some rounds.

    Group g holds what lies from ``bounds[g]`` up to ``bounds[g + 1]``, and ``ranks[i]`` groups lie below the value
    of round i. Returns the number of groups.
    """
    for k in range(size):
        below[k] = 0
    for value in values:
        below[value] = 1
    groups = 1
    bounds[0] = 0
    for k in range(size):
        bounds[groups] = k  # stays if k begins a group: cheaper than to ask
        groups += below[k]
        below[k] = groups - 1
    bounds[groups] = size
    for i in range(values.size):
        ranks[i] = below[values[i]]
    return groups


@_compiled
def _split_few(values, size, bounds, ranks):
    """``_split`` for few rounds: the distinct values by insertion, and each round's rank by search."""
    groups = 1
    bounds[0] = 0
    for value in values:
        at = groups
        while bounds[at - 1] > value:
            bounds[at] = bounds[at - 1]
            at -= 1
        if bounds[at - 1] < value:
            bounds[at] = value
            groups += 1
        else:  # it was there: put back what moved
            for k in range(at, groups):
                bounds[k] = bounds[k + 1]
    bounds[groups] = size
    for i in range(values.size):
        rank = 0
        for g in range(1, groups):
            rank += bounds[g] <= values[i]
        ranks[i] = rank
    return groups


@_compiled
def _split_streams(cuts, arms, split, scratch):
    """Groups of a block, and of each 16 rounds of it, for some streams.

    Args:
        cuts: [R, rounds], each in 1..H-1.
        arms: H.
        split: what is filled: bounds [R, C + 2], the first arm of each group of the block, and H; counts [R] of
            those groups; inner bounds [R, C / 16, 18] and inner counts [R, C / 16], the same for groups of groups
            over 16 rounds; ranks [R, C], inner groups below each round's cut.
        scratch: [max(H, C + 1)] and [C], to work with.
    """
    bounds, counts, inner_bounds, inner_counts, inner_ranks = split
    below, ranks = scratch
    for s in range(cuts.shape[0]):
        counts[s] = _split(cuts[s], arms, bounds[s], ranks, below)
        for first in range(0, cuts.shape[1], INNER):
            here, j = slice(first, min(first + INNER, cuts.shape[1])), first // INNER
            inner_counts[s, j] = _split_few(ranks[here], counts[s], inner_bounds[s, j], inner_ranks[s, here])


@_compiled
def _collapse(weights, bounds, count, groups):
    """Sum the weights [., L] over groups that all lanes share."""
    for g in range(count):
        for lane in range(groups.shape[1]):
            groups[g, lane] = 0
        for k in range(bounds[g], bounds[g + 1]):
            for lane in range(groups.shape[1]):
                groups[g, lane] += weights[k, lane]


@_compiled
def _spread(weights, bounds, count, factors):
    """Multiply the weights [., L] by the factors of groups that all lanes share."""
    for g in range(count):
        for k in range(bounds[g], bounds[g + 1]):
            for lane in range(weights.shape[1]):
                weights[k, lane] *= factors[g, lane]


@_compiled
def _collapse_each(weights, bounds, counts, record, groups):
    """Sum the weights [L, .] over each lane's own groups, into ``groups`` [L, .]; zero beyond its last."""
    for lane in range(groups.shape[0]):
        mine, count = bounds[record[lane]], counts[record[lane]]
        for g in range(count):
            total = weights[lane, 0] * 0
            for k in range(mine[g], mine[g + 1]):
                total += weights[lane, k]
            groups[lane, g] = total
        for g in range(count, groups.shape[1]):
            groups[lane, g] = 0


@_compiled
def _spread_each(weights, bounds, counts, record, factors):
    """Multiply the weights [L, .] by the factors [L, .] of each lane's own groups."""
    for lane in range(weights.shape[0]):
        mine, count = bounds[record[lane]], counts[record[lane]]
        for g in range(count):
            factor = factors[lane, g]
            for k in range(mine[g], mine[g + 1]):
                weights[lane, k] *= factor


@_compiled
def _masses(groups, count, rank, shared, low, high):
    """Mass of the groups below each lane's rank, and of the others up to ``count``."""
    for lane in range(low.size):
        low[lane] = 0
        high[lane] = 0
    if shared:
        for g in range(rank[0]):
            for lane in range(low.size):
                low[lane] += groups[g, lane]
        for g in range(rank[0], count):
            for lane in range(low.size):
                high[lane] += groups[g, lane]
    else:
        for g in range(count):
            for lane in range(low.size):
                weight = groups[g, lane]
                below = g < rank[lane]
                low[lane] += weight if below else 0
                high[lane] += 0 if below else weight


@_compiled
def _shrink(groups, count, rank, shared, low, high):
    """Multiply the groups below each lane's rank by ``low``, and the others up to ``count`` by ``high``."""
    if shared:
        for g in range(rank[0]):
            for lane in range(low.size):
                groups[g, lane] *= low[lane]
        for g in range(rank[0], count):
            for lane in range(low.size):
                groups[g, lane] *= high[lane]
    else:
        for g in range(count):
            for lane in range(low.size):
                below, above = low[lane], high[lane]
                groups[g, lane] *= below if g < rank[lane] else above


@_compiled
def _weigh(differences, eta, total, least, weights):
    """``w ~ exp(-eta L)`` of each lane, the largest 1, from the differences [H, L] of its L."""
    for lane in range(total.size):
        total[lane] = 0
        least[lane] = 0
    for k in range(1, differences.shape[0]):
        for lane in range(total.size):
            total[lane] += differences[k, lane]
            least[lane] = min(least[lane], total[lane])
    for lane in range(total.size):
        total[lane] = 0
        weights[0, lane] = exp(eta * least[lane])
    for k in range(1, differences.shape[0]):
        for lane in range(total.size):
            total[lane] += differences[k, lane]
            weights[k, lane] = exp(eta * (least[lane] - total[lane]))


def _compile(rule: Callable, full_feedback: bool) -> Callable:
    """The loop over one block of a tile, with a learner's rule inside."""
    charges = _compiled(rule)

    @_compiled
    def play(l0, differences, block, split, parameters, copies, out, scratch):
        cuts, errors, uniforms, rounds = block
        bounds, counts, inner_bounds, inner_counts, ranks = split
        eta, gamma, answer, abstain = parameters
        record, draw = copies
        answered, probability = out
        weights, groups, each, inner, factors, low, high, rank, mine, u, e, gap = scratch
        shared = True
        for lane in range(low.size):
            shared &= record[l0 + lane] == record[l0]
            mine[lane] = record[l0 + lane]
        own = mine[0]
        _weigh(differences, eta, u, e, weights)
        if shared:
            _collapse(weights, bounds[own], counts[own], groups)
        else:
            _collapse_each(weights.T, bounds, counts, mine, each)
        for first in range(0, rounds, INNER):
            edges, numbers = inner_bounds[:, first // INNER], inner_counts[:, first // INNER]
            if shared:
                count = numbers[own]
                _collapse(groups, edges[own], count, inner)
            else:
                count = INNER + 1
                _collapse_each(each, edges, numbers, mine, inner.T)
            for g in range(count):
                for lane in range(low.size):
                    factors[g, lane] = inner[g, lane]
            for i in range(first, min(first + INNER, rounds)):
                for lane in range(low.size):
                    rank[lane] = ranks[mine[lane], i]
                    u[lane] = uniforms[i, draw[l0 + lane]]
                    e[lane] = errors[i, mine[lane]]
                _masses(inner, count, rank, shared, low, high)
                for lane in range(low.size):
                    total = np.float64(low[lane]) + np.float64(high[lane])
                    P, Q = np.float64(low[lane]) / total, np.float64(high[lane]) / total
                    yes = u[lane] < P
                    error = e[lane] if yes or full_feedback else 0.0
                    numbers_of = Parameters(eta, gamma, answer[l0 + lane], abstain[l0 + lane], 0, 0)
                    under, over = charges(_where, P, Q, yes, error, numbers_of)
                    gap[lane] = under - over
                    factor = exp(-eta * abs(gap[lane]))
                    low[lane] = factor if gap[lane] > 0 else 1.0
                    high[lane] = 1.0 if gap[lane] > 0 else factor
                    e[lane] = P
                for lane in range(low.size):
                    answered[i, l0 + lane] = u[lane] < e[lane]
                    probability[i, l0 + lane] = e[lane]
                if shared:
                    cut = cuts[i, own]
                    for lane in range(low.size):
                        differences[cut, lane] -= gap[lane]
                else:
                    for lane in range(low.size):
                        differences[cuts[i, mine[lane]], lane] -= gap[lane]
                _shrink(inner, count, rank, shared, low, high)
            for g in range(count):
                for lane in range(low.size):
                    before = factors[g, lane]
                    factors[g, lane] = inner[g, lane] / before if before > 0 else before
            if shared:
                _spread(groups, edges[own], count, factors)
            else:
                _spread_each(each, edges, numbers, mine, factors.T)

    return play


def _threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_threads())


class _Room(threading.local):
    """Scratch arrays of a thread, kept from block to block."""

    def __init__(self) -> None:
        self.held: dict[tuple[int, int, str], tuple] = {}

    def scratch(self, arms: int, lanes: int, precision: str) -> tuple:
        if (arms, lanes, precision) not in self.held:
            groups = np.empty((ROUNDS + 1, lanes), precision)
            tall = [np.empty((n, lanes), precision) for n in (INNER + 1, INNER + 1)]
            rows = [np.empty(lanes, kind) for kind in (precision, precision, *2 * [np.int64], *3 * [np.float64])]
            weights = np.empty((arms, lanes), precision)
            held = (weights, groups, groups.reshape(lanes, -1), *tall, *rows)
            self.held[arms, lanes, precision] = held
        return self.held[arms, lanes, precision]


_room = _Room()


def sided(learner: Learner, precision: str) -> Backend:
    """Backend of a learner that charges one number below the cut and one above, as ``dense.sided``.

    The state holds ``L_k - L_{k-1}`` in float64, an array [H, L] for each tile of L copies: a round moves one entry
    of each lane. Weights and their sums are in ``precision``. Copies come in multiples of 32; inactive rounds come
    last in a block.
    """
    play = _compile(learner.rule, learner.feedback == "full")

    def advance(differences: Any, block: Block, parameters: Parameters) -> tuple[Any, Outcome]:
        arms, copies = differences[0].shape[0], len(parameters.record)
        first_lanes = np.cumsum([0, *(tile.shape[1] for tile in differences)])
        rounds, streams = int(block.active.sum()), block.cuts.shape[1]
        answered = np.zeros((ROUNDS, copies), np.bool_)
        probability = np.zeros((ROUNDS, copies))
        cuts = np.ascontiguousarray(block.cuts[:rounds].T)
        sizes = ((ROUNDS + 2,), (), (ROUNDS // INNER, INNER + 2), (ROUNDS // INNER,), (ROUNDS,))
        split = tuple(np.zeros((streams, *size), np.int32) for size in sizes)

        def groups(first: int) -> None:
            here = slice(first, first + WIDEST)
            scratch = np.empty(max(arms, ROUNDS + 1), np.int32), np.empty(ROUNDS, np.int32)
            _split_streams(cuts[here], arms, tuple(x[here] for x in split), scratch)

        def tile(n: int) -> None:
            play(
                int(first_lanes[n]),
                differences[n],
                (block.cuts, block.errors, block.uniforms, rounds),
                split,
                (float(parameters.eta), float(parameters.gamma), parameters.answer, parameters.abstain),
                (parameters.record, parameters.draw),
                (answered, probability),
                _room.scratch(arms, differences[n].shape[1], precision),
            )

        list(_pool().map(groups, range(0, streams, WIDEST)))
        list(_pool().map(tile, range(len(differences))))
        return differences, Outcome(answered, probability)

    def init(arms: int, best: NDArray[np.int32], streams: int) -> list[NDArray[np.float64]]:
        groups = -(-len(best) // LANES)
        each = max(1, min(WIDEST // LANES, -(-groups // _threads())))
        widths = [LANES * min(each, groups - first) for first in range(0, groups, each)]
        return [np.zeros((arms, width)) for width in widths]

    return Backend(init, advance, host=True)


def _compile_drawn(rule: Callable) -> Callable:
    """The loop over one block of some copies, with the rule of a learner that charges the drawn arm inside."""
    charge = _compiled(rule)

    @_compiled
    def play(first, last, losses, block, parameters, copies, out, scratch):
        cuts, errors, uniforms, rounds = block
        eta, gamma, answer, abstain = parameters
        record, draw = copies
        answered, probability, middle = out
        weights, sums = scratch
        arms = losses.shape[1]
        for b in range(first, last):
            least = losses[b, 0]
            for k in range(arms):
                least = min(least, losses[b, k])
            for k in range(arms):
                weights[k] = exp(eta * (least - losses[b, k]))
            for row in range(sums.size):
                _sum_row(weights, sums, row)
            for i in range(rounds):
                total = sums[0] * 0
                for row in range(sums.size):
                    total += sums[row]
                target = uniforms[i, draw[b]] * total
                row, below = 0, np.float64(0.0)
                while row < sums.size - 1 and below + sums[row] <= target:
                    below += sums[row]
                    row += 1
                arm, end = row * ROW, min(row * ROW + ROW, arms) - 1
                while arm < end and below + weights[arm] <= target:
                    below += weights[arm]
                    arm += 1
                cut = cuts[i, record[b]]
                mass = np.float64(0.0)
                for above in range(cut // ROW):
                    mass += sums[above]
                for k in range(cut // ROW * ROW, cut):
                    mass += weights[k]
                p = np.float64(weights[arm]) / total
                yes = arm < cut
                error = errors[i, record[b]] if yes else 0.0
                mine = Parameters(eta, gamma, answer[b], abstain[b], 0, 0)
                charged = charge(_where, p, yes, error, mine)
                answered[i, b] = yes
                probability[i, b] = mass / total
                middle[i, b] = below / total + p / 2
                losses[b, arm] += charged
                weights[arm] *= exp(-eta * charged)
                _sum_row(weights, sums, row)

    return play


@_compiled
def _sum_row(weights, sums, row):
    total = weights[0] * 0
    for k in range(row * ROW, row * ROW + ROW):
        total += weights[k]
    sums[row] = total


def drawn(learner: Learner, precision: str) -> Backend:
    """Backend of a learner that charges the arm it drew, as ``dense.drawn``, copy by copy.

    The state holds L [B, H] in float64. Within a block the linear weights stand in rows of 32 with their sums, both
    in ``precision``: a round walks down the sums, then along one row. Inactive rounds come last in a block.
    """
    play = _compile_drawn(learner.rule)

    def advance(losses: Any, block: Block, parameters: Parameters) -> tuple[Any, Outcome]:
        copies, arms = losses.shape
        rounds = int(block.active.sum())
        out = np.zeros((ROUNDS, copies), np.bool_), np.zeros((ROUNDS, copies)), np.zeros((ROUNDS, copies))

        def part(first: int) -> None:
            rows = -(-arms // ROW)
            scratch = np.zeros(rows * ROW, precision), np.zeros(rows, precision)
            play(
                first,
                min(first + 16, copies),
                losses,
                (block.cuts, block.errors, block.uniforms, rounds),
                (float(parameters.eta), float(parameters.gamma), parameters.answer, parameters.abstain),
                (parameters.record, parameters.draw),
                out,
                scratch,
            )

        list(_pool().map(part, range(0, copies, 16)))
        return losses, Outcome(*out)

    def init(arms: int, best: NDArray[np.int32], streams: int) -> NDArray[np.float64]:
        return np.zeros((len(best), arms))

    return Backend(init, advance, host=True)


@_compiled
def _mix(x, y, r):
    x = np.uint32(x + y)
    y = np.uint32(np.uint32(y << np.uint32(r)) | (y >> np.uint32(32 - r)))
    return x, np.uint32(y ^ x)


@_compiled
def _draw(key_x, key_y, block, first, out):
    for i in range(out.shape[0]):
        for u in range(out.shape[1]):
            a, b = key_x[u], key_y[u]
            c = np.uint32(a ^ b ^ np.uint32(0x1BD11BDA))
            x, y = np.uint32(np.uint32(block) + a), np.uint32(np.uint32(first + i) + b)
            x, y = _mix(*_mix(*_mix(*_mix(x, y, 13), 15), 26), 6)
            x, y = np.uint32(x + b), np.uint32(y + c + np.uint32(1))
            x, y = _mix(*_mix(*_mix(*_mix(x, y, 17), 29), 16), 24)
            x, y = np.uint32(x + c), np.uint32(y + a + np.uint32(2))
            x, y = _mix(*_mix(*_mix(*_mix(x, y, 13), 15), 26), 6)
            x, y = np.uint32(x + a), np.uint32(y + b + np.uint32(3))
            x, y = _mix(*_mix(*_mix(*_mix(x, y, 17), 29), 16), 24)
            x, y = np.uint32(x + b), np.uint32(y + c + np.uint32(4))
            x, y = _mix(*_mix(*_mix(*_mix(x, y, 13), 15), 26), 6)
            x, y = np.uint32(x + c), np.uint32(y + a + np.uint32(5))
            out[i, u] = (np.float64(x >> np.uint32(5)) * 67108864.0 + np.float64(y >> np.uint32(6))) * 2.0**-53


def uniforms(keys: tuple[NDArray[np.uint32], NDArray[np.uint32]], block: int) -> NDArray[np.float64]:
    """The uniforms [C, U] of a block, as ``kernels.uniforms`` draws them, to the bit.

    Args:
        keys: two uint32 arrays [U], from ``trial_keys``.
        block: number of the block of 256 rounds.
    """
    out = np.empty((ROUNDS, len(keys[0])))
    step = -(-ROUNDS // _threads())

    def part(first: int) -> None:
        _draw(keys[0], keys[1], block, first, out[first : first + step])

    list(_pool().map(part, range(0, ROUNDS, step)))
    return out


@_compiled
def _tally(answered, errors, record, rounds, marks, totals, sums, marked_answered, marked_wrong):
    for i in range(rounds):
        for b in range(answered.shape[1]):
            yes = answered[i, b]
            totals[b] += yes
            sums[b] += errors[i, record[b]] if yes else 0.0
        for s in range(marks.size):
            if marks[s] == i + 1:
                for b in range(answered.shape[1]):
                    marked_answered[s, b] = totals[b]
                    marked_wrong[s, b] = sums[b]


def tally(block: Block, parameters: Parameters, answered: Any, marks: Any, totals: Any, sums: Any) -> tuple:
    """Add a block's answers [C, B] and their errors to the running sums [B], in the order of rounds.

    Returns:
        The sums after ``marks`` [S] rounds of the block, each [S, B]; zero where the mark is 0.
    """
    marked = np.zeros((len(marks), len(totals)), np.int64), np.zeros((len(marks), len(totals)))
    rounds = int(block.active.sum())
    _tally(answered, block.errors, parameters.record, rounds, marks, totals, sums, *marked)
    return marked
