"""A sweep in parts has the bits of the whole, whichever workers run the parts, and whatever fails."""

import fcntl
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from importlib.util import find_spec
from io import BytesIO
from multiprocessing import get_context
from pathlib import Path
from tempfile import gettempdir
from types import SimpleNamespace

import pandas as pd
import pytest

from exaul import BadInput, Sweep, resume, run
from exaul.commands.main import main
from exaul.engine.parts import PartsFailed, PartsJob, result_of
from exaul.engine.results import sealed
from exaul.engine.results.folder import lock
from exaul.engine.run import Mismatch

SMALL = {"learners": ("exaul", "aci-rank"), "trials": 10, "horizon": 1500, "arms": 50, "checkpoints": 5}


class Inline(Executor):
    """Run each part at once, here; ``around(k, run_part)`` runs part k, or does something else."""

    def __init__(self, around=lambda k, run_part: run_part()):
        self.around, self.sent = around, 0

    def submit(self, call, /, *given, **named):
        """Run a part."""
        self.sent += 1
        future = Future()
        try:
            future.set_result(self.around(self.sent, lambda: call(*given, **named)))
        except Exception as error:
            future.set_exception(error)
        return future


def same(one, other):
    """Whether two results have the same tables, to the bit."""
    pd.testing.assert_frame_equal(one.trials, other.trials, check_exact=True)
    pd.testing.assert_frame_equal(one.curves, other.curves, check_exact=True)


@pytest.fixture(scope="module")
def whole():
    """The sweep, run whole."""
    return run(Sweep(**SMALL))


