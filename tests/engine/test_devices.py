"""Results have one hash on all devices, processes and batches; memory is estimated in advance."""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from exaul import Sweep, run
from exaul.commands.main import main
from exaul.engine import machine
from exaul.engine.simulation import batch, resources, rounds, schedule
from exaul.engine.simulation.prepare import prepare

ROOT = Path(__file__).parents[2]
GAME = {"trials": 7, "horizon": 700, "arms": 32, "alphas": (0.1, 0.3), "checkpoints": 9}
COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "all-to-all",
    "collective-permute",
    "reduce-scatter",
    "collective-broadcast",
)

SCRIPT = """
import sys, jax
from exaul.engine.simulation import rounds
from tests.engine.test_devices import digest
texts = []
class Spy:
    def __init__(self, program): self.program = program
    def __call__(self, *given):
        texts.append(self.program.lower(*given).compile().as_text())
        return self.program(*given)
rounds.simulate_chunk = Spy(rounds.simulate_chunk)
print(len(jax.local_devices()), digest(eval(sys.argv[1])))
print(sum(name in text for text in texts for name in sys.argv[2].split()), len(texts))
"""


def digest(games):
    """The hash of what some games report, on the devices of this process."""
    found = hashlib.sha256()
    for environment, backend, learners in games:
        given = {"environment": environment, "backend": backend, "learners": learners}
        result = run(Sweep(**GAME | given | {"trials": 37, "alphas": (0.1, 0.2, 0.3)}))
        found.update((result.trials.to_csv() + result.curves.to_csv()).encode())
    return found.hexdigest()


@pytest.mark.parametrize(
    ("copies", "slots", "blocks"), [(1, 1, 512), (1000, 1, 512), (65_536, 2, 16), (10**6, 1, 4), (1000, 256, 64)]
)
def test_a_launch_is_neither_long_nor_large(copies, slots, blocks):
    """At most 2**17 rounds, 2**28 rounds of copies, and as much memory for checkpoints, but always a whole span."""
    assert schedule.blocks_per_chunk(copies, slots, on_host=False) == blocks


def test_the_memory_of_a_device_is_estimated_for_it(monkeypatch):
    """The survey, the pools and the totals at checkpoints; if adaptive, the survey is on the host."""
    monkeypatch.setattr(resources, "resident_bytes", lambda: 0)
    told = {}
    for environment in ("stochastic", "always-wrong"):
        ready = prepare(Sweep(**GAME, environment=environment, learners=("exaul",), backend="dense"))
        for platform in ("cpu", "gpu"):
            monkeypatch.setattr(resources.machine, "platform", lambda platform=platform: platform)
            told[environment, platform] = resources.estimate_resources(ready, 7, compiled=False)
    survey = 7 * GAME["arms"] * 8 * 9
    pools = 16 * len(prepare(Sweep(**GAME)).pools[0].cuts)
    assert told["stochastic", "gpu"].device - told["stochastic", "cpu"].device > survey + pools
    program = told["always-wrong", "cpu"].device
    checkpoints = told["always-wrong", "gpu"].device - program
    assert 0 < checkpoints < pools
    assert told["always-wrong", "cpu"].host - program == told["always-wrong", "gpu"].host


def test_a_save_needs_a_copy_of_every_state(tmp_path):
    """It is written while the game goes on. In an adaptive environment the game waits for it."""
    for environment, copied in (("stochastic", True), ("always-wrong", False)):
        sweep = GAME | {"environment": environment, "learners": ("exaul",), "backend": "dense", "arms": 10_000}
        without, saved = (
            resources.estimate_resources(prepare(Sweep(**sweep, out=out)), 7, compiled=False).host
            for out in (None, str(tmp_path / "out"))
        )
        state = 8 * 10_000 * 32  # 14 copies in one tile
        counts = 7 * 10_000 * 16
        assert abs(saved - without - copied * (state + counts)) < 2**19


