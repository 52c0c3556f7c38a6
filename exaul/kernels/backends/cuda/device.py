"""The kernels of numba-cuda and their arrays; imported only if a CUDA backend is used.

A block of threads is one warp: 32 copies with a thread each, or one copy shared by all lanes. In the state, copies
are the last axis for threads and the first for warps, so that neighbouring lanes always read neighbouring
addresses. The loops are those of the paper's appendix "Algorithms".
"""

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from exaul.kernels import exponential
from exaul.kernels.backends.cuda import loops, records, toolchain
from exaul.kernels.backends.cuda.loops import StepKernel, WorkspaceSizes
from exaul.kernels.backends.cuda.target import Function, Target, ThreadTeam, single_thread_team
from exaul.kernels.game import ROUNDS, Copies

cuda = toolchain.load()
libdevice = import_module("numba.cuda.libdevice")
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


@_device
def _lane():
    return np.int64(np.uint32(cuda.laneid))  # via uint32, so that the compiler knows that it is not negative


@_device
def _total(x):
    # A butterfly: every lane adds the same pairs, so all lanes get the same bits.
    for step in (16, 8, 4, 2, 1):
        x += cuda.shfl_xor_sync(_ALL, x, step)
    return x


@_device
def _both(x, y):
    # The exchanges of x and y do not depend on each other, so their latencies overlap.
    for step in (16, 8, 4, 2, 1):
        other_x, other_y = cuda.shfl_xor_sync(_ALL, x, step), cuda.shfl_xor_sync(_ALL, y, step)
        x += other_x
        y += other_y
    return x, y


@_device
def _scan(x):
    lane = cuda.laneid
    for step in (1, 2, 4, 8, 16):
        before = cuda.shfl_up_sync(_ALL, x, step)
        if lane >= step:  # lanes below ``step`` get their own x back, which must not count twice
            x += before
    return x


@_device
def _pick(x, lane):
    return cuda.shfl_sync(_ALL, x, lane)


@_device
def _count(condition):
    return cuda.popc(cuda.ballot_sync(_ALL, condition))


@_device
def _sync():
    cuda.syncwarp()


def target(lanes: int, precision: str) -> Target:
    """Return the target of numba-cuda for G lanes per copy, 1 or 32, and ``float64`` or ``float32`` weights."""
    team = (
        single_thread_team(_device)
        if lanes == 1
        else ThreadTeam(WARP, _lane, _total, _both, _scan, _pick, _count, _sync)
    )
    number = _real if precision == "float64" else _number32
    mark = _set if lanes == 1 else _set_together
    return Target(_device, _word, _real, number, _exp, _log, _ones, _add, mark, team)


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
        lanes: G of a copy, 1 or 32.
        precision: of weights and their sums.
        outcomes: whether outcomes are stored.

    Returns:
        ``kernel(state, arms, wide, source, schedule, copies, sums, outcome)``. The state is [rows, B], or [B, rows]
        for warps; ``wide`` are the arrays of a ``Workspace`` that depend on H, two laid out like the state, the
        last [B, .].
    """
    on = target(lanes, precision)
    simulate_copy = loops.compile_for(on, loop(on, outcomes), supply(on), outcomes)
    number, piece, counters_size = np.dtype(precision).type, loops.PIECE, 4 * pools
    ranks, words, sums_size, mine_size = sizes(lanes)[:4]

    def by_thread(state, arms, wide, source, schedule, copies, sums, outcome):
        b = cuda.grid(1)
        if b < state.shape[1]:
            workspace = loops.Workspace(
                cuda.local.array(ROUNDS, np.int32),
                cuda.local.array(ROUNDS, np.float64),
                cuda.local.array(piece, np.float64),
                cuda.local.array(ranks, np.int32),
                cuda.local.array(words, np.uint32),
                cuda.local.array(words, np.int32),
                cuda.local.array(sums_size, number),
                cuda.local.array(mine_size, number),
                cuda.local.array(counters_size, np.uint32),
                wide[0][:, b],
                wide[1][:, b],
                wide[2][b],  # contiguous for each copy, which reads runs of neighbours
            )
            simulate_copy(b, state[:, b], arms, workspace, source, schedule, copies, sums, outcome)

    def by_warp(state, arms, wide, source, schedule, copies, sums, outcome):
        b = cuda.blockIdx.x
        workspace = loops.Workspace(
            cuda.shared.array(ROUNDS, np.int32),
            cuda.shared.array(ROUNDS, np.float64),
            cuda.shared.array(piece, np.float64),
            cuda.shared.array(ranks, np.int32),
            cuda.shared.array(words, np.uint32),
            cuda.shared.array(words, np.int32),
            cuda.shared.array(sums_size, number),
            cuda.local.array(mine_size, number),
            cuda.local.array(counters_size, np.uint32),
            wide[0][b],
            wide[1][b],
            wide[2][b],
        )
        simulate_copy(b, state[b], arms, workspace, source, schedule, copies, sums, outcome)

    return by_thread if lanes == 1 else by_warp


def fill(state, start):
    """Write ``start`` into a state on the device, a kernel: an axis of length 1 is repeated."""
    columns = state.shape[1]
    for n in range(cuda.grid(1), state.size, cuda.gridsize(1)):
        i, j = n // columns, n % columns
        state[i, j] = start[i % start.shape[0], j % start.shape[1]]


def signature(precision: str) -> Any:
    """Return the signature of a kernel that generates its records, to compile it without a launch."""
    from numba import types

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

    wide = types.Tuple([array(x, 2) for x in (u4, i4, types.float64 if precision == "float64" else types.float32)])
    tuples = [types.NamedTuple([array(*x) for x in each], name) for name, each in fields.items()]
    return types.void(array(f8, 2), i8, wide, *tuples)