def test_processes_come_to_the_bits_of_the_whole(tmp_path, whole):
    """Three parts on two workers; the folder is that of a sweep, without a trace of the parts."""
    run(Sweep(**SMALL, out=str(tmp_path / "whole")))
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        same(run(Sweep(**SMALL), executor=executor, parts=3), whole)
        same(run(Sweep(**SMALL, out=str(tmp_path / "parts")), executor=executor, parts=3), whole)
    names = {path.name for path in (tmp_path / "parts").iterdir()}
    assert names == {path.name for path in (tmp_path / "whole").iterdir()}
    for name in ("trials.csv", "curves.csv"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_worker_that_is_killed_costs_its_parts_alone(tmp_path, whole):
    """The pool breaks; another one runs the rest, and no finished part."""
    out = str(tmp_path / "out")
    sweep = {**SMALL, "trials": 60, "horizon": 60_000}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        first = executor.submit(time.sleep, 0)
        first.result()
        (worker,) = executor._processes.values()

        class Killing(Inline):
            def submit(self, call, /, *given, **named):
                self.sent += 1
                if self.sent == 3:
                    worker.kill()
                    worker.join()
                return executor.submit(call, *given, **named)

        with pytest.raises(PartsFailed):
            run(Sweep(**sweep, out=out), executor=Killing(), parts=4)
    assert -worker.exitcode == signal.SIGKILL
    executor = Inline()
    same(resume(out, executor=executor), run(Sweep(**sweep)))
    assert executor.sent == 4
    assert resume(out, executor=executor) is None


def test_a_sweep_in_parts_is_described_as_one(tmp_path):
    """Nothing is sent, and nothing is written."""
    executor = Inline()
    job = PartsJob.begin(Sweep(**SMALL, out=str(tmp_path / "out")), executor, 3)
    assert re.search(r"^copies +20 .*\n(.*\n)*disk ", job.describe(), re.MULTILINE)
    assert executor.sent == 0
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_fails_is_named_and_the_others_are_kept(tmp_path, whole):
    out = tmp_path / "out"

    def failing(k, run_part):
        if k == 2:
            raise MemoryError("no memory")
        return run_part()

    with pytest.raises(
        PartsFailed, match=r"^part 2 of 4: MemoryError: no memory; 3 are done and kept; continue with: "
    ) as x:
        run(Sweep(**SMALL, out=str(out)), executor=Inline(failing), parts=4)
    assert "\n" not in str(x.value)
    assert not (out / "trials.csv").exists()
    started = []

    def counting(k, run_part):
        before = (out / "state" / "parts" / str(k) / "counts.npz").exists()
        started.append(not before)
        return run_part()

    same(resume(str(out), executor=Inline(counting)), whole)
    assert started == [False, True, False, False]


def test_curves_so_far_are_there_while_it_runs(tmp_path):
    out, seen = tmp_path / "out", []

    def watching(k, run_part):
        seen.append((out / "curves.csv").exists())
        if k == 3:
            raise OSError("gone")
        return run_part()

    with pytest.raises(PartsFailed):
        run(Sweep(**SMALL, out=str(out)), executor=Inline(watching), parts=3, save_every=0)
    assert len(pd.read_csv(out / "curves.csv")) == 2 * 5


def test_workers_need_not_see_the_folder(tmp_path, whole):
    """The counts of a part come back with its future."""
    out = tmp_path / "out"

    def elsewhere(k, run_part):
        found = run_part()
        shutil.rmtree(out / "state" / "parts" / str(k))
        return found

    same(run(Sweep(**SMALL, out=str(out)), executor=Inline(elsewhere), parts=3), whole)


def test_a_part_whose_folder_is_locked_runs_elsewhere(tmp_path, whole, monkeypatch):
    """Whether or not the worker that holds the lock is lost, the bits are the same."""
    monkeypatch.setattr("exaul.engine.parts.LOCK_TIMEOUT", 0.1)
    out = tmp_path / "out"

    def locked(k, run_part):
        place = out / "state" / "parts" / str(k)
        place.mkdir(parents=True)
        with lock(place):
            return run_part()

    same(run(Sweep(**SMALL, out=str(out)), executor=Inline(locked), parts=2), whole)


def test_workers_on_different_devices_are_refused(whole):
    def other(k, run_part):
        about, blob = run_part()
        if k == 1:
            return about, blob
        there, stream = about | {"device": "gpu: another"}, BytesIO()
        sealed.write(stream, sealed.read(BytesIO(blob), "a part", about), there)
        return there, stream.getvalue()

    with pytest.raises(Mismatch, match=r"device is 'gpu: another' in .*, 'cpu: cpu' in "):
        run(Sweep(**SMALL), executor=Inline(other), parts=2)


def test_impossible_flags_are_one_sentence(tmp_path, capsys):
    sweep = Sweep(**SMALL)
    with pytest.raises(BadInput, match=r"parts: 11 found; it must be from 1 to 10, the number of trials"):
        run(sweep, executor=Inline(), parts=11)
    with pytest.raises(BadInput, match="shard: given"):
        run(Sweep(**SMALL, shard="1/2"), executor=Inline(), parts=2)
    with (
        ProcessPoolExecutor(1, mp_context=get_context("fork")) as executor,
        pytest.raises(BadInput, match="executor: its workers are forked, which JAX does not survive"),
    ):
        run(sweep, executor=executor, parts=2)
    run(Sweep(**SMALL, out=str(tmp_path / "done")))
    assert resume(str(tmp_path / "done"), executor=Inline()) is None
    with pytest.raises(BadInput, match="parts: 2 given, but no executor is"):
        run(sweep, parts=2)
    with pytest.raises(BadInput, match="records: given together with an executor"):
        run(sweep, [], executor=Inline(), parts=2)
    manifest = tmp_path / "done" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"end": None}))
    with pytest.raises(BadInput, match="was not begun in parts; continue with: exaul sweep --resume"):
        resume(str(tmp_path / "done"), executor=Inline())
    for flags, sentence in (
        (["--parts", "3"], "parts: given, but neither ray nor dask is"),
        (["--ray", "auto", "--dask", "local"], "ray: given together with dask"),
        (["--ray", "auto", "--parts", "0"], "parts: 0 found"),
        (["--dask", "local", "--each", "model"], "--dask local: given, but a sweep over traces runs on one"),
        (["--ray", "auto", "--logs", str(tmp_path)], "--ray auto: given, but a sweep over traces runs on one"),
    ):
        assert main(["sweep", *flags]) == 2
        assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("library", ["ray", "dask"])
