"""What ``test_cuda`` runs in a process where Numba simulates CUDA: launches against the same loops in Python."""

import warnings

import numpy as np
import pytest
from numba import cuda
from numba.cuda import libdevice
from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray
from pandas.testing import assert_frame_equal

from exaul import Sweep, run
from exaul.engine.simulation import launched
from exaul.engine.simulation.launched import LaunchedSimulation
from exaul.engine.simulation.schedule import Chunk, Schedule, TrialRecords
from exaul.kernels.backends.cuda import device, loops, records
from exaul.kernels.backends.cuda.backend import make, make_by_warps
from exaul.kernels.game import ROUNDS, Block, Copies, Rates, compute_costs
from exaul.kernels.uniforms import Draws
from tests import one_copy
from tests.games import LEARNERS, first_of
from tests.kernels.test_cuda import source_of, streams

COPIES, ARMS, ACTIVE = 3, 10, np.array([20, 10], np.int32)  # rounds of two blocks


def main():
    """Simulate a chunk of two blocks in one launch, in two, and on two devices, and blocks that are handed in."""
    libdevice.double_as_longlong, libdevice.longlong_as_double = one_copy.bits, one_copy.number  # not simulated
    device._reciprocal = lambda x: 1.0 / x  # an instruction of the device
    rng = np.random.default_rng(0)
    backend = make(LEARNERS["exaul"], "float64")
    nothing = first_of(LEARNERS["exaul"].rule, ARMS, COPIES)
    alpha = np.array([0.05, 0.2, 0.5])
    record, draw = np.array([0, 1, 0], np.int32), np.arange(COPIES, dtype=np.int32)
    numbers = Copies(alpha, *compute_costs(alpha, np.array([1.0, 5.0, 20.0])), record, draw)
    block = np.arange(2, dtype=np.uint32)
    checkpoint_rounds = np.array([[7, 20], [10, 0]], np.int32)
    rates = Rates(np.array([0.2, 0.1]), np.array([0.1, 0.05]))
    schedule = loops.KernelSchedule(block, ACTIVE, checkpoint_rounds, *rates)
    source = streams(rng, 2, ARMS, 2 * ROUNDS)
    draws = tuple(rng.integers(0, 2**32, (2, COPIES), np.uint32))
    active = np.arange(ROUNDS) < ACTIVE[:, None]
    stream = TrialRecords(source, 2 * ROUNDS, 0, np.arange(COPIES))
    stream.draws = Draws(draws)

    state, sums, result = one_copy.fresh(backend.kind, nothing, ARMS, 2, 2)
    game = records.record_generator(source, draws)
    more = game, schedule, numbers, sums, result
    one_copy.simulate_in_lanes(1, backend.kind, source_of, True, state, ARMS, *more, pools=2)
    right = state, sums.answered, sums.wrong, game.records_read_after

    def same(tree):
        for x, y in zip(tree, right, strict=True):
            np.testing.assert_array_equal(x, y)

    def begun(devices):
        return LaunchedSimulation(backend, numbers, nothing, ARMS, stream, devices)

    def start(simulation, blocks=slice(None)):
        some = Schedule(block[blocks], active[blocks], checkpoint_rounds[blocks])
        simulation.start(Chunk(some, stream), Rates(*(x[blocks] for x in rates)))

    for name, making in (("exaul", make_by_warps), ("aci-rank", make)):
        fresh = making(LEARNERS[name], "float64")
        log = np.array([1, 4, 2, 2], np.int32), np.array([1.0, 0.0, 0.0, 0.0])
        first = first_of(LEARNERS[name].rule, ARMS, COPIES, alphas=np.linspace(0.1, 0.9, COPIES), log=log)
        started = LaunchedSimulation(fresh, numbers, first, ARMS, stream, 2).state
        np.testing.assert_array_equal(started, fresh.kind.first(ARMS, first))
    print("filled")

    whole = begun(1)
    start(whole)
    for x, y in zip(whole.collect(), sums[2:], strict=True):
        np.testing.assert_array_equal(x[checkpoint_rounds > 0], y[checkpoint_rounds > 0])
    same(whole.save())
    print("made")

    first, second = begun(1), begun(1)
    start(first, slice(1))
    second.restore(first.save())
    start(second, slice(1, 2))
    same(second.save())
    print("saved")

    divided, launches = begun(1), []
    divided.blocks, launch = 1, divided._launch
    divided._launch = lambda *given: launches.append(len(given[3].block)) or launch(*given)
    start(divided)
    for x, y in zip(divided.collect(), sums[2:], strict=True):
        np.testing.assert_array_equal(x[checkpoint_rounds > 0], y[checkpoint_rounds > 0])
    same(divided.save())
    assert launches == [1, 1]
    print("divided")

    def refused(*given, **more):
        raise AssertionError

    received, copy = [], FakeCUDAArray.copy_to_host
    with pytest.MonkeyPatch.context() as patch:
        for name in ("to_device", "device_array", "pinned_array"):
            patch.setattr(cuda, name, refused)
        patch.setattr(FakeCUDAArray, "copy_to_host", refused)
        start(divided)
        patch.setattr(FakeCUDAArray, "copy_to_host", lambda x, **more: received.append(x.shape) or copy(x, **more))
        (part,) = divided.parts
        for milliseconds, blocks in ((100.0, 10), (600.0, 1), (4000.0, 1), (0.0, 1000)):
            part.begun.elapsed_time = {part.ended: milliseconds}.get
            divided.collect()
            assert divided.blocks == blocks
    assert received == 4 * 2 * [(2, 2, COPIES)]
    print("frugal")

    split = begun(2)
    start(split)
    same(split.save())
    print("split")

    handed = Block(
        rng.integers(1, ARMS, (2, ROUNDS, 2)).astype(np.int32),
        rng.random((2, ROUNDS, 2)),
        Draws(rng.random((2, ROUNDS, COPIES))),
        active,
    )
    outcome = begun(1).advance(handed, rates, numbers)
    state, sums, result = one_copy.fresh(backend.kind, nothing, ARMS, 2, 2)
    given = records.GivenRecords(
        *(x.reshape(2 * ROUNDS, -1) for x in (handed.cuts, handed.errors, handed.draws.decision))
    )
    more = given, schedule, numbers, sums, result
    one_copy.simulate_in_lanes(1, backend.kind, records.read_given_records, True, state, ARMS, *more)
    for x, y in zip(outcome[:2], result, strict=False):
        np.testing.assert_array_equal(x[handed.active.ravel()], y[handed.active.ravel()])
    print("given")

    sweep = {"trials": 2, "horizon": 12, "arms": 5, "environment": "gradual-shift", "checkpoints": 2}
    sweep["learners"] = ("exaul", "aci-rank", "best-fixed")  # fixed arms are counted on the host
    result, right = (run(Sweep(**sweep, backend=where)) for where in ("cuda", "dense"))
    assert [player["backend"] for player in result.manifest["sources"][0]["players"]] == ["cuda", "cuda", "native"]
    assert_frame_equal(result.trials, right.trials, rtol=0, atol=1e-9)
    assert_frame_equal(result.curves, right.curves, rtol=0, atol=1e-9)
    print("swept")

    class Few:
        """A kernel that says at few blocks what numba-cuda says."""

        def __getitem__(self, how):
            warnings.warn(f"Grid size {how[0]} ... low occupancy", stacklevel=1)
            return how

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert launched._configured(Few(), 4, whole.parts[0]) == (4, 32, whole.parts[0].stream)

    def full(*given):
        raise RuntimeError("[2] CUDA_ERROR_OUT_OF_MEMORY")

    cuda.device_array = full
    with pytest.raises(MemoryError, match=r"CUDA device 0: .* CUDA_ERROR_OUT_OF_MEMORY"):
        begun(1)
    print("full")


if __name__ == "__main__":
    main()
