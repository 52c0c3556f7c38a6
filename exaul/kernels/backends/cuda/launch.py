"""Copies of one learner on the devices: what is sent there, what is launched, and what comes back.

Arrays are allocated by numba-cuda, and JAX is not used. A launch plays a chunk of all copies of a device, and the
sums at its marks are the sums of eq. 1 and eq. 2.
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
    """The kernel that makes its records, compiled once for each learner and environment."""

    def source(target: Any) -> records.RecordSource:
        return records.generate_records(target, choose, pools, shuffled)

    return cuda.jit(device.kernel(kind, source, pools, lanes, precision, False))


@lru_cache
def _reading_kernel(kind: Any, lanes: int, precision: str) -> Any:
    """The kernel that takes its records."""
    return cuda.jit(device.kernel(kind, records.read_given_records, 1, lanes, precision, True))


class DeviceSimulation:
    """B copies of a learner, under way on one or more devices."""

    def __init__(
        self, backend: CudaBackend, arms: int, best: NDArray[np.int32], devices: int | None = None
    ) -> None:
        """Before round 1; on all devices unless told how many."""
        self.backend, self.arms, self.copies = backend, arms, len(best)
        count = len(cuda.gpus) if devices is None else devices
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
        self.marked: list[Any] = []

    def _shape(self, rows: int, copies: int) -> tuple[int, int]:
        return (rows, copies) if self.backend.lanes == 1 else (copies, rows)

    def _laid_out(self, columns: NDArray[Any]) -> NDArray[Any]:
        """From [rows, B] to the layout on the device, or back."""
        return np.ascontiguousarray(columns if self.backend.lanes == 1 else columns.T)

    def load(self, streams: Streams, draws: tuple[NDArray[np.uint32], NDArray[np.uint32]], copies: Copies) -> None:
        """Send to the devices what does not change as they play, before the first chunk.

        Args:
            streams: of records, R of them.
            draws: keys of the learners' uniforms, [U] each.
            copies: B of them.
        """
        made = records.record_generator(streams, draws)
        self.streams, self.games, self.numbers = streams, [], []
        for part in self.parts:
            with _on_device(part.number):
                self.games.append(records.GeneratedRecords(*(cuda.to_device(x) for x in made)))
                self.numbers.append(_send(part, copies))

    def launch(self, schedule: loops.KernelSchedule) -> None:
        """Start to play a chunk; the host need not wait.

        Args:
            schedule: K blocks, with eta and gamma [K].
        """
        assert self.streams is not None
        plan = self.streams.plan
        backend = self.backend
        step = _generating_kernel(
            backend.kind, plan.choose, len(plan.shapes), plan.shuffled, backend.lanes, backend.precision
        )
        self.marked = []
        for n, part in enumerate(self.parts):
            with _on_device(part.number):
                game = self.games[n]
                self.marked.append(self._start(step, part, game, schedule, self.numbers[n], 1)[0])
                self.games[n] = game._replace(
                    records_read=game.records_read_after, records_read_after=game.records_read
                )

    def _start(
        self, step: Any, part: DevicePart, game: Any, schedule: loops.KernelSchedule, numbers: Copies, rows: int
    ) -> tuple[loops.KernelSums, loops.KernelOutcome]:
        """Launch a kernel on the device of a part; the sums, and the outcome."""
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
        """Wait for the chunk.

        Returns:
            At its marks, how often each copy has answered, and the sum of the errors, [K, S, B] each.
        """
        answered, wrong = [], []
        for part, sums in zip(self.parts, self.marked, strict=True):
            with _on_device(part.number):
                answered.append(sums.answered_at_checkpoints.copy_to_host())
                wrong.append(sums.wrong_at_checkpoints.copy_to_host())
        return np.concatenate(answered, axis=-1), np.concatenate(wrong, axis=-1)

    def advance(self, blocks: Block, rates: Rates, copies: Copies) -> Outcome:
        """Play K blocks that are handed in, as those of a certificate; the sums do not change.

        Args:
            blocks: cuts and errors [K, C, R], draws [K, C, U], active [K, C].
            rates: eta and gamma [K].
            copies: B of them.

        Returns:
            All that was done, [K C, B].
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
        """All that changes as it plays.

        Returns:
            The state [rows, B], the sums [B] of answered rounds and of errors, and the records played [P, R]. None
            of it depends on the number of devices.
        """
        answered, wrong = [], []
        outcome = np.zeros((0, 0) if self.streams is None else self.streams.orders[0].shape, np.uint32)
        for n, part in enumerate(self.parts):
            with _on_device(part.number):
                answered.append(part.answered.copy_to_host())
                wrong.append(part.wrong.copy_to_host())
                if self.games:
                    outcome = np.maximum(outcome, self.games[n].records_read.copy_to_host())
        return self.state, np.concatenate(answered), np.concatenate(wrong), outcome

    def restore(self, tree: tuple[NDArray[Any], ...]) -> None:
        """Go on from what ``save`` returned.

        Args:
            tree: state [rows, B], sums [B], and records played [P, R].
        """
        state, answered, wrong, outcome = tree
        for n, part in enumerate(self.parts):
            here = slice(part.first, part.last)
            with _on_device(part.number):
                part.state.copy_to_device(self._laid_out(state[:, here]))
                part.answered.copy_to_device(np.ascontiguousarray(answered[here]))
                part.wrong.copy_to_device(np.ascontiguousarray(wrong[here]))
                if self.games:
                    for counts in self.games[n][-2:]:
                        counts.copy_to_device(np.ascontiguousarray(outcome))


def _send(part: DevicePart, copies: Copies) -> Copies:
    """The numbers of a part's copies, on its device."""
    return Copies(*(cuda.to_device(np.ascontiguousarray(x[part.first : part.last])) for x in copies))


def _configured(step: Any, warps: int) -> Any:
    """A kernel for so many warps, each a block; that few blocks leave a device idle is known here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Grid size .* low occupancy")
        return step[warps, device.WARP]


@contextmanager
def _on_device(number: int) -> Iterator[None]:
    """The context of a device.

    Raises:
        MemoryError: the device has too little memory for what is done in it.
        DeviceFailure: a kernel failed, and the device cannot be used any more.
    """
    try:
        with cuda.gpus[number % len(cuda.gpus)]:
            yield
    except Exception as error:  # of numba-cuda where it allocates, of CUDA's own package where it launches
        found = errors.translated(error, number)
        raise found from (None if found is error else error)
