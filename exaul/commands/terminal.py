"""Run a program and end it: results on stdout, at most one line of error on stderr, and an exit status.

0: done. 1: a check failed. 2: bad input, or a file that cannot be written. 3: done, with too few rows or rounds, or
a server that did not start. 70: a bug, with a traceback. 130: interrupted. 143: terminated. 141: the reader of its
output has closed the pipe.
"""

import codecs
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any, NoReturn, TextIO

from exaul.engine.checks import BadInput, join_lines
from exaul.engine.results.text_table import wrap

BAD_INPUT_STATUS, BUG_STATUS, SIGNAL_STATUS = 2, 70, 128
INCOMPLETE_STATUS = 3  # what was asked of a model is not all there
PLAIN = {"±": "+-", "≤": "<=", "…": "..."}  # replacements for terminals without these characters


class HelpPrinted(Exception):
    """Help or the version was printed; the command ends with status 0."""


def run_guarded(program: str, action: Callable[[], int], advice: Callable[[], str] = str) -> int:
    """Run a command and return its exit status. Expected errors become one line on stderr.

    ``advice`` returns a clause for the message on an interrupt.
    """
    try:
        bar = "\n\r"  # the progress bar on stderr returns to the start of its line
        with _terminable(), redirect_stdout(_Printable(sys.stdout)), redirect_stderr(_Printable(sys.stderr, bar)):
            try:
                status = action()
            except HelpPrinted:
                status = 0
            sys.stdout.flush()  # a full disk or a closed pipe raises here, where it is handled, instead of at exit
            return status
    except KeyboardInterrupt as stop:
        number = stop.args[0] if stop.args else signal.SIGINT
        return refuse(program, f"interrupted{advice()}", SIGNAL_STATUS + number)
    except BrokenPipeError:
        _silence(sys.stdout)
        return SIGNAL_STATUS + signal.SIGPIPE
    except BadInput as error:
        return refuse(program, str(error))
    except OSError as error:
        _silence(sys.stdout)
        return refuse(program, f"{error.filename or 'the output'}: cannot be used ({error.strerror or error})")
    except ModuleNotFoundError as error:  # if only the packages of the service are installed (docs/online.md)
        if error.name is None or error.name.partition(".")[0] == "exaul":
            raise
        return refuse(program, f"{error.name}: not installed; this command needs all that exaul depends on")
    except SystemExit as stop:
        return refuse(program, f"a user module ended the process (status {stop.code})")


def entry(main: Callable[[], int]) -> NoReturn:
    """Run a program as a process: escape what the terminal cannot show, and exit with 70 on a bug."""
    codecs.register_error("plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="plain")  # type: ignore[union-attr]
    try:
        status = main()
    except Exception:
        traceback.print_exc(file=_Printable(sys.stderr))
        status = BUG_STATUS
    sys.exit(status)


def terminal_width() -> int | None:
    """Return the width of the terminal, which COLUMNS overrides, or None if stdout is not a terminal."""
    if not sys.stdout.isatty():
        return None
    import shutil  # imported here: a file or a pipe does not need it

    return shutil.get_terminal_size().columns


def show(*parts: str) -> None:
    """Print texts and tables, as wide as the terminal, with a blank line between; leave out empty ones."""
    print(wrap("\n\n".join(part for part in parts if part), terminal_width()))


def refuse(program: str, text: str, status: int = BAD_INPUT_STATUS) -> int:
    """Print one line to stderr, and return the exit status."""
    try:
        print(f"{program}: {join_lines(text)}", file=sys.stderr, flush=True)
    except OSError:
        _silence(sys.stderr)
    return status


def _silence(stream: TextIO) -> None:
    """Redirect a stream to /dev/null, so that flushing it at exit does not fail again."""
    with suppress(OSError, ValueError):  # a stream without a file, as in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join(PLAIN.get(c, c.encode("unicode_escape").decode()) for c in text), error.end


class _Printable:
    """A stream that escapes what is not printable, so that a foreign text does not control the terminal."""

    def __init__(self, stream: TextIO, allowed: str = "\n") -> None:
        self._stream, self._allowed = stream, allowed

    def write(self, text: str) -> int:
        return self._stream.write("".join(c if c in self._allowed else join_lines(c) for c in text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _terminable() -> Iterator[None]:
    """Turn SIGTERM into KeyboardInterrupt. Only the main thread may set signal handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt(number)

    handler = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
