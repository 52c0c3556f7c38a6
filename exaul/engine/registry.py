"""Tables of learners, environments and backends, the import of user code, and reports of its errors.

Entries have the form ``module:name`` and are imported on use.
"""

import importlib
import os
import re
import sys
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

from exaul.engine.checks import BadInput, check_holds, check_known, join_lines, quote, shorten
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.environments.oblivious import Oblivious
from exaul.kernels.learners.learner import Learner

_LEARNERS = "exaul.kernels.learners"
LEARNERS = {
    "exaul": f"{_LEARNERS}.exaul:exaul",
    "exp3-ix": f"{_LEARNERS}.exp3_ix:exp3_ix",
    "ew": f"{_LEARNERS}.ew:ew",
    "no-abstention": f"{_LEARNERS}.fixed:no_abstention",
    "always-abstain": f"{_LEARNERS}.fixed:always_abstain",
    "best-fixed": f"{_LEARNERS}.fixed:best_fixed",
    "exaul-known": f"{_LEARNERS}.exaul_known:exaul_known",
    "aci-rank": f"{_LEARNERS}.aci_rank:aci_rank",
    "aci-rank-from-log": f"{_LEARNERS}.aci_rank:aci_rank",
}
FROM_LOG = "aci-rank-from-log"  # aci-rank, started from a sample of a built-in profile in place of a user's log
# the paper's learners, and what it compares them with
PAPER_LEARNERS = ("exaul", "exp3-ix", "ew", "no-abstention", "always-abstain", "best-fixed")
DEFAULT_LEARNERS = (*PAPER_LEARNERS, "aci-rank")

_ENVIRONMENTS = "exaul.engine.environments"
ENVIRONMENTS = {
    "stochastic": f"{_ENVIRONMENTS}.oblivious:stochastic",
    "single-shift": f"{_ENVIRONMENTS}.oblivious:single_shift",
    "alternating-shift": f"{_ENVIRONMENTS}.oblivious:alternating_shift",
    "gradual-shift": f"{_ENVIRONMENTS}.oblivious:gradual_shift",
    "replay": f"{_ENVIRONMENTS}.oblivious:replay",
    "adversary-history": f"{_ENVIRONMENTS}.adversaries:adversary_history",
    "adversary-omniscient": f"{_ENVIRONMENTS}.adversaries:adversary_omniscient",
    "interactive": f"{_ENVIRONMENTS}.interactive:interactive",
    "always-wrong": f"{_ENVIRONMENTS}.adversaries:always_wrong",
}

ENTRIES: dict[str, tuple[dict[str, str], tuple[type, ...]]] = {  # those of exaul, and their types, by field
    **dict.fromkeys(("learner", "learners"), (LEARNERS, (Learner,))),
    "environment": (ENVIRONMENTS, (Oblivious, Adaptive)),
    "score": ({}, (FunctionType,)),
}

# ``make_backend(learner, precision)`` returns the learner on a backend, or None if that has no loop for its rule
BACKENDS = {name: f"exaul.kernels.{name}:make_backend" for name in ("native", "blocks", "rows", "dense")}
FASTEST = {"cpu": ("native",), "gpu": ("blocks", "rows")}  # by JAX's platform, the fastest first; else ``dense``
STEPWISE_BACKENDS = "rows", "dense"  # stop after each decision: for adaptive environments and imperfect feedback


