"""A sweep on an executor has the bits of one process, whichever workers run its batches, and whatever fails."""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from tempfile import gettempdir
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from jax.errors import JaxRuntimeError

from exaul import BadInput, Sweep, resume, run
from exaul.commands.main import main
from exaul.engine import run as sweeps
from exaul.engine.executors import BatchFailed, Mismatch
from exaul.engine.simulation import batch
from tests.processes import refusal_of

SMALL = {"learners": ("exaul", "aci-rank"), "trials": 10, "horizon": 1500, "arms": 50, "checkpoints": 5}


pytestmark = pytest.mark.usefixtures("few_figures")


class Inline(Executor):
    """Run each batch at once, here; ``around(k, run_batch)`` runs call k, or does something else."""

    def __init__(self, around=lambda k, run_batch: run_batch()):
        self.around, self.sent = around, 0

    def submit(self, call, /, *arguments, **keywords):
        """Run a batch."""
        self.sent += 1
        future = Future()
        try:
            future.set_result(self.around(self.sent, lambda: call(*arguments, **keywords)))
        except Exception as error:
            future.set_exception(error)
        return future


class Watched(Executor):
    """Run each batch on an executor, and call a function when one has ended."""

    def __init__(self, executor, ended):
        self.executor, self.ended = executor, ended

    def submit(self, call, /, *arguments, **keywords):
        """Run a batch."""
        future = self.executor.submit(call, *arguments, **keywords)
        future.add_done_callback(lambda _: self.ended())
        return future


def compare(result, other):
    """Whether two results have the same tables, to the bit."""
    pd.testing.assert_frame_equal(result.trials, other.trials, check_exact=True)
    pd.testing.assert_frame_equal(result.curves, other.curves, check_exact=True)


@pytest.fixture(scope="module")
def expected():
    """The sweep, run whole."""
    return run(Sweep(**SMALL))


def test_processes_come_to_the_bits_of_the_whole(in_folder, expected):
    """Three batches on two workers; the folder is that of a sweep, without a trace of the batches."""
    run(Sweep(**SMALL, out="whole"))
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        compare(run(Sweep(**SMALL, out="parts"), executor=executor, batches=3), expected)
    names = {path.name for path in Path("parts").iterdir()}
    assert names == {path.name for path in Path("whole").iterdir()}
    for name in ("trials.csv", "curves.csv"):
        assert Path("parts", name).read_bytes() == Path("whole", name).read_bytes()


def test_a_worker_that_is_killed_costs_its_batches_alone(in_folder, expected):
    """The pool breaks; another one runs the rest, and no finished batch."""
    sweep = {**SMALL, "trials": 60, "horizon": 60_000}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        executor.submit(time.sleep, 0).result()
        (worker,) = executor._processes.values()
        with pytest.raises(BatchFailed):
            run(Sweep(**sweep, out="out"), executor=Watched(executor, worker.kill), batches=4)
        worker.join()
    assert -worker.exitcode == signal.SIGKILL
    finished = len(list(Path("out").glob("batches/*.npz")))
    assert 0 < finished < 4
    executor = Inline()
    compare(resume("out", executor=executor, batches=4), run(Sweep(**sweep)))
    assert executor.sent == 4 - finished
    assert resume("out", executor=executor) is None


def test_a_batch_that_fails_is_named_and_the_others_are_kept(in_folder, expected):
    """Workers see no folder: the counts of a batch come back with its future, and only this process writes.

    The sweep goes on in this process, or on another executor.
    """
    out = Path("out")

    def failing(k, run_batch):
        if k == 2:
            raise OSError("gone")
        paths = sorted(out.rglob("*"))
        result = run_batch()
        assert sorted(out.rglob("*")) == paths
        return result

    said = r"^trials 3 to 5 of triviaqa-like: OSError: gone; 3 of 4 batches are done and kept; continue with: .*\Z"
    with pytest.raises(BatchFailed, match=said):
        run(Sweep(**SMALL, out="out"), executor=Inline(failing), batches=4)
    assert not (out / "trials.csv").exists()
    shutil.copytree(out, "here")
    compare(resume("here", batches=1), expected)
    executor = Inline()
    compare(resume("out", executor=executor, batches=4), expected)
    assert executor.sent == 1


@pytest.mark.parametrize("runner", ["executor", "here"])
def test_a_batch_that_does_not_fit_the_memory_is_halved(runner, in_folder, expected, monkeypatch):
    """Until it fits; what has finished is not run again."""
    sizes, real = [], sweeps.simulate_batch

    def small(prepared, *arguments):
        sizes.append(len(prepared.trials))
        if sizes[-1] > 2 and prepared.trials[0] > 0:
            raise MemoryError("no memory")
        return real(prepared, *arguments)

    monkeypatch.setattr(sweeps, "simulate_batch", small)
    executor = Inline() if runner == "executor" else None
    compare(run(Sweep(**SMALL, out="out"), executor=executor, batches=2), expected)
    assert sizes == [5, 5, 3, 2, 2, 1]


