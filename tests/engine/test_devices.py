"""What a device computes and holds; the memory of a sweep is bounded in advance."""

import re

import pandas as pd
import pytest

from exaul import Sweep, run
from exaul.engine import machine
from exaul.engine.simulation import agreement, batch, chunks, jax_chunks
from exaul.engine.simulation.prepare import prepare_source
from tests.processes import output_of, python

GAME = {"trials": 7, "horizon": 700, "arms": 32, "alphas": (0.1, 0.3), "checkpoints": 9}


def test_what_is_on_a_device_is_counted_for_it(monkeypatch):
    """The states of all learners, and the pools."""
    ready = prepare_source(Sweep(**GAME, learners=("exaul",), backend="dense"))
    assert batch.bound_resources(ready, 7).device == 0
    monkeypatch.setattr(batch.machine, "platform", lambda: "gpu")
    assert batch.bound_resources(ready, 7).device > 3 * 8 * GAME["arms"] * 7


def test_a_device_finds_the_best_arms_and_counts_fixed_ones(monkeypatch):
    """JAX on this machine stands for it; the chunks are of one span."""
    fields = GAME | {"environment": "gradual-shift", "learners": ("aci-rank", "best-fixed"), "horizon": 1500}
    expected = run(Sweep(**fields))
    monkeypatch.setattr(machine, "platform", lambda: "gpu")
    monkeypatch.setattr(agreement, "device_agrees", lambda *learner: True)
    monkeypatch.setattr(chunks, "DEVICE_CHUNK", 1)
    result = run(Sweep(**fields))
    first, second = result.manifest["sources"][0]["learners"]
    assert first == {"learner": "aci-rank", "backend": "blocks", "feedback": "bandit"}
    assert second["backend"] == "blocks"
    for name in ("trials", "curves"):
        pd.testing.assert_frame_equal(getattr(result, name), getattr(expected, name), rtol=1e-12)


def test_programs_of_earlier_sources_are_freed_before_they_crash_the_process(monkeypatch):
    sizes = []
    for limit, horizon in ((10**9, 200), (10**9, 600), (0, 200)):
        monkeypatch.setattr(machine, "MOST_MAPS", limit)
        run(Sweep(**GAME | {"backend": "dense", "learners": ["exaul"], "horizon": horizon, "checkpoints": 1}))
        sizes.append(jax_chunks.simulate_chunk._cache_size())
    assert sizes[1] == sizes[0] + 1
    assert sizes[2] == 1


def test_little_memory_makes_small_batches(monkeypatch):
    prepared = prepare_source(Sweep(trials=1000))
    assert batch.largest_batch(prepared) == 1000
    needed = [batch.bound_resources(prepared, trials).host for trials in (1000, 500, 250)]
    assert needed == sorted(needed, reverse=True)
    monkeypatch.setattr(machine, "host_memory", lambda: int(needed[1] / machine.USABLE_SHARE) + 1)
    assert batch.largest_batch(prepared) == 500


def test_a_dry_run_simulates_nothing(tmp_path, capsys, monkeypatch):
    """``docs/long-sweeps.md`` has its text."""
    monkeypatch.setattr("exaul.engine.simulation.batch.simulate_pass", None)
    out = tmp_path / "out"
    output_of(["sweep", "--dry-run", "--out", str(out)], capsys)
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "argv",
    [
        "--trials 100",
        "--trials 3000 --horizon 2000 --learners exaul",
        "--trials 200 --horizon 3000 --learners exaul ew --environment single-shift --backend dense",
        "--trials 300 --horizon 2000 --learners exaul --environment adversary-history",
        "--trials 200 --arms 16000 --learners exaul --horizon 2000",
    ],
)
def test_the_memory_of_a_sweep_is_at_most_what_is_said_and_at_least_a_third(argv, capsys):
    program = "import sys; from exaul.commands.main import main; main(sys.argv[1:]); "
    program += "print(open('/proc/self/status').read())"

    def text(*flags):
        return python(program, "sweep", *argv.split(), *flags).stdout

    number, unit = re.search(r"memory\s+at most ([0-9.]+) ([GM])iB", text("--dry-run")).groups()
    expected = float(number) * (1024 if unit == "G" else 1)
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", text()).group(1)) / 1024
    assert 1 <= expected / peak <= 3, (expected, peak)


@pytest.mark.parametrize("version", [1, 2])
def test_limits_of_containers_count(version, tmp_path, monkeypatch):
    """The free memory is the limit of an ancestor group, less the memory in use but for droppable caches."""
    root = tmp_path / "cgroup" / ("memory" if version == 1 else "")
    inner = root / "outer" / "inner"
    inner.mkdir(parents=True)
    limit, used, cache = machine.CGROUP_FILES[2 - version]
    for folder, maximum, in_use in ((root / "outer", "500000", "300000"), (inner, "max", "200000")):
        (folder / limit).write_text(maximum + "\n")
        (folder / used).write_text(in_use + "\n")
        (folder / "memory.stat").write_text(f"anon 5\n{cache} 40000\n")
    cgroups = tmp_path / "own"
    cgroups.write_text("4:memory:/outer/inner\n1:cpu:/\n" if version == 1 else "0::/outer/inner\n")
    monkeypatch.setattr(machine, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(machine, "OWN_CGROUPS", cgroups)
    assert machine.host_memory() == 240_000
    cgroups.write_text("")
    assert machine.host_memory() > 2**20
