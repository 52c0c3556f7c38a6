"""The native backend: the same game in compiled loops over tiles of copies, for a CPU.

A round charges one number to the arms below its cut and one to those above, so over C rounds the arms between
two neighbouring cuts keep their ratios, and H arms collapse without loss to at most C + 1 groups. That is done
level after level: H arms to the groups of a span of 1,024 rounds (256 where rates fall), those to the groups of
256 rounds, then of 64, then of 16. Weights are linear within a span; the state, differences of cumulative losses
between neighbouring arms, changes in one place a round. Copies that play the same records share their groups;
otherwise each lane of a tile has its own. Groups and uniforms are found once for all learners (``Records``).
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from typing import Any, NamedTuple

import numba as nb
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic
from numpy.typing import NDArray

from kernels.game import LARGEST_STEP, ROUNDS, TIE, Block, Outcome, Parameters
from kernels.learner import Descent, HostBackend, Learner, Priced, Ranked

LANES = 32  # copies come in multiples of this: whole vectors, whatever else is played
WIDEST = 128  # copies of a tile, at most
LEVELS = (1024, 256, 64, 16)  # rounds over which arms, then groups, keep their ratios
SPAN, INNER = LEVELS[0], LEVELS[-1]
ROW = 32  # arms of a row, where an arm is drawn
PART = 16  # copies that a thread plays at a time, where an arm is drawn
_compiled: Any = partial(nb.njit, nogil=True, error_model="numpy", fastmath={"contract", "nsz"})

_intrinsic: Any = intrinsic


class Tally(NamedTuple):
    """What a sweep keeps of B copies over K blocks, changed in place."""

    marks: NDArray[np.int32]  # [K, S] rounds of each block after which the sums are kept, 0 for none
    answered: NDArray[np.int64]  # [B] so far
    wrong: NDArray[np.float64]  # [B], sum of the errors of answered rounds so far
    marked_answered: NDArray[np.int64]  # [K, S, B]
    marked_wrong: NDArray[np.float64]  # [K, S, B]


@_intrinsic
def _bits(context, x):
    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return nb.int64(nb.float64), generate


@_intrinsic
def _ones(context, x):
    def generate(context, builder, signature, args):
        return builder.ctpop(args[0])

    return nb.int64(nb.int64), generate


@_intrinsic
def _float(context, x):
    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return nb.float64(nb.int64), generate


@_compiled
def exp(x):
    """Exponential of a float64 of at most 700, to 1e-15 relative, in operations that vectorise.

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
def _split(values, size, members, ranks, bits, before):
    """Cut 0..size-1 into groups at the distinct values, in 1..size-1, of some rounds.

    ``members[k]`` is the group of k, and ``ranks[i]`` groups lie below the value of round i. Values are marked in
    ``bits``, of whose words ``before`` keeps a running count. Returns the number of groups.
    """
    words = (size + 63) // 64
    for w in range(words):
        bits[w] = 0
    for value in values:
        bits[value >> 6] |= np.int64(1) << (value & 63)
    group = 0
    for w in range(words):
        before[w] = group
        for k in range(w * 64, min(w * 64 + 64, size)):
            group += (bits[w] >> (k & 63)) & 1
            members[k] = group
    for i in range(values.size):
        value = values[i]
        up_to = (np.int64(2) << (value & 63)) - 1
        ranks[i] = before[value >> 6] + _ones(bits[value >> 6] & up_to)
    return group + 1