@pytest.mark.parametrize("error", [MemoryError("no memory"), JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")])
def test_a_single_trial_that_does_not_fit_is_one_sentence(error, monkeypatch):
    """JAX has no class for it."""
    monkeypatch.setattr(batch, "_simulate_passes", mock.Mock(side_effect=error))
    for executor in (None, Inline()):
        with pytest.raises(BadInput, match="arms: a single trial does not fit the memory"):
            run(Sweep(**SMALL, backend="rows"), executor=executor)
    monkeypatch.setattr(batch, "_simulate_passes", mock.Mock(side_effect=JaxRuntimeError("INTERNAL")))
    with pytest.raises(JaxRuntimeError, match="INTERNAL"):
        run(Sweep(**SMALL, backend="rows"))


def test_a_worker_with_less_memory_gets_smaller_batches(expected, monkeypatch):
    monkeypatch.setattr(sweeps, "largest_batch", lambda prepared: 3)
    monkeypatch.setattr("exaul.engine.results.trials.SLICE", 10)  # the slices in which curves are computed
    executor = Inline()
    compare(run(Sweep(**SMALL), executor=executor), expected)
    assert executor.sent == 1 + 2 + 4  # of 10 trials, of at most 5, and of at most 3


def test_workers_on_different_devices_are_refused(expected):
    def other(k, run_batch):
        about, arrays = run_batch()
        return about if k == 1 else about | {"device": "gpu: another"}, arrays

    with pytest.raises(Mismatch, match=r"^device is 'gpu: another' on a worker, 'cpu: cpu' here$"):
        run(Sweep(**SMALL), executor=Inline(other), batches=2)


def test_traces_run_on_workers_which_read_them_for_each_run(in_folder):
    """All batches of all traces are sent at once. A cluster outlives a sweep, and a log may change between two."""
    sweep, executor, rng = Sweep(**SMALL, logs="."), Inline(), np.random.default_rng(0)
    for sent in (4, 8):
        for name in "ab":
            rows = (f"{score},{int(rng.random() > score)}" for score in rng.random(200))
            Path(f"{name}.csv").write_text("\n".join(["score,error", *rows]))
        result, other = run(sweep), run(sweep, executor=executor, batches=2)
        assert executor.sent == sent
        compare(result, other)
        pd.testing.assert_frame_equal(result.traces, other.traces, check_exact=True)


def test_an_executor_that_cannot_be_used_is_refused():
    sweep = Sweep(**SMALL)
    with (
        ProcessPoolExecutor(1, mp_context=get_context("fork")) as executor,
        pytest.raises(BadInput, match="executor: its workers are forked, which JAX does not survive"),
    ):
        run(sweep, executor=executor, batches=2)
    with pytest.raises(BadInput, match="records: given together with an executor"):
        run(sweep, [], executor=Inline(), batches=2)


@pytest.mark.parametrize("library", ["ray", "dask"])
def test_without_the_extra_a_sentence_says_so(library, capsys):
    if find_spec({"ray": "ray", "dask": "distributed"}[library]):
        pytest.skip("it is installed")
    assert main(["sweep", f"--{library}", "auto", "--trials", "2"]) == 2
    assert f"{library}: not installed; run: uv run --extra {library} exaul sweep" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:99999", "nowhere", ":6379"])
def test_a_ray_cluster_that_cannot_be_reached_is_one_line(address, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(__spec__=True))
    printed = refusal_of(["sweep", "--ray", address, "--trials", "2"], capsys)
    assert printed.startswith(f"exaul: --ray: {address} cannot" if "127" in address else "exaul: --ray: '")


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
    """Two nodes on this machine, of which one is removed after the first batch."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    from exaul.engine.executors import describe_error, on_ray

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        out = tmp_path / "out"
        with on_ray(cluster.address) as (executor, workers):
            assert workers == 2
            described = describe_error(executor.submit(int, "x").exception())
            assert re.fullmatch(r"ValueError: invalid literal[^\\]*", described)
            watched = Watched(executor, lambda: len(nodes) > 1 and cluster.remove_node(nodes.pop(), False))
            compare(run(Sweep(**LONG, out=str(out)), executor=watched, batches=6), run(Sweep(**LONG)))
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
        first = exaul("--out", str(out), "--batches=8", "--learners", *LONG["learners"], *fields)
        while first.poll() is None and len(list(out.glob("batches/[0-9]*.npz"))) < 2:
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
    """One of two processes, after the first batch."""
    distributed = pytest.importorskip("distributed")
    out = tmp_path / "out"
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        killed = []

        def kill():
            if not killed:
                killed.append(next(iter(cluster.workers.values())).process.pid)
                os.kill(killed[0], signal.SIGKILL)

        watched = Watched(client.get_executor(pure=False), kill)
        compare(run(Sweep(**LONG, out=str(out)), executor=watched, batches=6), run(Sweep(**LONG)))
    assert killed
    assert not (out / "batches").exists()
