"""The arms of least loss are the same on the host, on a device, and by plain sums over the records."""

import jax
import numpy as np
import pytest
from pandas.testing import assert_frame_equal

from exaul import Sweep, run
from exaul.engine.simulation import batch, best_arms_on_device, schedule
from exaul.engine.simulation.best_arms import BestArmCounter
from exaul.engine.simulation.best_arms_on_device import TracedBestArmCounter
from exaul.kernels.game import compute_costs
from exaul.kernels.records import Pool
from tests import games

ARMS, HORIZON, TRIALS = 40, 3000, 5
CHECKPOINTS = np.array([1, 255, 512, 2047, HORIZON])
COSTS = compute_costs(np.array([0.05, 0.3]), np.array([20.0, 1.0]))


def surveys(environment, ratings, restored=False):
    """The host's survey and a device's, of the same stream, run to its end."""
    rng = np.random.default_rng(0)
    sizes = (HORIZON, 77)[: games.OBLIVIOUS[environment].sources]
    errors = [rng.random(n) if ratings else (rng.random(n) < 0.3) * 1.0 for n in sizes]
    pools = [Pool(rng.integers(1, ARMS, len(e)).astype(np.int32), e) for e in errors]
    made = []
    with jax.enable_x64(True):
        for kind in (BestArmCounter, TracedBestArmCounter):
            stream = games.stream_of(pools, HORIZON, TRIALS, environment)
            first = stream.record_stream if kind is BestArmCounter else stream
            survey = kind(first, ARMS, CHECKPOINTS, *COSTS)
            for i, chunk in enumerate(schedule.make_chunks(stream, CHECKPOINTS, TRIALS)):
                survey.count_chunk(chunk)
                if restored and i == 0:
                    tree = jax.tree.map(np.array, survey.save())
                    survey = kind(first, ARMS, CHECKPOINTS, *COSTS)
                    survey.restore(tree)
            made.append(survey.best())
    return made


@pytest.mark.parametrize("ratings", [False, True])
@pytest.mark.parametrize("environment", ["gradual-shift", "replay"])
def test_a_device_finds_the_best_arms_of_the_host(environment, ratings, monkeypatch):
    monkeypatch.setattr(schedule, "CHUNK", 1)
    host, device = surveys(environment, ratings, restored=True)
    np.testing.assert_allclose(device.loss, host.loss, rtol=0, atol=1e-9)
    if not ratings:
        assert (device.arm == host.arm).all()


def test_no_program_of_a_device_has_a_branch(monkeypatch):
    """The host would wait at each; it knows which blocks have checkpoints, and starts one of two programs."""
    count, programs = best_arms_on_device._count_block, set()

    def lowered(*given):
        programs.add(count.lower(*given).as_text())
        return count(*given)

    monkeypatch.setattr(best_arms_on_device, "_count_block", lowered)
    surveys("gradual-shift", ratings=False)
    assert len(programs) == 2
    assert not any(branch in program for program in programs for branch in ("stablehlo.case", "stablehlo.if"))


def test_a_sweep_whose_records_are_made_on_the_device_alone(monkeypatch):
    """As on a GPU: without fixed arms the host is asked nothing, and the tables are the same but for rounding."""
    sweep = Sweep(backend="dense", learners=("exaul",), horizon=1500, arms=20, trials=4, alphas=(0.1, 0.3))
    expected = run(sweep)
    monkeypatch.setattr(batch, "platform", lambda: "gpu")
    monkeypatch.setattr(schedule.Chunk, "host_records", lambda chunk: pytest.fail("the host made records"))
    found = run(sweep)
    for name in ("trials", "curves"):
        assert_frame_equal(getattr(found, name), getattr(expected, name), rtol=0, atol=1e-9)
