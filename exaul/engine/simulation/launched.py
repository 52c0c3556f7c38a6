"""Simulate copies on the CUDA backends: a chunk is some asynchronous launches on each device.

numba-cuda, not JAX, allocates the arrays. Importing this file imports numba-cuda, so ``BACKENDS`` names the file,
and only machines that can use the CUDA backends import it.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from exaul.engine.simulation.schedule import Chunk, TrialRecords
from exaul.engine.simulation.simulation import Totals
from exaul.kernels.backends.cuda import device, errors, loops, records, toolchain
from exaul.kernels.backends.cuda.backend import CudaBackend
from exaul.kernels.game import ROUNDS, Block, Copies, Outcome, Rates, Start
from exaul.kernels.records import StreamPlan

cuda = device.cuda
# Most rounds, and rounds x copies, of a launch of the first chunk, and seconds of a later launch. With a screen
# attached, the driver ends kernels after a few seconds; the device may be slow, and shared by other learners.
FIRST_ROUNDS, FIRST_COPY_ROUNDS, LAUNCH = 2**14, 2**24, 0.5
MOMENT = 1e-3  # shortest time of a chunk, in seconds: the simulator measures none
FILL_WARPS = 2**12  # most warps that fill a state
ARRAYS = 3  # device arrays of the size of the weights: the state and a launch's working memory


class DevicePart:
    """The copies first..last-1 on one device, and the stream of all their transfers and launches.

    A launch returns before it has run. What it reads and writes stays allocated as long as the part: freeing memory
    of a device waits for all its streams.
    """

    def __init__(self, number: int, first: int, last: int) -> None:
        """Create the stream on device ``number``, which is current."""
        self.number, self.first, self.last = number, first, last
        self.stream = cuda.stream()
        self.begun, self.ended = cuda.event(), cuda.event()  # of the launches of a chunk
        self.state: Any  # [rows, B] float64, or [B, rows] for teams
        self.wide: Any  # arrays as of ``loops.wide_arrays``
        self.source: records.GeneratedRecords
        self.copies: Copies  # [B]
        self.no_outcome: loops.KernelOutcome
        self.page_locked: loops.KernelSchedule | None = None  # on the host, else copying would wait
        self.schedule: loops.KernelSchedule
        self.sums: loops.KernelSums

    def send(self, arrays: Iterable[Any]) -> list[Any]:
        """Copy arrays to the device, and wait."""
        contiguous = [np.ascontiguousarray(x) for x in arrays]
        sent = [cuda.to_device(x, stream=self.stream) for x in contiguous]
        self.stream.synchronize()
        return sent

    def receive(self, arrays: Iterable[Any]) -> list[NDArray[Any]]:
        """Copy arrays to the host, after all that the stream has to do."""
        copied = [x.copy_to_host(stream=self.stream) for x in arrays]
        self.stream.synchronize()
        return copied

    def send_schedule(self, schedule: loops.KernelSchedule) -> None:
        """Copy the schedule of a chunk to the device without waiting; chunks of a shape share its memory."""
        shape = schedule.checkpoint_rounds.shape
        if self.page_locked is None or self.page_locked.checkpoint_rounds.shape != shape:
            self.page_locked = loops.KernelSchedule(*(cuda.pinned_array(x.shape, x.dtype) for x in schedule))
            self.schedule = loops.KernelSchedule(*(cuda.device_array(x.shape, x.dtype) for x in schedule))
            self.sums = self.sums._replace(
                answered_at_checkpoints=cuda.device_array((*shape, self.last - self.first), np.int64),
                wrong_at_checkpoints=cuda.device_array((*shape, self.last - self.first), np.float64),
            )
        for array, fixed, sent in zip(schedule, self.page_locked, self.schedule, strict=True):
            fixed[...] = array
            sent.copy_to_device(fixed, stream=self.stream)


@lru_cache
def _kernel(*arguments: Any) -> Any:
    """Return the kernel of ``device.kernel``, compiled once for the same arguments."""
    return toolchain.launchable(device.kernel(*arguments))


@lru_cache
def _filling() -> Any:
    return toolchain.launchable(device.fill)


@lru_cache
def _generation(choose: Any, pools: int, shuffled: bool) -> Any:
    """Return the same function for the same environment, so that a kernel is compiled once."""
    return lambda target: records.generate_records(target, choose, pools, shuffled)


def generating_kernel(kernels: CudaBackend, plan: StreamPlan) -> Any:
    """Return the kernel that generates its records, compiled once for each loop and environment."""
    pools, kind = len(plan.shapes), kernels.kind
    supply = _generation(plan.choose_pool, pools, plan.shuffled)
    return _kernel(kind.loop, kind.sizes, supply, pools, kernels.lanes, kernels.precision, False)


def _reading_kernel(kernels: CudaBackend) -> Any:
    """Return the kernel that reads given records."""
    kind, supply = kernels.kind, records.read_given_records
    return _kernel(kind.loop, kind.sizes, supply, 1, kernels.lanes, kernels.precision, True)


class LaunchedSimulation:
    """B copies on the CUDA backends, by the protocol ``Simulation``."""

    on_host = False

    def __init__(
        self,
        kernels: CudaBackend,
        copies: Copies,
        start: Start,
        arms: int,
        trial_records: TrialRecords,
        devices: int | None = None,
    ) -> None:
        """Send all that stays constant, and the state before round 1, to ``devices`` devices, or to all."""
        self.kernels, self.arms, self.plan = kernels, arms, trial_records.records.plan
        count = len(cuda.gpus) if devices is None else devices
        # Even parts; with more devices than copies, some parts are empty and get no arrays.
        edges = np.linspace(0, len(start.best), count + 1).astype(int)
        first_state = kernels.kind.first(arms, start)
        made = records.record_generator(trial_records.records, trial_records.draws.decision)
        self.parts = []
        for number, (first, last) in enumerate(pairwise(edges.tolist())):
            if first == last:
                continue
            with _on_device(number):
                part, here = DevicePart(number, first, last), last - first
                wide = loops.wide_arrays(kernels.kind, kernels.lanes, kernels.precision, arms, here)
                part.wide = tuple(cuda.device_array(*x) for x in wide)
                rows = len(first_state)
                part.state = cuda.device_array((rows, here) if kernels.lanes == 1 else (here, rows))
                # Only what differs between copies is sent: most rules start with one column for all.
                shared = first_state.strides[1] == 0
                columns = first_state[:, :1] if shared else first_state[:, first:last]
                (columns,) = part.send([self._laid_out(columns)])
                warps = min(FILL_WARPS, -(-part.state.size // device.WARP))
                _configured(_filling(), warps, part)(part.state, columns)
                part.sums = _no_sums(part)
                part.source = records.GeneratedRecords(*part.send(made))
                part.copies = Copies(*part.send(x[first:last] for x in copies))
                part.no_outcome = _outcome(1, here)
                part.stream.synchronize()  # ``columns`` may be freed now
                self.parts.append(part)
        self.blocks = max(1, min(FIRST_ROUNDS, FIRST_COPY_ROUNDS // len(start.best)) // ROUNDS)  # of a launch

    def _laid_out(self, columns: NDArray[Any]) -> NDArray[Any]:
        """Convert [rows, B] to the layout on the device, or back."""
        return columns if self.kernels.lanes == 1 else columns.T

    def start(self, chunk: Chunk, rates: Rates) -> None:
        """Start to simulate a chunk, by several launches of consecutive blocks."""
        blocks, step = chunk.schedule, generating_kernel(self.kernels, self.plan)
        rounds = blocks.active.sum(axis=1).astype(np.int32)
        schedule = loops.KernelSchedule(blocks.block, rounds, blocks.checkpoint_rounds, *rates)
        for part in self.parts:
            with _on_device(part.number):
                part.send_schedule(schedule)
                part.begun.record(part.stream)
                for first in range(0, len(rounds), self.blocks):
                    some = slice(first, first + self.blocks)
                    self._launch(
                        step,
                        part,
                        part.source,
                        loops.KernelSchedule(*(x[some] for x in part.schedule)),
                        part.copies,
                        loops.KernelSums(*part.sums[:2], *(x[some] for x in part.sums[2:])),
                        part.no_outcome,
                    )
                    # Two buffers alternate: copies share streams, so a kernel must not write the numbers that other
                    # copies of it still read. The next launch reads what this one writes.
                    part.source = part.source._replace(
                        records_read=part.source.records_read_after, records_read_after=part.source.records_read
                    )
                part.ended.record(part.stream)

    def _launch(
        self,
        step: Any,
        part: DevicePart,
        source: Any,
        schedule: loops.KernelSchedule,
        copies: Copies,
        sums: loops.KernelSums,
        outcome: loops.KernelOutcome,
    ) -> None:
        """Launch a kernel on the device of a part."""
        warps = -(-(part.last - part.first) * self.kernels.lanes // device.WARP)
        launch = _configured(step, warps, part)
        launch(part.state, self.arms, part.wide, source, schedule, copies, sums, outcome)

    def collect(self) -> Totals:
        """Wait for the chunk, and size the launches of the next one by the time that this one took."""
        received, seconds = [], MOMENT
        for part in self.parts:
            with _on_device(part.number):
                received.append(part.receive(part.sums[2:]))
                seconds = max(seconds, part.begun.elapsed_time(part.ended) / 1000)
        answered, wrong = (np.concatenate(x, axis=-1) for x in zip(*received, strict=True))
        # The time includes that of other learners on the device, and in the first chunk that of compiling: launches
        # may be shorter than needed until the next chunk.
        self.blocks = max(1, int(len(answered) * LAUNCH / seconds))
        return Totals(answered, wrong)

    def advance(self, blocks: Block, rates: Rates, copies: Copies) -> Outcome:
        """Simulate given blocks, and return every decision."""
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
        step = _reading_kernel(self.kernels)
        outcomes = []
        for part in self.parts:
            with _on_device(part.number):
                here = part.last - part.first
                # Separate sums, so that a device check leaves those of the simulation as they are.
                at_checkpoints = (cuda.device_array((count, 1, here), x) for x in (np.int64, np.float64))
                outcome = _outcome(rows, here)
                self._launch(
                    step,
                    part,
                    records.GivenRecords(*part.send(flat)),
                    loops.KernelSchedule(*part.send(schedule)),
                    Copies(*part.send(x[part.first : part.last] for x in copies)),
                    loops.KernelSums(*_no_sums(part)[:2], *at_checkpoints),
                    outcome,
                )
                outcomes.append(part.receive(outcome))
        answered, probability, middle = (np.concatenate(x, axis=1) for x in zip(*outcomes, strict=True))
        return Outcome(answered, probability, middle if self.kernels.middles else None)

    @property
    def state(self) -> NDArray[np.float64]:
        """The state of all copies, [rows, B], copied to the host."""
        received = []
        for part in self.parts:
            with _on_device(part.number):
                received += part.receive([part.state])
        return np.concatenate([self._laid_out(x) for x in received], axis=1)

    def save(self) -> tuple[NDArray[Any], ...]:
        """Return the state, the sums [B] of answers and of errors, and the records read [P, R].

        None depends on the number of devices.
        """
        received = []
        for part in self.parts:
            with _on_device(part.number):
                received.append(part.receive([*part.sums[:2], part.source.records_read]))
        answered, wrong, records_read = zip(*received, strict=True)
        # A device counts only the streams that its own copies read; the others stay at an earlier number.
        return self.state, np.concatenate(answered), np.concatenate(wrong), np.max(records_read, axis=0)

    def restore(self, tree: tuple[NDArray[Any], ...]) -> None:
        """Continue from what ``save`` returned."""
        state, answered, wrong, records_read = tree
        for part in self.parts:
            here = slice(part.first, part.last)
            source = part.source
            # Both buffers: a stream that no copy of this device reads is never written, and must be right in both.
            restored = (
                (part.state, self._laid_out(state[:, here])),
                (part.sums.answered, answered[here]),
                (part.sums.wrong, wrong[here]),
                (source.records_read, records_read),
                (source.records_read_after, records_read),
            )
            with _on_device(part.number):
                for array, saved in restored:
                    array.copy_to_device(np.ascontiguousarray(saved), stream=part.stream)
                    part.stream.synchronize()  # the array on the host may be freed now

    def dense_state(self, rates: Rates, copies: Copies) -> Any:
        """Return the state that the dense backend would have."""
        assert self.kernels.dense_state is not None
        # ``state`` has copies last
        return jax.tree.map(np.transpose, self.kernels.dense_state(self.state, copies.parameters(rates)))

    @staticmethod
    def memory(state_bytes: int, totals_bytes: int, program: Callable[[], int] | None) -> tuple[int, int]:
        """Count the state on the host twice (as received and as saved), and ARRAYS times over the devices."""
        return 2 * state_bytes, (ARRAYS * state_bytes + totals_bytes) // max(1, len(cuda.gpus))


def _no_sums(part: DevicePart) -> loops.KernelSums:
    """Return sums of 0 on the device of a part, without memory for checkpoints."""
    answered, wrong = part.send(np.zeros(part.last - part.first, x) for x in (np.int64, np.float64))
    return loops.KernelSums(answered, wrong, None, None)


def _outcome(rows: int, copies: int) -> loops.KernelOutcome:
    """Allocate an outcome on the current device."""
    return loops.KernelOutcome(*(cuda.device_array((rows, copies), x) for x in (np.bool_, np.float64, np.float64)))


def _configured(step: Any, warps: int, part: DevicePart) -> Any:
    """Return a kernel configured for the stream of a part and a number of warps, each a block of its own."""
    with warnings.catch_warnings():
        # numba-cuda warns that few blocks leave a device idle, which is known: the number of copies is the user's
        # choice.
        warnings.filterwarnings("ignore", message="Grid size .* low occupancy")
        return step[warps, device.WARP, part.stream]


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
