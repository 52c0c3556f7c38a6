"""Simulate copies of one learner on NVIDIA devices: send arrays, launch kernels, and collect results.

Arrays are allocated by numba-cuda; JAX is not used. A launch simulates a chunk of all copies of a device. The sums
at its checkpoints are those of eq. 1 and eq. 2.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.cuda import copies as loops
from exaul.kernels.backends.cuda import device, errors, records
from exaul.kernels.backends.cuda.backend import CudaBackend
from exaul.kernels.game import ROUNDS, Block, Copies, Outcome, Rates
from exaul.kernels.records import Streams

cuda = device.cuda


class DevicePart(NamedTuple):
    """The copies first..last-1, on one device."""

    number: int  # of the device
    first: int
    last: int
    state: Any  # [rows, B] float64, or [B, rows] for warps
    wide: Any  # three arrays, as of ``device.kernel``
    answered: Any  # [B] int64
    wrong: Any  # [B] float64


@lru_cache
def _generating_kernel(kind: Any, choose: Any, pools: int, shuffled: bool, lanes: int, precision: str) -> Any:
    """Return the kernel that generates its records, compiled once for each learner and environment."""

    def source(target: Any) -> records.RecordSource:
        return records.generate_records(target, choose, pools, shuffled)

    return cuda.jit(device.kernel(kind, source, pools, lanes, precision, False))


@lru_cache
def _reading_kernel(kind: Any, lanes: int, precision: str) -> Any:
    """Return the kernel that reads given records."""
    return cuda.jit(device.kernel(kind, records.read_given_records, 1, lanes, precision, True))


class DeviceSimulation:
    """B copies of a learner, simulated on one or more devices."""

    def __init__(
        self, backend: CudaBackend, arms: int, best: NDArray[np.int32], devices: int | None = None
    ) -> None:
        """Allocate the state before round 1, on ``devices`` devices, or on all."""
        self.backend, self.arms, self.copies = backend, arms, len(best)
        count = len(cuda.gpus) if devices is None else devices
        # Even parts; with more devices than copies, some parts are empty and get no arrays.
        edges = np.linspace(0, self.copies, count + 1).astype(int)
        start = backend.kind.start(arms, best)
        sizes = backend.kind.sizes(backend.lanes)
        wide = sizes.wide_words(arms), sizes.wide_words(arms), sizes.wide_sums(arms)
        kinds = np.uint32, np.int32, np.dtype(backend.precision)
        self.parts = []
        for number, (first, last) in enumerate(pairwise(edges)):
            if first == last:
                continue
            with _on_device(number):
                copies = int(last - first)
                shapes = self._shape(wide[0], copies), self._shape(wide[1], copies), (copies, wide[2])
                workspace = tuple(cuda.device_array(x, kind) for x, kind in zip(shapes, kinds, strict=True))
                state = cuda.to_device(self._laid_out(start[:, first:last]))
                sums = cuda.to_device(np.zeros(last - first, np.int64)), cuda.to_device(np.zeros(last - first))
                self.parts.append(DevicePart(number, int(first), int(last), state, workspace, *sums))
        self.streams: Streams | None = None
        self.games: list[records.GeneratedRecords] = []
        self.numbers: list[Copies] = []
        self.at_checkpoints: list[Any] = []

    def _shape(self, rows: int, copies: int) -> tuple[int, int]:
        return (rows, copies) if self.backend.lanes == 1 else (copies, rows)

    def _laid_out(self, columns: NDArray[Any]) -> NDArray[Any]:
        """Convert [rows, B] to the layout on the device, or back."""
        return np.ascontiguousarray(columns if self.backend.lanes == 1 else columns.T)

    def load(self, streams: Streams, draws: tuple[NDArray[np.uint32], NDArray[np.uint32]], copies: Copies) -> None:
        """Send everything that stays constant to the devices, before the first chunk.

        ``draws`` are the keys of the learners' uniforms, [U] each; ``streams`` has R streams, ``copies`` B copies.
        """
        made = records.record_generator(streams, draws)
        self.streams, self.games, self.numbers = streams, [], []
        for part in self.parts:
            with _on_device(part.number):
                self.games.append(records.GeneratedRecords(*(cuda.to_device(x) for x in made)))
                self.numbers.append(_send(part, copies))

    def launch(self, schedule: loops.KernelSchedule) -> None:
        """Start to simulate a chunk of K blocks, without waiting for it."""
        assert self.streams is not None
        plan = self.streams.plan
        backend = self.backend
        step = _generating_kernel(
            backend.kind, plan.choose_pool, len(plan.shapes), plan.shuffled, backend.lanes, backend.precision
        )
        self.at_checkpoints = []
        for n, part in enumerate(self.parts):
            with _on_device(part.number):
                game = self.games[n]
                # Launches are asynchronous: keep the sums' arrays until ``collect``, which waits when it copies
                # them.
                self.at_checkpoints.append(self._start(step, part, game, schedule, self.numbers[n], 1)[0])
                # Two buffers take turns: copies share streams, so a kernel must not write the numbers that other
                # copies of it still read. The next launch reads what this one writes.
                self.games[n] = game._replace(
                    records_read=game.records_read_after, records_read_after=game.records_read
                )

    def _start(
        self, step: Any, part: DevicePart, game: Any, schedule: loops.KernelSchedule, numbers: Copies, rows: int
    ) -> tuple[loops.KernelSums, loops.KernelOutcome]:
        """Launch a kernel on the device of a part, and return its sums and its outcome."""
        copies = part.last - part.first
        shape = *schedule.checkpoint_rounds.shape, copies
        sums = loops.KernelSums(
            part.answered, part.wrong, cuda.device_array(shape, np.int64), cuda.device_array(shape, np.float64)
        )
        outcome = loops.KernelOutcome(
            *(cuda.device_array((rows, copies), x) for x in (np.bool_, np.float64, np.float64))
        )
        _configured(step, -(-copies * self.backend.lanes // device.WARP))(
            part.state,
            self.arms,
            part.wide,
            game,
            loops.KernelSchedule(*(cuda.to_device(x) for x in schedule)),
            numbers,
            sums,
            outcome,
        )
        return sums, outcome

    def collect(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Wait for the chunk; return each copy's answers and errors up to each checkpoint, [K, S, B] each."""
        answered, wrong = [], []
        for part, sums in zip(self.parts, self.at_checkpoints, strict=True):
            with _on_device(part.number):
                answered.append(sums.answered_at_checkpoints.copy_to_host())
                wrong.append(sums.wrong_at_checkpoints.copy_to_host())
        return np.concatenate(answered, axis=-1), np.concatenate(wrong, axis=-1)

    def advance(self, blocks: Block, rates: Rates, copies: Copies) -> Outcome:
        """Simulate K given blocks, as for a device check, and return the outcome [K C, B]; the sums do not change.

        Args:
            blocks: cuts and errors [K, C, R], draws [K, C, U], active [K, C].
            rates: eta and gamma [K].
            copies: B of them.
        """
        count = len(blocks.active)
        rows = count * ROUNDS
        schedule = loops.KernelSchedule(
            np.arange(count, dtype=np.uint32),
            blocks.active.sum(axis=1).astype(np.int32),
            np.zeros((count, 1), np.int32),
            *(np.ascontiguousarray(x, np.float64) for x in rates),
        )
        flat = records.GivenRecords(
            *(
                np.ascontiguousarray(x.reshape(rows, -1), kind)
                for x, kind in zip(
                    (blocks.cuts, blocks.errors, blocks.draws.decision),
                    (np.int32, np.float64, np.float64),
                    strict=True,
                )
            )
        )
        step = _reading_kernel(self.backend.kind, self.backend.lanes, self.backend.precision)
        outcomes = []
        for part in self.parts:
            with _on_device(part.number):
                # Separate sums, so that a device check leaves those of the simulation as they are.
                zeros = [cuda.to_device(np.zeros(part.last - part.first, x)) for x in (np.int64, np.float64)]
                game = records.GivenRecords(*(cuda.to_device(x) for x in flat))
                other = part._replace(answered=zeros[0], wrong=zeros[1])
                outcome = self._start(step, other, game, schedule, _send(part, copies), rows)[1]
                outcomes.append([x.copy_to_host() for x in outcome])
        answered, probability, middle = (np.concatenate(x, axis=1) for x in zip(*outcomes, strict=True))
        return Outcome(answered, probability, middle if self.backend.middles else None)

    @property
    def state(self) -> NDArray[np.float64]:
        """The state of all copies, [rows, B], on the host."""
        found = []
        for part in self.parts:
            with _on_device(part.number):
                found.append(self._laid_out(part.state.copy_to_host()))
        return np.concatenate(found, axis=1)

    def save(self) -> tuple[NDArray[Any], ...]:
        """Return everything that changes during a simulation.

        Returns:
            The state [rows, B], the sums [B] of answers and of errors, and the numbers of records read [P, R]. None
            depends on the number of devices.
        """
        answered, wrong = [], []
        outcome = np.zeros((0, 0) if self.streams is None else self.streams.orders[0].shape, np.uint32)
        for n, part in enumerate(self.parts):
            with _on_device(part.number):
                answered.append(part.answered.copy_to_host())
                wrong.append(part.wrong.copy_to_host())
                if self.games:
                    # A device counts only the streams that its own copies read; the others stay at an earlier
                    # number.
                    outcome = np.maximum(outcome, self.games[n].records_read.copy_to_host())
        return self.state, np.concatenate(answered), np.concatenate(wrong), outcome

    def restore(self, tree: tuple[NDArray[Any], ...]) -> None:
        """Continue from what ``save`` returned."""
        state, answered, wrong, outcome = tree
        for n, part in enumerate(self.parts):
            here = slice(part.first, part.last)
            with _on_device(part.number):
                part.state.copy_to_device(self._laid_out(state[:, here]))
                part.answered.copy_to_device(np.ascontiguousarray(answered[here]))
                part.wrong.copy_to_device(np.ascontiguousarray(wrong[here]))
                if self.games:
                    # Both buffers: a stream that no copy of this device reads is never written, and must be right
                    # in both.
                    for counts in self.games[n][-2:]:
                        counts.copy_to_device(np.ascontiguousarray(outcome))


def _send(part: DevicePart, copies: Copies) -> Copies:
    """Copy the numbers of a part's copies to its device."""
    return Copies(*(cuda.to_device(np.ascontiguousarray(x[part.first : part.last])) for x in copies))


def _configured(step: Any, warps: int) -> Any:
    """Return a kernel configured for a number of warps, each a block of its own."""
    with warnings.catch_warnings():
        # numba-cuda warns that few blocks leave a device idle, which is known: the number of copies is the user's
        # choice.
        warnings.filterwarnings("ignore", message="Grid size .* low occupancy")
        return step[warps, device.WARP]


@contextmanager
def _on_device(number: int) -> Iterator[None]:
    """Enter the context of a device.

    Raises:
        MemoryError: the device has too little memory.
        DeviceFailure: a kernel failed, and the device can no longer be used.
    """
    try:
        # Modulo: more parts than devices share devices, which tests use.
        with cuda.gpus[number % len(cuda.gpus)]:
            yield
    except Exception as error:  # numba-cuda raises its own errors on allocation, CUDA's package on launch
        found = errors.translated(error, number)
        raise found from (None if found is error else error)
