"""Report errors in user-defined learners and environments as one sentence."""

import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exaul.engine.checks import BadInput, join_lines, shorten

SCALAR = "it must be written with where, operators and functions written that way"
TRACED = "it must be written in JAX, for one game"


@contextmanager
def user_code_errors(what: str, reference: str, how: str = SCALAR) -> Iterator[None]:
    """Turn an error in user code, or in its compilation, into BadInput with the reason and, if known, the line.

    ``what`` is the field, and the part of ``reference`` (``module:name``) that is tried; ``how`` says how such code
    is written.
    """
    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        reason = _error_reason(error) + _error_line(error, reference)
        raise BadInput(f"{what} {reference} cannot be run ({reason}); {how} (CONTRIBUTING.md)") from error


def _error_reason(error: Exception) -> str:
    """Describe an error on one line; of Numba's long messages, use the first sentence about the code."""
    lines = [line.strip() for line in str(error).splitlines() if not line.startswith("Failed in ")]
    lines = [line for line in lines if line] or [""]
    text = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    return shorten(join_lines(f"{type(error).__name__}: {text}"))


def _error_line(error: Exception, reference: str) -> str:
    """Name the innermost line of the module in the traceback, or the first one in Numba's message, if any."""
    file = getattr(sys.modules[reference.partition(":")[0]], "__file__", None)
    if file is None:
        return ""
    name = Path(file).name
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    lines = lines[-1:] or re.findall(rf'[/"]{re.escape(name)}", line (\d+)', str(error))
    return f", {name} line {lines[0]}" if lines else ""