@_compiled
def _split_streams(cuts, arms, rounds, sizes, rooms, members_at, counts_at, members, counts, ranks):
    """Groups of every level for some streams.

    Args:
        cuts: [R, N], each in 1..H-1.
        arms: H.
        rounds: that are played, at most N.
        sizes: [L], rounds of a piece of each level, each a multiple of the next.
        rooms: [L], how many there may be to put into groups: arms, or groups of the level above.
        members_at: [L], where a level's members begin, a room for each piece.
        counts_at: [L], where a level's counts begin, one for each piece.
        members: [R, .], filled: the group that each is put into.
        counts: [R, .], filled: the groups of each piece.
        ranks: [R, N], filled: groups of the last level below each round's cut.
    """
    bits, before = np.empty((2, max(arms, sizes[0] + 1) // 64 + 1), np.int64)
    for s in range(cuts.shape[0]):
        for level in range(sizes.size):
            for first in range(0, rounds, sizes[level]):
                here, piece = slice(first, min(first + sizes[level], rounds)), first // sizes[level]
                of = members[s, members_at[level] + piece * rooms[level] :]
                if level == 0:
                    count = _split(cuts[s, here], arms, of, ranks[s, here], bits, before)
                else:
                    whole = counts[s, counts_at[level - 1] + first // sizes[level - 1]]
                    count = _split(ranks[s, here], whole, of, ranks[s, here], bits, before)
                counts[s, counts_at[level] + piece] = count


@_compiled
def _collapse(weights, members, size, count, groups):
    """Sum the weights [., L] over groups that all lanes share."""
    for g in range(count):
        for lane in range(groups.shape[1]):
            groups[g, lane] = 0
    for k in range(size):
        g = members[k]
        for lane in range(groups.shape[1]):
            groups[g, lane] += weights[k, lane]


@_compiled
def _spread(weights, members, size, count, after, before):
    """Multiply the weights [., L] by the change of their groups, which all lanes share; ``before`` is used up."""
    for g in range(count):
        for lane in range(weights.shape[1]):
            then = before[g, lane]
            before[g, lane] = after[g, lane] / then if then > 0 else then
    for k in range(size):
        g = members[k]
        for lane in range(weights.shape[1]):
            weights[k, lane] *= before[g, lane]


@_compiled
def _collapse_each(weights, members, at, sizes, record, most, groups):
    """Sum the weights [L, .] over each lane's own groups, into ``groups``; zero beyond its last, to ``most``."""
    for lane in range(groups.shape[0]):
        own = record[lane]
        for g in range(most):
            groups[lane, g] = 0
        for k in range(sizes[lane]):
            groups[lane, members[own, at + k]] += weights[lane, k]


@_compiled
def _spread_each(weights, members, at, sizes, record, most, after, before):
    """Multiply the weights [L, .] by the change of each lane's own groups; ``before`` is used up."""
    for lane in range(weights.shape[0]):
        own = record[lane]
        for g in range(most):
            then = before[lane, g]
            before[lane, g] = after[lane, g] / then if then > 0 else then
        for k in range(sizes[lane]):
            weights[lane, k] *= before[lane, members[own, at + k]]


@_compiled
def _sizes(counts_at, sizes, level, first, counts, record, arms, many):
    """How many there are to put into groups, for each lane, into ``many`` [L]; returns the first lane's."""
    for lane in range(record.size):
        if level == 0:
            many[lane] = arms
        else:
            many[lane] = counts[record[lane], counts_at[level - 1] + first // sizes[level - 1]]
    return many[0]


@_compiled
def _copy(values, into):
    for k in range(values.shape[0]):
        for j in range(values.shape[1]):
            into[k, j] = values[k, j]


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


@_compiled
def _tally(answered, errors, first, last, block, tally, o0, l0, record):
    """Add a block's answers and their errors to the sums, in the order of rounds, and keep them at marks."""
    marks, totals, sums, marked_answered, marked_wrong = tally
    for i in range(first, last):
        for lane in range(record.size):
            yes = answered[i % answered.shape[0], o0 + lane]
            totals[l0 + lane] += yes
            sums[l0 + lane] += errors[record[lane], i] if yes else 0.0
        for s in range(marks.shape[1]):
            if marks[block, s] == i - first + 1:
                for lane in range(record.size):
                    marked_answered[block, s, l0 + lane] = totals[l0 + lane]
                    marked_wrong[block, s, l0 + lane] = sums[l0 + lane]


class _Sides(NamedTuple):
    """How a kind of rule with two sides plays in a tile, compiled.

    ``begin(state, eta, u, e, gap, weights)`` fills the weights [H, L] of a span, in which ``gap`` [L] is set as
    ``charge`` needs it; ``charge(state, l0, eta, gamma, parameters, u, e, gap, low, high)`` plays a round, with the
    uniforms ``u``, the errors ``e`` and the sums of weights below and above, leaves the factors of both there, the
    probability of answering in ``e`` and what it keeps in ``gap``; ``keep(state, cut, lane, gap)`` keeps the change
    of a lane; ``end(state, weights, gap)`` keeps the weights of a span, if ``spreads``.
    """

    begin: Callable
    charge: Callable
    keep: Callable
    end: Callable
    spreads: bool


def _charged(rule: Callable, full_feedback: bool) -> _Sides:
    """Sides of kind ``sided``: the state is differences of losses, of which a round changes one."""
    charges = _compiled(rule)

    @_compiled
    def begin(differences, eta, u, e, gap, weights):
        _weigh(differences, eta, u, e, weights)

    @_compiled
    def charge(differences, l0, eta, gamma, parameters, u, e, gap, low, high):
        alpha, answer, abstain, _, _ = parameters
        for lane in range(low.size):
            total = np.float64(low[lane]) + np.float64(high[lane])
            P, Q = np.float64(low[lane]) / total, np.float64(high[lane]) / total
            yes = u[lane] < P
            error = e[lane] if yes or full_feedback else 0.0
            own = Parameters(eta, gamma, alpha[l0 + lane], answer[l0 + lane], abstain[l0 + lane], 0, 0)
            under, over = charges(_where, P, Q, yes, error, own)
            gap[lane] = under - over
            factor = exp(-eta * abs(gap[lane]))
            low[lane] = factor if gap[lane] > 0 else 1.0
            high[lane] = 1.0 if gap[lane] > 0 else factor
            e[lane] = P

    @_compiled
    def keep(differences, cut, lane, gap):
        differences[cut, lane] -= gap[lane]

    @_compiled
    def end(differences, weights, gap):
        pass

    return _Sides(begin, charge, keep, end, spreads=False)


def _priced(rule: Priced) -> _Sides:
    """Sides of kind ``priced``: the state is weights of sum 1, then the four numbers of the memory.

    ``gap`` is the last arm's weight, which is kept apart from the others.
    """
    play, evenly, memory_of = _compiled(rule.play), _compiled(rule.even), type(rule.start)

    @_compiled
    def begin(state, eta, u, e, gap, weights):
        arms = weights.shape[0]
        for k in range(arms - 1):
            for lane in range(gap.size):
                weights[k, lane] = state[k, lane]
        for lane in range(gap.size):
            weights[arms - 1, lane] = 0
            gap[lane] = state[arms - 1, lane]

    @_compiled
    def charge(state, l0, eta, gamma, parameters, u, e, gap, low, high):
        alpha, answer, abstain, _, _ = parameters
        memory = state[state.shape[0] - 4 :]
        for lane in range(low.size):
            below, above = np.float64(low[lane]), np.float64(high[lane]) + gap[lane]
            total = below + above
            own = Parameters(eta, gamma, alpha[l0 + lane], answer[l0 + lane], abstain[l0 + lane], 0, 0)
            before = memory_of(memory[0, lane], memory[1, lane], memory[2, lane], memory[3, lane])
            P = below / total
            chance, under, over, share, then = play(_where, exp, P, u[lane], e[lane], True, before, own)
            under, over = exp(-under) / total, exp(-over) / total
            gap[lane] = gap[lane] * over + share * (below * under + above * over)
            low[lane] = under
            high[lane] = over
            e[lane] = chance
            memory[0, lane], memory[1, lane], memory[2, lane], memory[3, lane] = then

    @_compiled
    def keep(state, cut, lane, gap):
        pass

    @_compiled
    def end(state, weights, gap):
        arms, lanes = weights.shape
        total = np.copy(gap)
        memory = state[arms:]
        for k in range(arms - 1):
            for lane in range(lanes):
                total[lane] += weights[k, lane]
        for lane in range(lanes):
            before = memory_of(memory[0, lane], memory[1, lane], memory[2, lane], memory[3, lane])
            even = evenly(_where, before)
            total[lane] = 1.0 / (total[lane] * (1.0 + even))
            each = even / (arms * (1.0 + even))
            state[arms - 1, lane] = gap[lane] * total[lane] + each
            gap[lane] = each
        for k in range(arms - 1):
            for lane in range(lanes):
                state[k, lane] = weights[k, lane] * total[lane] + gap[lane]

    return _Sides(begin, charge, keep, end, spreads=True)


def _compile(sides: _Sides) -> Callable:
    """The loop over the rounds of a tile, with a learner's rule inside."""
    begin, charge, keep, finish, spreads = sides

    @_compiled
    def play(shared, l0, state, records, split, rates, parameters, tally, out, scratch):
        cuts, errors, uniforms, rounds = records
        sizes, rooms, members_at, counts_at, members, counts, ranks = split
        etas, gammas = rates
        record, draw = parameters[3:]
        o0, answered, probability = out
        weights, after, before, each, low, high, rank, mine, many, u, e, gap = scratch
        arms, lanes, last = weights.shape[0], low.size, sizes.size - 1
        for lane in range(lanes):
            mine[lane] = record[l0 + lane]
        own = mine[0]

        for first in range(0, rounds, INNER):
            start = first // sizes[0] * sizes[0]
            end = min(start + sizes[0], rounds)
            eta, gamma = etas[start // ROUNDS], gammas[start // ROUNDS]
            if first == start:
                begin(state, eta, u, e, gap, weights)
            for level in range(sizes.size):
                if first % sizes[level] == 0:
                    at = members_at[level] + first // sizes[level] * rooms[level]
                    size = _sizes(counts_at, sizes, level, first, counts, mine, arms, many)
                    here, most = after[level], sizes[level] + 1
                    if shared:
                        count, of = counts[own, counts_at[level] + first // sizes[level]], members[own, at:]
                        if level == 0:
                            _collapse(weights, of, size, count, here)
                        else:
                            _collapse(after[level - 1], of, size, count, here)
                    elif level == 0:
                        _collapse_each(weights.T, members, at, many, mine, most, here)
                    else:
                        _collapse_each(after[level - 1], members, at, many, mine, most, here)
                    if shared:
                        _copy(here[:count], before[level])
                    else:
                        _copy(here[:, :most], before[level])
            if shared:
                inner, count = after[last], counts[own, counts_at[last] + first // INNER]
            else:
                inner, count = each, INNER + 1
                _copy(after[last, :, :count].T, inner)
            for i in range(first, min(first + INNER, end)):
                for lane in range(lanes):
                    rank[lane] = ranks[mine[lane], i]
                    u[lane] = uniforms[i, draw[l0 + lane]]
                    e[lane] = errors[mine[lane], i]
                _masses(inner, count, rank, shared, low, high)
                charge(state, l0, eta, gamma, parameters, u, e, gap, low, high)
                row, other = i % answered.shape[0], i % probability.shape[0]
                for lane in range(lanes):
                    answered[row, o0 + lane] = u[lane] < e[lane]
                    probability[other, o0 + lane] = e[lane]
                if shared:
                    cut = cuts[own, i]
                    for lane in range(lanes):
                        keep(state, cut, lane, gap)
                else:
                    for lane in range(lanes):
                        keep(state, cuts[mine[lane], i], lane, gap)
                _shrink(inner, count, rank, shared, low, high)
            if not shared:
                _copy(inner, after[last].T)
            done = min(first + INNER, end)
            for level in range(last, -1, -1):
                if spreads if done == end else (level > 0 and done % sizes[level] == 0):
                    at = members_at[level] + first // sizes[level] * rooms[level]
                    size = _sizes(counts_at, sizes, level, first, counts, mine, arms, many)
                    now, then, most = after[level], before[level], sizes[level] + 1
                    if shared:
                        count, of = counts[own, counts_at[level] + first // sizes[level]], members[own, at:]
                        if level == 0:
                            _spread(weights, of, size, count, now, then)
                        else:
                            _spread(after[level - 1], of, size, count, now, then)
                    elif level == 0:
                        _spread_each(weights.T, members, at, many, mine, most, now, then)
                    else:
                        _spread_each(after[level - 1], members, at, many, mine, most, now, then)
            if spreads and done == end:
                finish(state, weights, gap)
            if done % ROUNDS == 0 or done == rounds:
                block = (done - 1) // ROUNDS
                _tally(answered, errors, block * ROUNDS, done, block, tally, o0, l0, mine)

    return play


def _threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_threads())


class Records:
    """K blocks of rounds, made ready for every learner that plays them on this backend.

    Uniforms come with the blocks; groups of arms are found when a learner first asks for them.
    """

    def __init__(self, blocks: Block) -> None:
        """Take blocks: cuts and errors [K, C, R], uniforms [K, C, U], and active [K, C], a prefix of the rounds."""
        streams = blocks.cuts.shape[-1]
        self.rounds = int(blocks.active.sum())
        room = streams, blocks.active.size + INNER  # rows of a whole power of two would share their cache lines
        self.cuts, self.errors = np.ones(room, np.int32), np.zeros(room)
        self.cuts[:, :-INNER] = blocks.cuts.transpose(2, 0, 1).reshape(streams, -1)
        self.errors[:, :-INNER] = blocks.errors.transpose(2, 0, 1).reshape(streams, -1)
        self.uniforms = np.ascontiguousarray(blocks.uniforms.reshape(-1, blocks.uniforms.shape[-1]))
        self.arrays = self.cuts, self.errors, self.uniforms, self.rounds
        self._groups: dict[tuple[int, int], tuple] = {}

    def groups(self, arms: int, levels: Sequence[int]) -> tuple:
        """What ``_split_streams`` takes and fills for some levels, from ``sizes`` on."""
        if (arms, len(levels)) not in self._groups:
            streams, sizes = len(self.cuts), np.array(levels)
            pieces, rooms = -(-self.cuts.shape[1] // sizes), np.array([arms, *sizes[:-1] + 1])
            members_at, counts_at = (np.cumsum([0, *x]) for x in (pieces * rooms, pieces))
            filled = (
                np.zeros((streams, members_at[-1]), np.uint16),
                np.zeros((streams, counts_at[-1]), np.int32),
                np.zeros(self.cuts.shape, np.int32),
            )
            at = sizes, rooms, members_at[:-1], counts_at[:-1]

            def some(first: int) -> None:
                here = slice(first, first + LANES)
                _split_streams(self.cuts[here], arms, self.rounds, *at, *(x[here] for x in filled))

            list(_pool().map(some, range(0, streams, LANES)))
            self._groups[arms, len(levels)] = *at, *filled
        return self._groups[arms, len(levels)]


def _in_parts(copies: int, each: int, part: Callable[[int, int], object]) -> list[Future]:
    """Start to play copies, so many at a time: ``part(first, last)``."""
    return [_pool().submit(part, first, min(first + each, copies)) for first in range(0, copies, each)]


class _Room(threading.local):
    """Scratch arrays of a thread, kept from call to call."""

    def __init__(self) -> None:
        self.held: dict[tuple, Any] = {}

    def scratch(self, make: Callable[..., tuple], *sizes: Any) -> tuple:
        if (make, *sizes) not in self.held:
            self.held[make, *sizes] = make(*sizes)
        return self.held[make, *sizes]


_room = _Room()


def _tile_room(arms: int, lanes: int, precision: str, shared: bool) -> tuple:
    room = SPAN + 16, lanes  # not a power of two, lest the rows of lanes share their cache lines
    groups = [np.empty((len(LEVELS), *(room if shared else room[::-1])), precision) for _ in range(2)]
    rows = [np.empty(lanes, kind) for kind in (precision, precision, *3 * [np.int64], *3 * [np.float64])]
    return np.empty((arms, lanes), precision), *groups, np.empty((INNER + 1, lanes), precision), *rows


def _outcome_room(lanes: int, kinds: int) -> tuple:
    return np.empty((ROUNDS, lanes), np.bool_), *(np.empty((1, lanes)) for _ in range(kinds))


def _out(outcome: Outcome | None, first: int, lanes: int, kinds: int) -> tuple:
    """Where a tile writes what it did: the given arrays from its first copy on, or its thread's own room."""
    if outcome is None:
        return 0, *_room.scratch(_outcome_room, lanes, kinds)
    return first, *outcome[: kinds + 1]


def sided(learner: Learner, precision: str) -> HostBackend:
    """Backend of a learner that charges one number below the cut and one above, as ``dense.sided``.

    The state holds ``L_k - L_{k-1}`` in float64, an array [H, L] for each tile of L copies: a round moves one entry
    of each lane. Weights and their sums are in ``precision``. Copies come in multiples of 32.
    """

    def wide(eta: NDArray[np.float64], gamma: NDArray[np.float64]) -> bool:
        steady = (eta == eta[0]).all() and (gamma == gamma[0]).all()
        return bool(steady and precision == "float64" and eta[0] * SPAN <= LARGEST_STEP[precision])

    return _in_tiles(_charged(learner.rule, learner.feedback == "full"), precision, wide, np.zeros, 0)


def priced(learner: Learner, precision: str) -> HostBackend:
    """Backend of a learner with a memory, whose mass drifts to the last arm, as ``compressed.priced``.

    The state holds the weights in float64, their sum 1, and then the memory, an array [H + 4, L] for each tile.
    """

    def column(arms: int) -> NDArray[np.float64]:
        return np.concatenate([np.full(arms, 1 / arms), learner.rule.start])

    return _in_tiles(_priced(learner.rule), precision, lambda eta, gamma: False, column, 4)


def _in_tiles(sides: _Sides, precision: str, wide: Callable, column: Callable, more: int) -> HostBackend:
    """Backend whose state is an array [H + more, L] for each tile of L copies, each a column.

    Args:
        sides: how a round is played.
        precision: of weights and their sums.
        wide: whether arms keep their ratios over 1,024 rounds rather than 256, from the rates [K].
        column: what a copy holds before round 1, from the number of arms.
        more: rows beyond the arms.
    """
    tile = _compile(sides)

    def play(
        state: Any, records: Records, parameters: Parameters, tally: Tally, outcome: Outcome | None = None
    ) -> list[Future]:
        rates = np.array(parameters.eta, np.float64), np.array(parameters.gamma, np.float64)
        arms = len(state[0]) - more
        split = records.groups(arms, LEVELS if wide(*rates) else LEVELS[1:])
        first_lanes = np.cumsum([0, *(part.shape[1] for part in state)])

        def some(n: int) -> None:
            first, lanes = int(first_lanes[n]), state[n].shape[1]
            shared = np.ptp(parameters.record[first : first + lanes]) == 0
            tile(
                bool(shared),
                first,
                state[n],
                records.arrays,
                split,
                rates,
                parameters[2:],
                tally,
                _out(outcome, first, lanes, 1),
                _room.scratch(_tile_room, arms, lanes, precision, bool(shared)),
            )

        return [_pool().submit(some, n) for n in range(len(state))]

    def init(arms: int, best: NDArray[np.int32], streams: int) -> list[NDArray[np.float64]]:
        groups = -(-len(best) // LANES)
        widest = WIDEST // LANES if streams == 1 else 1
        each = max(1, min(widest, -(-groups // _threads())))
        widths = [LANES * min(each, groups - first) for first in range(0, groups, each)]
        return [np.repeat(column(arms)[:, None], width, axis=1) for width in widths]

    return HostBackend(init, play, middles=False)


def _compile_drawn(rule: Callable) -> Callable:
    """The loop over the rounds of some copies, with the rule of a learner that charges the drawn arm inside."""
    charge = _compiled(rule)

    @_compiled
    def play(first, last, losses, records, rates, parameters, tally, out, scratch):
        cuts, errors, uniforms, rounds = records
        etas, gammas = rates
        alpha, answer, abstain, record, draw = parameters
        o0, answered, probability, middle = out
        weights, sums = scratch
        arms = losses.shape[1]
        for b in range(first, last):
            o = o0 + b - first
            for i in range(rounds):
                eta, gamma = etas[i // ROUNDS], gammas[i // ROUNDS]
                if i % ROUNDS == 0:
                    least = losses[b, 0]
                    for k in range(arms):
                        least = min(least, losses[b, k])
                    for k in range(arms):
                        weights[k] = exp(eta * (least - losses[b, k]))
                    for row in range(sums.size):
                        _sum_row(weights, sums, row)
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
                cut = cuts[record[b], i]
                mass = np.float64(0.0)
                for above in range(cut // ROW):
                    mass += sums[above]
                for k in range(cut // ROW * ROW, cut):
                    mass += weights[k]
                p = np.float64(weights[arm]) / total
                yes = arm < cut
                error = errors[record[b], i] if yes else 0.0
                mine = Parameters(eta, gamma, alpha[b], answer[b], abstain[b], 0, 0)
                charged = charge(_where, p, yes, error, mine)
                answered[i % answered.shape[0], o] = yes
                probability[i % probability.shape[0], o] = mass / total
                middle[i % middle.shape[0], o] = below / total + p / 2
                losses[b, arm] += charged
                weights[arm] *= exp(-eta * charged)
                _sum_row(weights, sums, row)
                if i % ROUNDS == ROUNDS - 1 or i == rounds - 1:
                    start = i // ROUNDS * ROUNDS
                    _tally(answered, errors, start, i + 1, i // ROUNDS, tally, o, b, record[b : b + 1])

    return play


@_compiled
def _sum_row(weights, sums, row):
    total = weights[0] * 0
    for k in range(row * ROW, row * ROW + ROW):
        total += weights[k]
    sums[row] = total


def _rows_room(arms: int, precision: str) -> tuple:
    rows = -(-arms // ROW)
    return np.zeros(rows * ROW, precision), np.zeros(rows, precision)


def drawn(learner: Learner, precision: str) -> HostBackend:
    """Backend of a learner that charges the arm it drew, as ``dense.drawn``, copy by copy.

    The state holds L [B, H] in float64. Within a block the linear weights stand in rows of 32 with their sums, both
    in ``precision``: a round walks down the sums, then along one row.
    """
    part = _compile_drawn(learner.rule)

    def play(
        losses: Any, records: Records, parameters: Parameters, tally: Tally, outcome: Outcome | None = None
    ) -> list[Future]:
        copies, arms = losses.shape
        rates = np.array(parameters.eta, np.float64), np.array(parameters.gamma, np.float64)

        def some(first: int, last: int) -> None:
            part(
                first,
                last,
                losses,
                records.arrays,
                rates,
                parameters[2:],
                tally,
                _out(outcome, first, PART, 2),
                _room.scratch(_rows_room, arms, precision),
            )

        return _in_parts(copies, PART, some)

    def init(arms: int, best: NDArray[np.int32], streams: int) -> NDArray[np.float64]:
        return np.zeros((len(best), arms))

    return HostBackend(init, play, middles=True)


def _compile_descent(rule: Descent) -> Callable:
    """The loop over the rounds of some copies that each move one threshold."""
    gradient = _compiled(rule.gradient)

    @_compiled
    def play(first, last, state, records, rates, parameters, tally, out):
        cuts, errors, _, rounds = records
        etas, gammas = rates
        alpha, answer, abstain, record, _ = parameters
        o0, answered, probability = out
        marks, totals, sums, marked_answered, marked_wrong = tally
        lanes = last - first
        z, cut, e, count, wrong = np.empty((5, LANES))
        z[:lanes], count[:lanes], wrong[:lanes] = state[0, first:last], totals[first:last], sums[first:last]
        for i in range(rounds):
            block = i // ROUNDS
            eta, gamma = etas[block], gammas[block]
            for lane in range(lanes):
                cut[lane] = cuts[record[first + lane], i]
                e[lane] = errors[record[first + lane], i]
            for lane in range(lanes):
                b = first + lane
                yes = z[lane] + TIE < cut[lane]
                own = Parameters(eta, gamma, alpha[b], answer[b], abstain[b], 0, 0)
                z[lane] = max(z[lane] - eta * gradient(_where, yes, e[lane], state[1, b], own), 0.0)
                cut[lane] = 1.0 if yes else 0.0
                count[lane] += cut[lane]
                wrong[lane] += e[lane] if yes else 0.0
            if probability.shape[0] > 1:  # they are wanted
                for lane in range(lanes):
                    answered[i, o0 + lane] = cut[lane] > 0.0
                    probability[i, o0 + lane] = cut[lane]
            for s in range(marks.shape[1]):
                if marks[block, s] == i - block * ROUNDS + 1:
                    marked_answered[block, s, first:last] = count[:lanes].astype(np.int64)
                    marked_wrong[block, s, first:last] = wrong[:lanes]
        state[0, first:last], sums[first:last] = z[:lanes], wrong[:lanes]
        totals[first:last] = count[:lanes].astype(np.int64)

    return play


def descent(learner: Learner, precision: str) -> HostBackend:
    """Backend of a learner that moves one threshold by gradient steps, as ``dense.descent``.

    The state holds z and H in float64, [2, B].
    """
    part = _compile_descent(learner.rule)

    def play(
        state: Any, records: Records, parameters: Parameters, tally: Tally, outcome: Outcome | None = None
    ) -> list[Future]:
        copies = state.shape[1]
        rates = np.array(parameters.eta, np.float64), np.array(parameters.gamma, np.float64)

        def some(first: int, last: int) -> None:
            part(
                first,
                last,
                state,
                records.arrays,
                rates,
                parameters[2:],
                tally,
                _out(outcome, first, LANES, 1),
            )

        return _in_parts(copies, LANES, some)

    def init(arms: int, best: NDArray[np.int32], streams: int) -> NDArray[np.float64]:
        return np.repeat(np.array([[learner.rule.start(arms)], [arms]]), len(best), axis=1)

    return HostBackend(init, play, middles=False, draws=False)


def _compile_ranked(rule: Ranked) -> Callable:
    """The loop over the rounds of some copies that each answer by rank; counts are summed up in groups of arms."""
    chance, learn, kept, state_of = _compiled(rule.chance), _compiled(rule.learn), rule.kept, type(rule.start)

    @_compiled
    def play(first, last, state, counts, records, parameters, tally, out):
        cuts, errors, uniforms, rounds = records
        alpha, _, _, record, draw = parameters
        o0, answered, probability = out
        arms = counts.shape[1]
        size = int(np.sqrt(arms)) + 1
        sums = np.empty(size)  # [arms / size and more]
        for b in range(first, last):
            o, x = o0 + b - first, state[:, b]
            own, one, total = state_of(x[0], x[1], x[2], x[3], x[4], x[5], x[6]), 1.0, 0.0
            for i in range(rounds):
                if i % ROUNDS == 0:
                    sums[:], total, one = 0.0, 0.0, 1.0
                    for k in range(arms):
                        sums[k // size] += counts[b, k]
                        total += counts[b, k]
                cut = cuts[record[b], i]
                group, low = cut // size, 0.0
                for k in range(group):
                    low += sums[k]
                for k in range(group * size, cut):
                    low += counts[b, k]
                P = chance(_where, own, (low + counts[b, cut]) / total, low / total)
                yes = uniforms[i, draw[b]] < P
                own = learn(_where, own, yes, errors[record[b], i], alpha[b])
                one /= kept
                counts[b, cut] += one
                sums[group] += one
                total += one
                answered[i % answered.shape[0], o] = yes
                probability[i % probability.shape[0], o] = P
                if i % ROUNDS == ROUNDS - 1 or i == rounds - 1:
                    start = i // ROUNDS * ROUNDS
                    _tally(answered, errors, start, i + 1, i // ROUNDS, tally, o, b, record[b : b + 1])
                    for k in range(arms):
                        counts[b, k] /= one
            x[0], x[1], x[2], x[3], x[4], x[5], x[6] = own

    return play


def ranked(learner: Learner, precision: str) -> HostBackend:
    """Backend of a learner that answers by the rank of a score, as ``dense.ranked``, copy by copy.

    It holds the rule's state [7, B] and the counts [B, H]. O(sqrt(H)) a round.
    """
    part = _compile_ranked(learner.rule)

    def play(
        held: Any, records: Records, parameters: Parameters, tally: Tally, outcome: Outcome | None = None
    ) -> list[Future]:
        state, counts = held

        def some(first: int, last: int) -> None:
            out = _out(outcome, first, PART, 1)
            part(first, last, state, counts, records.arrays, parameters[2:], tally, out)

        return _in_parts(len(counts), PART, some)

    def init(arms: int, best: NDArray[np.int32], streams: int) -> tuple[NDArray, NDArray]:
        counts = np.full((len(best), arms), learner.rule.prior)
        counts[:, 0] = 0.0
        return np.repeat(np.array(learner.rule.start)[:, None], len(best), axis=1), counts

    return HostBackend(init, play, middles=False)


@_compiled
def _mix(x, y, r):
    x = np.uint32(x + y)
    y = np.uint32(np.uint32(y << np.uint32(r)) | (y >> np.uint32(32 - r)))
    return x, np.uint32(y ^ x)


@_compiled
def _draw(key_x, key_y, block, out):
    for i in range(out.shape[0]):
        for u in range(out.shape[1]):
            a, b = key_x[u], key_y[u]
            c = np.uint32(a ^ b ^ np.uint32(0x1BD11BDA))
            x, y = np.uint32(np.uint32(block) + a), np.uint32(np.uint32(i) + b)
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


def uniforms(
    keys: tuple[NDArray[np.uint32], NDArray[np.uint32]], blocks: NDArray[np.uint32]
) -> NDArray[np.float64]:
    """The uniforms [K, C, U] of some blocks, as ``kernels.uniforms`` draws them, to the bit.

    Args:
        keys: two uint32 arrays [U], from ``trial_keys``.
        blocks: [K], numbers of the blocks of 256 rounds.
    """
    out = np.empty((len(blocks), ROUNDS, len(keys[0])))
    list(_pool().map(lambda k: _draw(keys[0], keys[1], blocks[k], out[k]), range(len(blocks))))
    return out


@_compiled
def count(cuts, errors, counts, wrong):
    """Count the rounds of some streams by cut, and sum their errors, in the order of rounds.

    Args:
        cuts: [R, N] int32 in 0..H-1.
        errors: [R, N] float64.
        counts: [R, H] int64, added to.
        wrong: [R, H] float64, added to.
    """
    for s in range(cuts.shape[0]):
        for i in range(cuts.shape[1]):
            counts[s, cuts[s, i]] += 1
            wrong[s, cuts[s, i]] += errors[s, i]
