"""A process that measures one case at a time, so that a case that fails or hangs ends itself alone."""

import signal
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any


class WorkerDied(Exception):
    """The process ended within a case."""


def serve(calls: Connection) -> None:
    """Answer calls until the other side closes; an interrupt is for the other side, which ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            function, arguments = calls.recv()
        except EOFError:
            return
        try:
            answer: tuple[Any, str | None] = (function(*arguments), None)
        except Exception as error:
            lines = str(error).strip().splitlines()
            answer = (None, ": ".join([type(error).__name__, *lines[:1]]))
        calls.send(answer)


class Worker:
    """A process that is started by its first call, and anew after it died."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._process: Any = None
        self._calls: Any = None

    def call(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> tuple[Any, str | None]:
        """Call a function there.

        Args:
            function: of a module that the process can import.
            arguments: of the function.
            seconds: after which the process is ended.

        Returns:
            What the function returned, and what it raised, as one line; one of them is None.

        Raises:
            TimeoutError: it takes longer.
            Died: the process ended.
        """
        if self._process is None:
            spawning = get_context("spawn")
            self._calls, theirs = spawning.Pipe()
            self._process = spawning.Process(target=serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()  # so that the end of the process shows here
        try:
            self._calls.send((function, arguments))
            if not self._calls.poll(seconds):
                raise TimeoutError
            return self._calls.recv()
        except (EOFError, OSError) as error:
            self.close()
            if isinstance(error, TimeoutError):
                raise
            raise WorkerDied from error

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._calls.close()
            self._process.kill()
            self._process.join()
            self._process = None
