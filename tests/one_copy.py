"""The loops of ``exaul.kernels.backends.cuda`` without a device: compiled for the CPU, or lanes as threads."""

import math
import threading
from functools import lru_cache

import numba as nb
import numpy as np

from exaul.kernels import exponential
from exaul.kernels.backends.cuda import loops
from exaul.kernels.backends.cuda.target import Target, ThreadTeam, single_thread_team
from exaul.kernels.backends.native import arithmetic
from exaul.kernels.game import ROUNDS

# without what Python would call: a third less to compile
compiled = nb.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy", fastmath={"contract"})


@compiled
def _number64(x):
    return np.float64(x)


@compiled
def _number32(x):
    return np.float32(x)


@compiled
def _ones(x):
    return arithmetic.ones(np.int64(x))


@compiled
def _log(x):
    return math.log(x)


@compiled
def _reciprocal(x):
    return 1.0 / x


@compiled
def _add(array, index, x):
    array[index] += x


@compiled
def _set_bits(words, index, bits):
    words[index] = np.uint32(words[index] | bits)


def on_cpu(precision="float64"):
    """The target of a lane alone, compiled by Numba."""
    number = _number64 if precision == "float64" else _number32
    simple = (arithmetic.exp, _log, _reciprocal, _ones, _add, _set_bits)
    return Target(compiled, arithmetic.word, arithmetic.real, number, *simple, single_thread_team(compiled))


def bits(x):
    return int(np.float64(x).view(np.int64))


def number(x):
    return float(np.int64((x + 2**63) % 2**64 - 2**63).view(np.float64))


class Lanes:
    """A team of Python's threads, which wait for each other in every function of the team."""

    def __init__(self, lanes):
        self.lanes, self.own = lanes, threading.local()
        self.barrier, self.values = threading.Barrier(lanes), [None] * lanes

    def _all(self, x):
        self.values[self.own.lane] = x
        self.barrier.wait()
        values = list(self.values)
        self.barrier.wait()
        return values

    def target(self, precision="float64"):
        """The target whose functions stay Python."""

        def lane():
            return self.own.lane

        def total(x):
            values, at = self._all(x), self.own.lane
            for step in (2**n for n in range(self.lanes.bit_length() - 1)):
                x = x + values[at ^ step]
                values = self._all(x)
            return x

        def both(x, y, many):
            for step in (2**n for n in range(many.bit_length() - 1)):
                others, at = self._all((x, y)), self.own.lane ^ step
                x, y = x + others[at][0], y + others[at][1]
            return x, y

        def scan(x):
            values = self._all(x)
            for y in values[: self.own.lane]:
                x = x + y
            return x

        def set_bits(words, index, bits):
            with lock:
                words[index] |= bits

        lock = threading.Lock()
        team = ThreadTeam(
            self.lanes,
            lane,
            total,
            both,
            scan,
            lambda x, lane: self._all(x)[lane],
            lambda condition: sum(self._all(bool(condition))),
            lambda: self.barrier.wait(),
        )
        return Target(
            lambda function: function,
            lambda x: np.uint32(int(x) & 0xFFFFFFFF),
            np.float64,
            np.dtype(precision).type,
            exponential.compile_for(lambda function: function, bits, number),
            math.log,
            lambda x: 1.0 / x,
            lambda x: int(x).bit_count(),
            lambda array, index, x: array.__setitem__(index, array[index] + x),
            set_bits,
            team,
        )

    def run(self, function):
        """Call a function in every lane, and wait; an exception in one is raised."""
        failed = []

        def one(lane):
            self.own.lane = lane
            try:
                with np.errstate(over="ignore"):  # words wrap around
                    function()
            except threading.BrokenBarrierError:
                pass
            except BaseException as error:
                failed.append(error)
                self.barrier.abort()

        threads = [threading.Thread(target=one, args=(lane,)) for lane in range(self.lanes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]


def workspace_of(sizes, arms, pools, precision):
    """The arrays of one copy: those that lanes share, and then what each lane has of its own."""
    wide = sizes.wide_words(arms), sizes.wide_sums(arms)
    return loops.Workspace(
        np.zeros(loops.PIECE),
        np.zeros(loops.PIECE, np.int32),
        np.zeros(loops.PIECE),
        np.zeros(sizes.ranks, np.int32),
        np.zeros(sizes.words, np.uint32),
        np.zeros(sizes.words, np.int32),
        np.zeros(sizes.sums, precision),
        np.zeros(sizes.lane_sums, precision),
        np.zeros(4 * pools, np.uint32),
        np.zeros(ROUNDS, np.int32),
        np.zeros(ROUNDS),
        np.zeros(wide[0], np.uint32),
        np.zeros(wide[0], np.int32),
        np.zeros(wide[1], precision),
    )


def fresh(kind, first, arms, blocks, checkpoints=0, outcomes=True):
    """The state before round 1, from a ``Start``; and sums and an outcome to be filled."""
    copies = len(first.best)
    sums = np.zeros(copies, np.int64), np.zeros(copies)
    at_checkpoints = np.zeros((blocks, checkpoints, copies), np.int64), np.zeros((blocks, checkpoints, copies))
    rows = blocks * ROUNDS if outcomes else 1
    outcome = loops.KernelOutcome(*(np.zeros((rows, copies), x) for x in (bool, float, float)))
    return np.array(kind.first(arms, first)), loops.KernelSums(*sums, *at_checkpoints), outcome


@lru_cache
def _compiled_loop(kind, source, outcomes, precision):
    target = on_cpu(precision)
    simulate_copy = loops.compile_for(target, kind.loop(target, outcomes), source(target), outcomes)

    @nb.njit
    def simulate_all(state, arms, workspace, game, schedule, copies, sums, outcome):
        for b in range(state.shape[1]):
            simulate_copy(b, state[:, b], arms, workspace, game, schedule, copies, sums, outcome)

    return simulate_all


def simulate(kind, source, outcomes, state, arms, *more, pools=1, precision="float64"):
    """Simulate a chunk of all copies, compiled for the CPU.

    ``more`` are the game, the schedule, and all that follows in ``simulate_copy``. State, sums and outcome change.
    """
    loop = _compiled_loop(kind, source, outcomes, precision)
    loop(state, arms, workspace_of(kind.sizes(1), arms, pools, precision), *more)


def simulate_in_lanes(lanes, kind, source, outcomes, state, arms, *more, pools=1):
    """Simulate them in Python, some lanes for each copy."""
    team = Lanes(lanes)
    target = team.target()
    simulate_copy = loops.compile_for(target, kind.loop(target, outcomes), source(target), outcomes)
    for b in range(state.shape[1]):
        workspace = workspace_of(kind.sizes(lanes), arms, pools, "float64")

        def one(b=b, workspace=workspace):
            own = workspace._replace(
                lane_sums=np.zeros_like(workspace.lane_sums), counters=np.zeros_like(workspace.counters)
            )
            simulate_copy(b, state[:, b], arms, own, *more)

        team.run(one)
