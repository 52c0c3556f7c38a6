"""How a program ends: results to stdout, one line on stderr where it cannot go on, and a status that says why.

0: done. 1: a check failed. 2: bad input, or a file that cannot be written. 70: a defect of the program, with a
traceback, or a device that failed. 130 and 143: interrupted, or terminated. 141: who read its output has gone.
"""

import codecs
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn, TextIO

from exaul.engine.checks import BadInput, join_lines
from exaul.kernels.backends.cuda.errors import DeviceFailure

REFUSED, DEFECT, SIGNAL = 2, 70, 128
PLAIN = {"±": "+-", "≤": "<="}  # what a terminal without these characters shows


class HelpPrinted(Exception):
    """A command has nothing more to do: its help was printed."""


def run_guarded(program: str, action: Callable[[], int], advice: Callable[[], str] = str) -> int:
    """Run a command and return its exit status; what it cannot use is one line on stderr.

    Args:
        program: its name.
        action: the command.
        advice: what is said to who interrupts it.
    """
    try:
        with _terminable():
            try:
                status = action()
            except HelpPrinted:
                status = 0
            sys.stdout.flush()  # what cannot be written shows here
            return status
    except KeyboardInterrupt as stop:
        number = stop.args[0] if stop.args else signal.SIGINT
        return refuse(program, f"interrupted{advice()}", SIGNAL + number)
    except BrokenPipeError:
        _silence(sys.stdout)
        return SIGNAL + signal.SIGPIPE
    except BadInput as error:
        return refuse(program, str(error))
    except DeviceFailure as error:
        return refuse(program, str(error), DEFECT)
    except OSError as error:
        _silence(sys.stdout)
        return refuse(program, f"{error.filename or 'the output'}: cannot be used ({error.strerror or error})")
    except SystemExit as stop:
        return refuse(program, f"a module of your own ended the process (status {stop.code})")


def entry(main: Callable[[], int]) -> NoReturn:
    """A program's whole process: its output is made safe for any terminal, and a defect has a status of its own."""
    codecs.register_error("plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="plain")  # type: ignore[union-attr]
    try:
        status = main()
    except Exception:
        traceback.print_exc()
        status = DEFECT
    sys.exit(status)


def refuse(program: str, text: str, status: int = REFUSED) -> int:
    """Say on one line of stderr why a command ends, and return its exit status."""
    try:
        print(f"{program}: {join_lines(text)}", file=sys.stderr, flush=True)
    except OSError:
        _silence(sys.stderr)
    return status


def _silence(stream: TextIO) -> None:
    """What is still to be written to a stream goes nowhere, also as the process ends."""
    with suppress(OSError, ValueError):  # a stream without a file, as in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join(PLAIN.get(c, c.encode("unicode_escape").decode()) for c in text), error.end


@contextmanager
def _terminable() -> Iterator[None]:
    """Take SIGTERM as an interrupt, where signals can be taken."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt(number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