def load_object(reference: str) -> Any:
    """Import ``module:name``."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


@cache
def backend_of(learner: Any, name: str, precision: str) -> Any:
    """Return a learner on a backend, a ``NativeBackend`` or, in JAX, a ``Backend``; None if it lacks the rule.

    The cache returns the same object each time: programs are compiled once per object.
    """
    return load_object(BACKENDS[name])(learner, precision)


def name_of(field: str, definition: Any) -> Any:
    """Return the name under which an object that a field names can be loaded again; other values stay.

    Raises:
        BadInput: the object is no global of a module, so no manifest could name it.
    """
    if not isinstance(definition, ENTRIES[field][1]):
        return definition
    references = [
        f"{module}:{name}"
        for module, imported in list(sys.modules.items())
        for name, value in list(getattr(imported, "__dict__", {}).items())
        if value is definition
    ]
    for name, reference in (LEARNERS | ENVIRONMENTS).items():
        if reference in references:
            return name
    if not references:
        problem = f"this {type(definition).__name__} has no name"
        raise BadInput(f"{field}: {problem}; assign it to a variable at the top level of a file, as in: mine = ...")
    # the last: a module is listed before those that it imports, and the last one defines it
    imported = [reference for reference in references if not reference.startswith("__")]  # not __main__
    return imported[-1] if imported else references[0]


def is_user_code(name: str) -> bool:
    """Return whether the name of a learner or environment has the form ``module:name`` of user code."""
    return ":" in name


def check_names(field: str, names: Collection[str]) -> None:
    """Raise BadInput unless every name is one of ``ENTRIES``, or has the form ``module:name`` of user code.

    Of a file in the working folder it names the objects, as far as its text shows them.
    """
    table, kinds = ENTRIES[field]
    for name in names:
        if name in table or is_user_code(name):
            continue
        module = name.removesuffix(".py")
        if module.isidentifier() and os.path.isfile(file := f"{module}.py"):
            text = Path(file).read_text(encoding="utf-8", errors="replace")
            types = "|".join(kind.__name__ for kind in kinds)
            objects = re.findall(rf"^(\w+)\b.*= *(?:\w+\.)*(?:{types})\(", text, re.MULTILINE)
            meant = f"did you mean {' or '.join(f'{module}:{name}' for name in objects)}?"
            hint = meant if objects else f"name an object in it, as in {module}:mine"
            raise BadInput(f"{field}: {file} found; {hint}")
        check_known(field, (name,), table)


def resolve(field: str, name: Any) -> Any:
    """Import what a field of ``ENTRIES`` names, from exaul, the working folder or an installed package.

    ``name`` may be the object itself.

    Raises:
        BadInput: the import fails, or the object has another type.
    """
    table, kinds = ENTRIES[field]
    if isinstance(name, kinds):
        return name
    types = " or ".join(kind.__name__ for kind in kinds)
    check_holds(field, name, isinstance(name, str), f"a name, 'module:name', or of the type {types}")
    if name in table:
        return load_object(table[name])
    check_names(field, (name,))
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        loaded = load_object(name)
    except (Exception, SystemExit) as error:  # user code can raise anything, and scripts may call exit()
        raise BadInput(f"{field}: {quote(name)} cannot be imported ({type(error).__name__}: {error})") from error
    finally:
        sys.path.remove(folder)
    if not isinstance(loaded, kinds):
        raise BadInput(f"{field}: {name!r} is of the type {type(loaded).__name__}; it must be {types}")
    return loaded


WRITTEN_WITH_WHERE = "it must be written with where, operators and functions written that way"
WRITTEN_IN_JAX = "it must be written in JAX, for one game"


@contextmanager
def user_code_errors(part: str, reference: str, requirement: str = WRITTEN_WITH_WHERE) -> Iterator[None]:
    """Run user code in float64; turn its errors into BadInput with the reason and, if known, the line.

    ``part`` is the field, and the part of ``reference`` (``module:name``) that is tried; ``requirement`` says how
    to write such code. A ``reference`` to code of exaul changes nothing.
    """
    if not is_user_code(reference):
        yield
        return
    import jax

    try:
        with jax.enable_x64(True):
            yield
    except BadInput:
        raise
    except Exception as error:
        reason = _error_reason(error) + _error_line(error, reference)
        raise BadInput(f"{part} {reference} cannot be run ({reason}); {requirement} (CONTRIBUTING.md)") from error


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
