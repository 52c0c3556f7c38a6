"""Simulate copies on the CUDA backends: a chunk is one asynchronous launch on each device.

Arrays are allocated by numba-cuda; JAX is not used. Importing this file imports numba-cuda: ``BACKENDS`` names it,
and it is imported only where the CUDA backends can be used.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from exaul.engine.simulation.schedule import Chunk, TrialRecords
from exaul.engine.simulation.simulation import Totals
from exaul.kernels.backends.cuda import device, errors, loops, records, toolchain
from exaul.kernels.backends.cuda.backend import CudaBackend
from exaul.kernels.game import ROUNDS, Block, Copies, Outcome, Rates
from exaul.kernels.records import StreamPlan

cuda = device.cuda
ARRAYS = 3  # device arrays of the size of the weights: the state and a launch's working memory


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
def _kernel(*arguments: Any) -> Any:
    """Return the kernel of ``device.kernel``, compiled once for the same arguments."""
    return toolchain.launchable(device.kernel(*arguments))


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
    """B copies on the backends ``cuda`` and ``cuda-warps``, by the protocol ``Simulation``."""

    on_host = False

    def __init__(
        self,
        kernels: CudaBackend,
        copies: Copies,
        best: NDArray[np.int32],
        arms: int,
        stream: TrialRecords,
        devices: int | None = None,
    ) -> None:
        """Send all that stays constant, and the state before round 1, to ``devices`` devices, or to all."""
        self.kernels, self.arms, self.plan = kernels, arms, stream.records.plan
        count = len(cuda.gpus) if devices is None else devices
        # Even parts; with more devices than copies, some parts are empty and get no arrays.
        edges = np.linspace(0, len(best), count + 1).astype(int)
        start = kernels.kind.start(arms, best)
        sizes = kernels.kind.sizes(kernels.lanes)
        wide = sizes.wide_words(arms), sizes.wide_words(arms), sizes.wide_sums(arms)
        kinds = np.uint32, np.int32, np.dtype(kernels.precision)
        made = records.record_generator(stream.records, stream.draws.decision)
        self.parts, self.sources, self.copies = [], [], []
        for number, (first, last) in enumerate(pairwise(edges)):
            if first == last:
                continue
            with _on_device(number):
                here = int(last - first)
                shapes = self._shape(wide[0], here), self._shape(wide[1], here), (here, wide[2])
                workspace = tuple(cuda.device_array(x, kind) for x, kind in zip(shapes, kinds, strict=True))
                state = cuda.to_device(self._laid_out(start[:, first:last]))
                sums = cuda.to_device(np.zeros(here, np.int64)), cuda.to_device(np.zeros(here))
                part = DevicePart(number, int(first), int(last), state, workspace, *sums)
                self.parts.append(part)
                self.sources.append(records.GeneratedRecords(*(cuda.to_device(x) for x in made)))
                self.copies.append(_send(part, copies))
        self.at_checkpoints: list[loops.KernelSums] = []

    def _shape(self, rows: int, copies: int) -> tuple[int, int]:
        return (rows, copies) if self.kernels.lanes == 1 else (copies, rows)

    def _laid_out(self, columns: NDArray[Any]) -> NDArray[Any]:
        """Convert [rows, B] to the layout on the device, or back."""
        return np.ascontiguousarray(columns if self.kernels.lanes == 1 else columns.T)

    def start(self, chunk: Chunk, rates: Rates) -> None:
        """Start to simulate a chunk."""
        blocks, step = chunk.schedule, generating_kernel(self.kernels, self.plan)
        rounds = blocks.active.sum(axis=1).astype(np.int32)
        schedule = loops.KernelSchedule(blocks.block, rounds, blocks.checkpoint_rounds, *rates)
        self.at_checkpoints = []
        for n, part in enumerate(self.parts):
            with _on_device(part.number):
                source = self.sources[n]
                # Launches are asynchronous: keep the sums' arrays until ``collect``, which waits when it copies
                # them.
                self.at_checkpoints.append(self._launch(step, part, source, schedule, self.copies[n], 1)[0])
                # Two buffers alternate: copies share streams, so a kernel must not write the numbers that other
                # copies of it still read. The next launch reads what this one writes.
                self.sources[n] = source._replace(
                    records_read=source.records_read_after, records_read_after=source.records_read
                )

    def _launch(
        self, step: Any, part: DevicePart, source: Any, schedule: loops.KernelSchedule, copies: Copies, rows: int
    ) -> tuple[loops.KernelSums, loops.KernelOutcome]:
        """Launch a kernel on the device of a part, and return its sums and its outcome."""
        count = part.last - part.first
        shape = *schedule.checkpoint_rounds.shape, count
        sums = loops.KernelSums(
            part.answered, part.wrong, cuda.device_array(shape, np.int64), cuda.device_array(shape, np.float64)
        )
        outcome = loops.KernelOutcome(
            *(cuda.device_array((rows, count), x) for x in (np.bool_, np.float64, np.float64))
        )
        _configured(step, -(-count * self.kernels.lanes // device.WARP))(
            part.state,
            self.arms,
            part.wide,
            source,
            loops.KernelSchedule(*(cuda.to_device(x) for x in schedule)),
            copies,
            sums,
            outcome,
        )
        return sums, outcome

    def collect(self) -> Totals:
        """Wait for the chunk."""
        answered, wrong = [], []
        for part, sums in zip(self.parts, self.at_checkpoints, strict=True):
            with _on_device(part.number):
                answered.append(sums.answered_at_checkpoints.copy_to_host())
                wrong.append(sums.wrong_at_checkpoints.copy_to_host())
        return Totals(np.concatenate(answered, axis=-1), np.concatenate(wrong, axis=-1))

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
                # Separate sums, so that a device check leaves those of the simulation as they are.
                zeros = [cuda.to_device(np.zeros(part.last - part.first, x)) for x in (np.int64, np.float64)]
                source = records.GivenRecords(*(cuda.to_device(x) for x in flat))
                other = part._replace(answered=zeros[0], wrong=zeros[1])
                outcome = self._launch(step, other, source, schedule, _send(part, copies), rows)[1]
                outcomes.append([x.copy_to_host() for x in outcome])
        answered, probability, middle = (np.concatenate(x, axis=1) for x in zip(*outcomes, strict=True))
        return Outcome(answered, probability, middle if self.kernels.middles else None)

    @property
    def state(self) -> NDArray[np.float64]:
        """The state of all copies, [rows, B], copied to the host."""
        found = []
        for part in self.parts:
            with _on_device(part.number):
                found.append(self._laid_out(part.state.copy_to_host()))
        return np.concatenate(found, axis=1)

    def save(self) -> tuple[NDArray[Any], ...]:
        """Return the state, the sums [B] of answers and of errors, and the records read [P, R].

        None depends on the number of devices.
        """
        answered, wrong, records_read = [], [], []
        for part, source in zip(self.parts, self.sources, strict=True):
            with _on_device(part.number):
                answered.append(part.answered.copy_to_host())
                wrong.append(part.wrong.copy_to_host())
                records_read.append(source.records_read.copy_to_host())
        # A device counts only the streams that its own copies read; the others stay at an earlier number.
        return self.state, np.concatenate(answered), np.concatenate(wrong), np.max(records_read, axis=0)

    def restore(self, tree: tuple[NDArray[Any], ...]) -> None:
        """Continue from what ``save`` returned."""
        state, answered, wrong, records_read = tree
        for part, source in zip(self.parts, self.sources, strict=True):
            here = slice(part.first, part.last)
            with _on_device(part.number):
                part.state.copy_to_device(self._laid_out(state[:, here]))
                part.answered.copy_to_device(np.ascontiguousarray(answered[here]))
                part.wrong.copy_to_device(np.ascontiguousarray(wrong[here]))
                # Both buffers: a stream that no copy of this device reads is never written, and must be right in
                # both.
                for counts in (source.records_read, source.records_read_after):
                    counts.copy_to_device(np.ascontiguousarray(records_read))

    def dense_state(self, rates: Rates, copies: Copies) -> Any:
        """Return the state that the dense backend would have."""
        assert self.kernels.dense_state is not None
        # CUDA backends keep copies last
        return jax.tree.map(np.transpose, self.kernels.dense_state(self.state, copies.parameters(rates)))

    @staticmethod
    def memory(state_bytes: int, totals_bytes: int, program: Callable[[], int] | None) -> tuple[int, int]:
        """Count the state on the host twice (as made and as sent), and ARRAYS times over the devices."""
        return 2 * state_bytes, (ARRAYS * state_bytes + totals_bytes) // max(1, len(cuda.gpus))


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
