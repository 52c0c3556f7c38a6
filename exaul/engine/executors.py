"""Executors on Ray and Dask clusters."""

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from exaul.engine.checks import BadInput, Configuration, check_holds, join_lines, setting

LOCAL_ADDRESSES = "auto", "local"  # addresses that mean the cluster running here, or a new one on this machine
TIMEOUT = 10  # seconds for a connection
LOST = 10**6  # lost workers after which Dask gives a part up; practically never, as spot instances come and go


@dataclass(frozen=True, kw_only=True)
class ClusterFlags(Configuration):
    """The cluster that runs a sweep, if any. Every field is a flag; BadInput if two clusters are named."""

    ray: str | None = setting(None, "run on a Ray cluster: auto, or HOST:PORT", "ADDRESS")
    dask: str | None = setting(None, "run on a Dask cluster: local, or the address of its scheduler", "ADDRESS")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ray is not None and self.dask is not None:
            raise BadInput("ray: given together with dask; choose one of the two")

    @property
    def named(self) -> bool:
        """Whether a cluster is named."""
        return self.ray is not None or self.dask is not None

    @property
    def flag(self) -> str:
        """The flag that names the cluster, with its value."""
        return f"--dask {self.dask}" if self.dask is not None else f"--ray {self.ray}"

    def workers(self) -> AbstractContextManager[tuple[Executor, int]]:
        """Return a context of an executor and how many calls it runs at once; BadInput if it cannot be reached."""
        return _on_dask(self.dask) if self.dask is not None else _on_ray(str(self.ray))


class _Ray(Executor):
    """An executor of Ray tasks."""

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus

    def submit(self, call: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        """Send a call."""
        import ray

        # max_retries=-1: a task whose machine is lost is always sent again. max_calls=0: workers are kept, so that
        # each compiles a program once.
        task = ray.remote(num_cpus=1, num_gpus=self._gpus, max_retries=-1, max_calls=0)(_called)
        return task.remote(call, *given, **named).future()


def _called(call: Callable[..., Any], *given: Any, **named: Any) -> Any:
    # Ray accepts functions only, and a call may be a ``partial``.
    return call(*given, **named)


@contextmanager
def _on_ray(address: str) -> Iterator[tuple[Executor, int]]:
    try:
        import ray
    except ImportError as error:
        raise BadInput(f"ray: not installed; run: uv run --extra ray exaul sweep --ray {address}") from error
    if address not in LOCAL_ADDRESSES:
        _check_reachable(address)
    started = not ray.is_initialized()  # a caller may be connected already; then the connection stays open
    try:
        if started:
            ray.init(
                address=None if address in LOCAL_ADDRESSES else address,
                log_to_driver=False,
                include_dashboard=False,
            )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise BadInput(f"ray: {address} cannot be reached ({join_lines(str(error))})") from error
    try:
        there = ray.cluster_resources()
        gpus = int(there.get("GPU", 0))
        yield _Ray(min(1, gpus)), gpus or int(there.get("CPU", 1))
    finally:
        if started:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise BadInput unless HOST:PORT accepts a connection; Ray would try for a minute and print its own lines."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    check_holds("ray", address, bool(host) and port.isdecimal(), "auto, or HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=TIMEOUT).close()
    except (OSError, OverflowError) as error:
        raise BadInput(f"ray: {address} cannot be reached ({error})") from error


@contextmanager
def _on_dask(address: str) -> Iterator[tuple[Executor, int]]:
    try:
        import dask
        from distributed import Client
    except ImportError as error:
        raise BadInput(f"dask: not installed; run: uv run --extra dask exaul sweep --dask {address}") from error
    with dask.config.set({"distributed.scheduler.allowed-failures": LOST}):
        try:
            client = (
                Client(threads_per_worker=1) if address in LOCAL_ADDRESSES else Client(address, timeout=TIMEOUT)
            )
        except (OSError, ValueError, TimeoutError) as error:
            raise BadInput(f"dask: {address} cannot be reached ({join_lines(str(error))})") from error
        with client:
            yield client.get_executor(pure=False), max(1, sum(client.ncores().values()))
