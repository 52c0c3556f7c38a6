"""A process that measures one case at a time, so that a case that fails or hangs does not stop the others."""

import signal
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

DIED, TOO_LONG = "the process that measured it died", "it took too long"


def serve(calls: Connection) -> None:
    """Answer calls until the connection closes. Interrupts are ignored; the parent handles them."""
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
    """A process that the first call starts, and the next call after its death starts again."""

    def __init__(self) -> None:
        self._process: Any = None
        self._calls: Any = None

    def call(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> tuple[Any, str | None]:
        """Call a function of an importable module. Return its result and its failure, a line; one of them is None.

        The process is ended if the call takes longer than ``seconds``.
        """
        if self._process is None:
            spawning = get_context("spawn")
            self._calls, theirs = spawning.Pipe()
            self._process = spawning.Process(target=serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()  # else the pipe stays open, and recv never sees that the process ended
        failure = DIED
        try:
            self._calls.send((function, arguments))
            if self._calls.poll(seconds):
                return self._calls.recv()
            failure = TOO_LONG
        except (EOFError, OSError):
            pass
        self.close()
        return None, failure

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._calls.close()
            self._process.kill()
            self._process.join()
            self._process = None
