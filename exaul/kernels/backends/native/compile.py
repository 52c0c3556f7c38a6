"""How functions are compiled by Numba, and how compiled loops are stored on disk between processes.

A loop of this package calls small compiled functions, which LLVM inlines into it, so only the outermost function of
each loop is stored: what is loaded as object code can no longer be inlined. Numba's own cache keys an entry by the
pickled closure, which differs in every process, and does not notice that a called function in another file has
changed. Here an entry is keyed by all sources of ``exaul.kernels`` and by the code and the numbers that the
loop reads.
"""

import hashlib
import inspect
import os
import pickle
import shutil
import sys
import types
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba as nb
import numpy as np
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from exaul.kernels.cache import cache_folder, hash_of

PACKAGE = "exaul"
VERSIONS = 4  # of the sources, whose compiled loops are left on disk


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function when it is first called; called by another compiled function, it is inlined there.

    Args:
        function: written in the part of Python that Numba compiles.

    Returns:
        Its Numba dispatcher.
    """
    return nb.njit(nogil=True, error_model="numpy", fastmath={"contract", "nsz"})(_renamed(function))


def outermost(function: Callable[..., Any]) -> Any:
    """As ``compiled``, for a function that Python calls: what is compiled is stored for later processes.

    Args:
        function: as of ``compiled``.

    Returns:
        Its Numba dispatcher.
    """
    dispatcher = compiled(function)
    if hasattr(dispatcher, "py_func"):  # it is the function itself where NUMBA_DISABLE_JIT is set
        dispatcher._cache = _Store(dispatcher.py_func)
    return dispatcher


def _renamed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy under a name that no other function has in any process.

    Numba names machine code by the function's name and a number that each process counts for itself. Two loops that
    are loaded from disk may come from different processes; of two symbols of one name, one would serve for both.
    """
    copy = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__module__, copy.__doc__ = function.__module__, function.__doc__
    copy.__qualname__ = f"{function.__qualname__}_{uuid.uuid4().hex}"
    return copy


class _NotOwnError(Exception):
    """A loop calls a function, or fills a NamedTuple, that is not part of ``exaul``."""


def _reads(function: Callable[..., Any]) -> Iterator[str]:
    """Every name and value that a function of this package reads, its code, and the same of the functions it calls.

    The code counts beside the sources, for a file may be edited after a process has imported it.
    """
    if not f"{function.__module__}.".startswith(f"{PACKAGE}.") or function.__defaults__ or function.__kwdefaults__:
        raise _NotOwnError
    code = function.__code__
    yield f"{function.__module__}.{code.co_qualname}"
    yield repr((code.co_code, code.co_consts, code.co_names, code.co_varnames))
    found = inspect.getclosurevars(function)
    for name, value in sorted({**found.nonlocals, **found.globals}.items()):
        if hasattr(value, "py_func"):
            yield name
            yield from _reads(value.py_func)
        elif isinstance(value, type) and not value.__module__.startswith(f"{PACKAGE}."):
            raise _NotOwnError
        else:
            yield f"{name} = {value!r} {getattr(value, '_fields', ())}"


@cache
def _folder() -> Path | None:
    """The folder of this version of the sources, of Python and of the compiler; None where none can be written."""
    root = cache_folder()
    if root is None:
        return None
    versions = nb.__version__, llvmlite.__version__, np.__version__, sys.version
    settings = sorted(item for item in os.environ.items() if item[0].startswith("NUMBA_"))
    sources = Path(__file__).parents[2]
    try:
        content = versions, settings, hash_of(sources, sources.rglob("*.py"))
        folder = root / f"numba-{hashlib.sha256(repr(content).encode()).hexdigest()[:32]}"
        if not folder.exists():
            folder.mkdir(exist_ok=True)
            older = sorted(root.glob("numba-*"), key=lambda path: path.stat().st_mtime)
            for path in older[:-VERSIONS]:
                shutil.rmtree(path, ignore_errors=True)
        os.utime(folder)  # the last time that a process used it
    except OSError:
        return None
    return folder


class _Store(NullCache):
    """Machine code of one function on disk, a file for each signature. Any failure means: compile it.

    A file is the SHA-256 of what follows, then the pickled result of the compiler.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def _path(self, signature: Any, codegen: Any) -> Path | None:
        folder = _folder()
        if folder is None:
            return None
        key = str(signature), codegen.magic_tuple(), *_reads(self._function)
        return folder / hashlib.sha256(repr(key).encode()).hexdigest()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function of a signature, or None."""
        target_context.refresh()
        try:
            path = self._path(sig, target_context.codegen())
            content = b"" if path is None else path.read_bytes()
            if hashlib.sha256(content[32:]).digest() != content[:32]:
                return None
            return CompileResult._rebuild(target_context, *pickle.loads(content[32:]))
        except Exception:
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store the compiled function of a signature; a reader sees the whole file or none."""
        try:
            path = self._path(sig, data.codegen)
            if path is None or data.lifted or data.library.has_dynamic_globals:
                return
            content = dumps(data._reduce())
            part = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
            try:
                part.write_bytes(hashlib.sha256(content).digest() + content)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
        except Exception:
            return