def test_without_the_extra_a_sentence_says_so(library, capsys):
    if find_spec({"ray": "ray", "dask": "distributed"}[library]):
        pytest.skip("it is installed")
    assert main(["sweep", f"--{library}", "auto", "--trials", "2"]) == 2
    assert f"{library}: not installed; run: uv run --extra {library} exaul sweep" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:99999", "nowhere", ":6379"])
def test_a_ray_cluster_that_cannot_be_reached_is_one_line(address, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())
    assert main(["sweep", "--ray", address, "--trials", "2"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"exaul: ray: {address} cannot be reached" if "127" in address else "exaul: ray: '")
    assert printed.count("\n") == 1


LONG = {"learners": ("exaul", "aci-rank"), "trials": 96, "horizon": 150_000, "arms": 200}


@pytest.fixture
def alone_on_ray():
    """No other test of this machine uses Ray: ``ray stop`` ends every cluster on it."""
    with (Path(gettempdir()) / "exaul-tests-ray.lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("alone_on_ray")
def test_a_ray_node_that_goes_in_the_middle(tmp_path):
    """Two nodes on this machine, of which one is removed after the first part."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    from exaul.engine.executors import ClusterFlags as Named

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        out = tmp_path / "out"
        with Named(ray=cluster.address).workers() as (executor, workers):
            assert workers == 2
            with pytest.raises(PartsFailed, match=r"^a call: ValueError: invalid literal[^\\]*$"):
                result_of(executor.submit(int, "x"), "a call")

            class Watched(Executor):
                def submit(self, call, /, *given, **named):
                    future = executor.submit(call, *given, **named)
                    future.add_done_callback(lambda _: len(nodes) > 1 and cluster.remove_node(nodes.pop(), False))
                    return future

            same(run(Sweep(**LONG, out=str(out)), executor=Watched(), parts=6, save_every=1), run(Sweep(**LONG)))
        assert len(nodes) == 1
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.mark.slow
@pytest.mark.usefixtures("alone_on_ray")
def test_a_ray_head_that_dies_and_comes_back(tmp_path, monkeypatch):
    """The command ends when Ray gives up; resumed with another head, the sweep has the bits of the whole."""
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "5")
    programs, address, out = Path(sys.executable).parent, "127.0.0.1:6399", tmp_path / "out"

    def ray(*words):
        subprocess.run([programs / "ray", *words], check=True, capture_output=True, timeout=120)

    def exaul(*words):
        return subprocess.Popen([programs / "exaul", "sweep", "--ray", address, *words], stderr=subprocess.PIPE)

    fields = [f"--{name}={value}" for name, value in LONG.items() if name != "learners"]
    try:
        ray("start", "--head", "--num-cpus=2", "--port=6399", "--include-dashboard=false")
        first = exaul("--out", str(out), "--parts=8", "--save-every=1", "--learners", *LONG["learners"], *fields)
        while first.poll() is None and len(list(out.glob("state/parts/*/counts.npz"))) < 2:
            time.sleep(0.1)
        ray("stop", "--force")
        assert first.wait(120) != 0
        ray("start", "--head", "--num-cpus=2", "--port=6399", "--include-dashboard=false")
        second = exaul("--resume", str(out))
        assert second.wait(120) == 0, second.stderr.read().decode()
    finally:
        ray("stop", "--force")
    run(Sweep(**LONG, out=str(tmp_path / "whole")))
    for name in ("trials.csv", "curves.csv"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
def test_a_dask_worker_that_is_killed(tmp_path):
    """One of two processes, after the first part."""
    distributed = pytest.importorskip("distributed")
    out = tmp_path / "out"
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        executor, killed = client.get_executor(pure=False), []

        class Watched(Executor):
            def submit(self, call, /, *given, **named):
                future = executor.submit(call, *given, **named)

                def kill(_):
                    if not killed:
                        killed.append(next(iter(cluster.workers.values())).process.pid)
                        __import__("os").kill(killed[0], signal.SIGKILL)

                future.add_done_callback(kill)
                return future

        same(run(Sweep(**LONG, out=str(out)), executor=Watched(), parts=6, save_every=1), run(Sweep(**LONG)))
    assert killed
    assert not (Path(out) / "state").exists()
