"""The kernels of numba-cuda and their arrays; imported only if a CUDA backend is used.

A block of threads is one warp: 32 copies with a thread each, or teams of 16 or 32 lanes with a copy each. In the
state, copies are the last axis for threads and the first for teams, so that neighbouring lanes always read
neighbouring addresses. The loops are those of the paper's appendix "Algorithms".
"""

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from exaul.kernels import exponential
from exaul.kernels.backends.cuda import loops, records, toolchain
from exaul.kernels.backends.cuda.loops import StepKernel, WorkspaceSizes
from exaul.kernels.backends.cuda.target import Function, Target, ThreadTeam, single_thread_team
from exaul.kernels.game import ROUNDS, Copies

cuda = toolchain.load()
libdevice, extending = import_module("numba.cuda.libdevice"), import_module("numba.cuda.extending")
WARP = 32
_ALL = 0xFFFFFFFF
_device = cuda.jit(device=True)


@_device
def _word(x):
    return np.uint32(x)


@_device
def _real(x):
    return np.float64(x)


@_device
def _number32(x):
    return np.float32(x)


@_device
def _bits(x):
    return libdevice.double_as_longlong(x)


@_device
def _float(x):
    return libdevice.longlong_as_double(x)


_exp = exponential.compile_for(_device, _bits, _float)


@_device
def _log(x):
    return math.log(x)


@extending.intrinsic
def _approximate_reciprocal(context, x):
    """Return 1 / x to 20 bits, by one instruction without a branch."""

    def generate(context, builder, signature, arguments):
        function = ir.FunctionType(ir.DoubleType(), [ir.DoubleType()])
        return builder.asm(function, "rcp.approx.ftz.f64 $0, $1;", "=d,d", arguments, False)

    return types.float64(types.float64), generate


@_device
def _reciprocal(x):
    # 1 / x compiles to these steps and a branch for numbers out of range. Nothing overlaps a branch.
    y = _approximate_reciprocal(x)
    error = libdevice.fma(-x, y, 1.0)
    y = libdevice.fma(y, libdevice.fma(error, error, error), y)
    return libdevice.fma(y, libdevice.fma(-x, y, 1.0), y)


@_device
def _ones(x):
    return cuda.popc(x)


@_device
def _add(array, index, x):
    cuda.atomic.add(array, index, x)  # a write without a read: nothing waits for the old value


@_device
def _set(words, index, bits):
    words[index] = np.uint32(words[index] | bits)


@_device
def _set_together(words, index, bits):
    cuda.atomic.or_(words, index, bits)


def _team(lanes: int) -> ThreadTeam:
    """Return the team of G lanes, a power of two up to 32: lanes 0..G-1, G..2G-1, ... of a warp are a team each.

    Teams of a warp exchange nothing and may be in different loops, so exchanges name the lanes of the team alone.
    """
    steps, all_of_team = lanes.bit_length() - 1, _ALL >> (WARP - lanes)

    @_device
    def members():
        return np.uint32(all_of_team) << np.uint32(cuda.laneid & ~(lanes - 1)) if lanes < WARP else _ALL

    @_device
    def lane():
        return np.int64(np.uint32(cuda.laneid & (lanes - 1)))  # the compiler then knows that it is not negative

    @_device
    def total(x):
        # A butterfly: every lane adds the same pairs, so all lanes get the same bits.
        for n in range(steps):
            x += cuda.shfl_xor_sync(members(), x, 1 << n)
        return x

    @_device
    def both(x, y, many):
        # The exchanges of x and y do not depend on each other, so their latencies overlap.
        step = many >> 1
        while step > 0:
            other_x, other_y = cuda.shfl_xor_sync(members(), x, step), cuda.shfl_xor_sync(members(), y, step)
            x += other_x
            y += other_y
            step >>= 1
        return x, y

    @_device
    def scan(x):
        for n in range(steps):
            before = cuda.shfl_up_sync(members(), x, 1 << n)
            if lane() >= 1 << n:  # lanes below get an x that must not count: their own, or that of another team
                x += before
        return x

    @_device
    def pick(x, lane):
        return cuda.shfl_sync(members(), x, (cuda.laneid & ~(lanes - 1)) + lane)

    @_device
    def count(condition):
        return cuda.popc(cuda.ballot_sync(members(), condition))

    @_device
    def sync():
        cuda.syncwarp(members())

    return ThreadTeam(lanes, lane, total, both, scan, pick, count, sync)


def target(lanes: int, precision: str) -> Target:
    """Return the target of numba-cuda for G lanes per copy, and ``float64`` or ``float32`` weights."""
    team = single_thread_team(_device) if lanes == 1 else _team(lanes)
    number = _real if precision == "float64" else _number32
    mark = _set if lanes == 1 else _set_together
    return Target(_device, _word, _real, number, _exp, _log, _reciprocal, _ones, _add, mark, team)


