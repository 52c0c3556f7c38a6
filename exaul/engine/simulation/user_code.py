"""Learners and environments of one's own: what fails in their code is one sentence, before anything is played."""

import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exaul.engine.checks import BadInput, join_lines, shorten

SCALAR = "it is written with where, operators and functions that are too"
TRACED = "it is written in JAX, for one game"


@contextmanager
def user_code_errors(what: str, place: str, how: str = SCALAR) -> Iterator[None]:
    """Turn an error in the code behind ``module:name``, also one of its compiler, into bad input.

    Args:
        what: the field, and what of ``place`` is tried.
        place: ``module:name``, which has been imported.
        how: it is written, for the sentence.

    Raises:
        BadInput: the code fails; the sentence has the reason, and the line if it is known.
    """
    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        reason = _error_reason(error) + _error_line(error, place)
        raise BadInput(f"{what} {place} cannot be played ({reason}); {how} (CONTRIBUTING.md)") from error


def _error_reason(error: Exception) -> str:
    """What went wrong, on one line: of Numba's long texts the first sentence that is about the code."""
    lines = [line.strip() for line in str(error).splitlines() if not line.startswith("Failed in ")]
    lines = [line for line in lines if line] or [""]
    text = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    return shorten(join_lines(f"{type(error).__name__}: {text}"))


def _error_line(error: Exception, place: str) -> str:
    """The innermost line of the module that was reached, or the first that Numba names, if either is known."""
    file = getattr(sys.modules[place.partition(":")[0]], "__file__", None)
    if file is None:
        return ""
    name = Path(file).name
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    lines = lines[-1:] or re.findall(rf'[/"]{re.escape(name)}", line (\d+)', str(error))
    return f", {name} line {lines[0]}" if lines else ""