def on_devices(count, games):
    """The hash of some games on so many forced host devices, having looked for collectives in their programs."""
    env = os.environ | {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={count}",
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, repr(games), " ".join(COLLECTIVES)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (devices, found), (collectives, programs) = (line.split() for line in done.stdout.splitlines())
    assert int(devices) == count
    assert int(collectives) == 0
    assert int(programs) > 0
    return found


def test_two_devices_give_the_bits_of_one():
    games = [("single-shift", "dense", ("exaul", "best-fixed")), ("adversary-history", None, ("exaul",))]
    assert on_devices(2, games) == digest(games)


@pytest.mark.slow
def test_one_two_and_four_devices_give_one_hash():
    games = [
        ("stochastic", "dense", ("exaul", "exp3-ix", "no-abstention", "best-fixed")),
        ("replay", "blocks", ("exaul", "ew")),
        ("gradual-shift", "rows", ("exp3-ix",)),
        ("single-shift", "blocks", ("exaul",)),
        ("adversary-history", "rows", ("exaul", "exp3-ix")),
        ("adversary-omniscient", "rows", ("ew",)),
    ]
    assert len({on_devices(count, games) for count in (1, 2, 4)}) == 1


def tables(**given):
    result = run(Sweep(**GAME | given))
    return result.trials.to_csv(), result.curves.to_csv()


@pytest.mark.parametrize(
    ("environment", "learners"), [("single-shift", ("exaul", "no-abstention")), ("adversary-history", ("exaul",))]
)
def test_batches_do_not_change_a_bit(environment, learners, monkeypatch):
    """The slices in which curves are computed change no bit either."""
    given = {"environment": environment, "learners": learners}
    whole = tables(**given)
    for most in (1, 3):
        monkeypatch.setattr("exaul.engine.batches.largest_batch", lambda prepared, most=most: most)
        monkeypatch.setattr("exaul.engine.results.trials.SLICE", 10 * most)
        assert tables(**given) == whole


def test_out_of_memory_halves_the_batch(monkeypatch):
    whole, sizes = tables(), []
    simulate = batch.simulate_rollouts

    def short(rollouts, stream, *given):
        sizes.append(len(stream.trials))
        if len(stream.trials) > 2:
            raise MemoryError
        simulate(rollouts, stream, *given)

    monkeypatch.setattr(batch, "simulate_rollouts", short)
    assert tables() == whole
    assert sizes[0] == 7


def test_programs_of_earlier_sources_are_freed_before_they_crash_the_process(monkeypatch):
    sizes, simulate = [], rounds.simulate_chunk

    def counted(*given):
        found = simulate(*given)
        sizes.append(simulate._cache_size())
        return found

    monkeypatch.setattr(rounds, "simulate_chunk", counted)
    for most in (10**9, 0):
        monkeypatch.setattr(machine, "MAPS", most)
        for horizon in (200, 600):
            tables(backend="dense", learners=["exaul"], horizon=horizon, checkpoints=("1",))
    assert sizes[1] == sizes[0] + 1
    assert sizes[-1] == 1


def test_little_memory_makes_small_batches(monkeypatch):
    prepared = prepare(Sweep(trials=1000))
    assert resources.largest_batch(prepared) == 1000
    needed = [resources.estimate_resources(prepared, many, compiled=False).host for many in (1000, 500, 250)]
    assert needed == sorted(needed, reverse=True)
    monkeypatch.setattr(resources, "host_memory", lambda: int(needed[1] / resources.SHARE) + 1)
    assert resources.largest_batch(prepared) == 500


def test_a_dry_run_simulates_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("exaul.engine.simulation.batch.simulate_rollouts", None)
    out = tmp_path / "out"
    assert main(["sweep", "--dry-run", "--trials", "30", "--alphas", "0.1", "0.2", "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert re.findall(r"^(\w+)", told, re.MULTILINE) == ["cells", "copies", "rounds", "memory", "programs", "disk"]
    assert "420 (cells x trials), in 1 batch" in told
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
def test_the_estimated_memory_is_the_peak_within_a_factor(argv, capsys):
    """At most 1.5 either way, of the largest resident size of a process that runs it."""
    program = "import resource, sys; from exaul.commands.main import main; main(sys.argv[1:]); "
    program += "print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"

    def told(*flags):
        env = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-c", program, "sweep", *argv.split(), *flags]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    number, unit = re.search(r"memory\s+about ([0-9.]+) ([GM])iB", told("--dry-run")).groups()
    expected = float(number) * (1024 if unit == "G" else 1)
    peak = int(re.search(r"peak (\d+)", told()).group(1)) / 1024
    assert 1 / 1.5 < expected / peak < 1.5, (expected, peak)