def kernel(
    loop: Callable[[Target, bool], StepKernel],
    sizes: Callable[[int], WorkspaceSizes],
    supply: Function,
    pools: int,
    lanes: int,
    precision: str,
    outcomes: bool,
) -> Function:
    """Return the kernel that simulates a chunk.

    Args:
        loop: of the ``RuleKernel``.
        sizes: of the ``RuleKernel``.
        supply: ``supply(target)`` returns the ``RecordSource``.
        pools: P.
        lanes: G of a copy, 1, 16 or 32.
        precision: of weights and their sums.
        outcomes: whether outcomes are stored.

    Returns:
        ``kernel(state, arms, wide, source, schedule, copies, sums, outcome)``. The state is [rows, B], or [B, rows]
        for teams; ``wide`` are the last arrays of a ``Workspace``, for all copies, as of ``loops.wide_arrays``.
    """
    on = target(lanes, precision)
    simulate_copy = loops.compile_for(on, loop(on, outcomes), supply(on), outcomes)
    number, piece, counters_size = np.dtype(precision).type, loops.PIECE, 4 * pools
    ranks, words, sums_size, mine_size = sizes(lanes)[:4]

    def by_thread(state, arms, wide, source, schedule, copies, sums, outcome):
        b = cuda.grid(1)
        if b < state.shape[1]:
            workspace = loops.Workspace(
                cuda.local.array(piece, np.float64),
                cuda.local.array(1, np.int32),
                cuda.local.array(1, np.float64),
                cuda.local.array(ranks, np.int32),
                cuda.local.array(words, np.uint32),
                cuda.local.array(words, np.int32),
                cuda.local.array(sums_size, number),
                cuda.local.array(mine_size, number),
                cuda.local.array(counters_size, np.uint32),
                cuda.local.array(ROUNDS, np.int32),
                cuda.local.array(ROUNDS, np.float64),
                wide[2][:, b],
                wide[3][:, b],
                wide[4][b],
            )
            simulate_copy(b, state[:, b], arms, workspace, source, schedule, copies, sums, outcome)

    # The arrays of the teams of a warp follow each other, with one element between them. So teams that read the
    # same element of their arrays, as in every round, use different banks of the memory.
    teams = WARP // lanes
    piece_step, rank_step, word_step, sums_step = (np.uint32(n + 1) for n in (piece, ranks, words, sums_size))
    all_pieces, all_ranks, all_words, all_sums = (teams * (n + 1) for n in (piece, ranks, words, sums_size))

    def by_team(state, arms, wide, source, schedule, copies, sums, outcome):
        team = np.uint32(np.uint32(cuda.laneid) // np.uint32(lanes))
        b = np.uint32(np.uint32(cuda.blockIdx.x) * np.uint32(teams) + team)
        uniforms = cuda.shared.array(all_pieces, np.float64)
        cuts = cuda.shared.array(all_pieces, np.int32)
        errors = cuda.shared.array(all_pieces, np.float64)
        own_ranks = cuda.shared.array(all_ranks, np.int32)
        own_words = cuda.shared.array(all_words, np.uint32)
        counts_before = cuda.shared.array(all_words, np.int32)
        own_sums = cuda.shared.array(all_sums, number)
        if b < state.shape[0]:
            piece_at, word_at = np.uint32(team * piece_step), np.uint32(team * word_step)
            rank_at, sums_at = np.uint32(team * rank_step), np.uint32(team * sums_step)
            workspace = loops.Workspace(
                uniforms[piece_at:],
                cuts[piece_at:],
                errors[piece_at:],
                own_ranks[rank_at : np.uint32(rank_at + ranks)],
                own_words[word_at:],
                counts_before[word_at:],
                own_sums[sums_at:],
                cuda.local.array(mine_size, number),
                cuda.local.array(counters_size, np.uint32),
                wide[0][b],
                wide[1][b],
                wide[2][b],
                wide[3][b],
                wide[4][b],
            )
            simulate_copy(b, state[b], arms, workspace, source, schedule, copies, sums, outcome)

    return by_thread if lanes == 1 else by_team


def fill(state, start):
    """Write ``start`` into a state, as a kernel; an axis of ``start`` of length 1 is repeated."""
    columns = state.shape[1]
    for n in range(cuda.grid(1), state.size, cuda.gridsize(1)):
        i, j = n // columns, n % columns
        state[i, j] = start[i % start.shape[0], j % start.shape[1]]


def signature(precision: str) -> Any:
    """Return the signature of a kernel that generates its records, to compile it without a launch."""
    f8, i8, i4, u4, b1 = types.float64, types.int64, types.int32, types.uint32, types.boolean
    fields: dict[Any, list[tuple[Any, int]]] = {
        records.GeneratedRecords: [(f8, 2), (i8, 1), (u4, 2), (i8, 1), (u4, 3), (u4, 2), (u4, 2), (u4, 2), (u4, 2)],
        loops.KernelSchedule: [(u4, 1), (i4, 1), (i4, 2), (f8, 1), (f8, 1)],
        Copies: [(f8, 1), (f8, 1), (f8, 1), (i4, 1), (i4, 1)],
        loops.KernelSums: [(i8, 1), (f8, 1), (i8, 3), (f8, 3)],
        loops.KernelOutcome: [(b1, 2), (f8, 2), (f8, 2)],
    }

    def array(kind: Any, dimensions: int) -> Any:
        return types.Array(kind, dimensions, "C")

    wide = types.Tuple([array(x, 2) for x in (i4, f8, u4, i4, f8 if precision == "float64" else types.float32)])
    tuples = [types.NamedTuple([array(*x) for x in each], name) for name, each in fields.items()]
    return types.void(array(f8, 2), i8, wide, *tuples)
