"""A process that measures one case at a time, so that a case that fails or hangs does not stop the others."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context, parent_process
from threading import Thread
from typing import Any

from exaul.engine.checks import shorten
from exaul.engine.executors import describe_error

DIED, TOO_LONG = "the process that measured it died", "it took too long"


def _live_as_the_parent() -> None:
    """Leave interrupts to the parent, and end with it: a worker that outlives it would hold the GPU."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def wait() -> None:
        parent = parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()


class Worker:
    """A process that measures one case at a time; the next call after its death starts another."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def call(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> tuple[Any, str | None]:
        """Call a function of an importable module. Return its result and its failure, a line; one of them is None.

        The process is ended if the call takes longer than ``seconds``.
        """
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, get_context("spawn"), _live_as_the_parent)
        try:
            return self._pool.submit(function, *arguments).result(seconds), None
        except (BrokenProcessPool, TimeoutError) as error:
            self.close()
            return None, DIED if isinstance(error, BrokenProcessPool) else TOO_LONG
        except Exception as error:
            return None, shorten(describe_error(error))

    def close(self) -> None:
        """End the process."""
        if self._pool is not None:
            for process in active_children():  # the pool's only one
                process.kill()
            self._pool.shutdown()
            self._pool = None
