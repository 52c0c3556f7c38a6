"""Executors: calls on the workers of a pool, or of a Ray or Dask cluster."""

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

from exaul.engine.checks import BadInput, check_holds, check_installed, join_lines

LOCAL_ADDRESSES = "auto", "local"  # addresses that mean the cluster running here, or a new one on this machine
TIMEOUT = 10  # seconds for a connection (chosen)
LOST_WORKERS = 10**6  # lost workers after which Dask gives up a call: in effect never: spot instances come and go


class Mismatch(ValueError):
    """Shards or workers do not belong to one sweep; the sentence says why."""


class BatchFailed(RuntimeError):
    """A call that was sent to a worker failed; the message names it and, if possible, how to continue."""


def check_workers(executor: Executor) -> None:
    """Raise BadInput if an executor forks its workers from this process."""
    # private, but the only place where ProcessPoolExecutor keeps its start method
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        raise BadInput(
            'executor: its workers are forked, which JAX does not survive; use mp_context=get_context("spawn")'
        )


def cause_of(error: Exception) -> Exception:
    """Return the exception that a worker raised, without the one that Ray wraps around it."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, Exception) else error


def describe_error(error: Exception) -> str:
    """Return the class and the text of the exception that a worker raised, in one line."""
    error = cause_of(error)
    return join_lines(f"{type(error).__name__}: {error}")


class _Ray(Executor):
    """An executor of Ray tasks."""

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Future[Any]:
        """Send a call of a function: Ray takes no ``partial``."""
        import ray

        # max_retries=-1: a task whose machine is lost is always sent again. max_calls=0: workers are kept, so that
        # each compiles a program once.
        task = ray.remote(num_cpus=1, num_gpus=self._gpus, max_retries=-1, max_calls=0)(call)
        return task.remote(*arguments, **keywords).future()


@contextmanager
def on_ray(address: str) -> Iterator[tuple[Executor, int]]:
    """Return a context: an executor, and how many calls it runs at once. ``BadInput``: it is out of reach."""
    check_installed(("ray",), f"run: uv run --extra ray exaul sweep --ray {address}")
    import ray

    remote = None if address in LOCAL_ADDRESSES else address
    if remote is not None:  # Ray would try for a minute and print its own lines
        host, _, port = remote.removeprefix("ray://").rpartition(":")
        check_holds("ray", remote, bool(host) and port.isdecimal(), "auto, or HOST:PORT")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=TIMEOUT).close()
        except (OSError, OverflowError) as error:
            raise BadInput(f"ray: {remote} cannot be reached ({error})") from error
    started = not ray.is_initialized()  # a caller may be connected already; then the connection stays open
    try:
        if started:
            ray.init(address=remote, log_to_driver=False, include_dashboard=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise BadInput(f"ray: {address} cannot be reached ({join_lines(str(error))})") from error
    try:
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        yield _Ray(min(1, gpus)), gpus or int(resources.get("CPU", 1))
    finally:
        if started:
            ray.shutdown()


@contextmanager
def on_dask(address: str) -> Iterator[tuple[Executor, int]]:
    """Return a context, as ``on_ray`` does."""
    check_installed(("distributed", "dask"), f"run: uv run --extra dask exaul sweep --dask {address}")
    import dask
    from distributed import Client

    with dask.config.set({"distributed.scheduler.allowed-failures": LOST_WORKERS}):
        try:
            is_local = address in LOCAL_ADDRESSES
            client = Client(threads_per_worker=1) if is_local else Client(address, timeout=TIMEOUT)
        except (OSError, ValueError, TimeoutError) as error:
            raise BadInput(f"dask: {address} cannot be reached ({join_lines(str(error))})") from error
        with client:
            yield client.get_executor(pure=False), max(1, sum(client.ncores().values()))
