"""Compile functions with Numba, and store compiled loops on disk for later processes.

A loop of this package calls small compiled functions, which LLVM inlines into it. Only the outermost function of
each loop is stored, because loaded object code cannot be inlined. Numba's own cache does not serve here: it keys an
entry by the pickled closure, which differs in every process, and does not notice changes of functions in other
files. Here the key is made of all sources of ``exaul.kernels`` and of the code and the numbers that the loop reads.
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
VERSIONS = 4  # versions of the sources whose compiled loops stay on disk


def compiled(function: Callable[..., Any]) -> Any:
    """Return a Numba dispatcher that compiles a function at its first call; compiled callers inline it.

    Args:
        function: written in the part of Python that Numba compiles.
    """
    return nb.njit(nogil=True, error_model="numpy", fastmath={"contract", "nsz"})(_renamed(function))


def outermost(function: Callable[..., Any]) -> Any:
    """Return a dispatcher as of ``compiled``, for a function that Python calls; its machine code is stored on disk.

    Args:
        function: as of ``compiled``.
    """
    dispatcher = compiled(function)
    if hasattr(dispatcher, "py_func"):  # with NUMBA_DISABLE_JIT it is the function itself
        dispatcher._cache = _Store(dispatcher.py_func)
    return dispatcher


def _renamed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Copy a function under a name that is unique across processes.

    Numba names machine code by the function's name and a counter of the process. Two loops that are loaded from
    disk may come from different processes; if two symbols had the same name, one of them would serve for both.
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
    """Yield every name and value that a function reads, its code, and the same of the functions it calls.

    The code is included besides the sources, because a file may be edited after a process has imported it.
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
    """Return the folder for these versions of the sources, Python and the compiler; None if none is writable."""
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
        os.utime(folder)  # the folders used last are kept
    except OSError:
        return None
    return folder


class _Store(NullCache):
    """Store machine code of one function on disk, one file per signature. On any failure, the function is compiled.

    A file is the SHA-256 of its content, then the content: the pickled result of the compiler.
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
        """Return the compiled function of a signature, or None."""
        # As in Numba's own cache: the context must be initialized before code is rebuilt in it.
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
        """Store the compiled function of a signature; a reader sees the whole file or no file."""
        try:
            path = self._path(sig, data.codegen)
            if path is None or data.lifted or data.library.has_dynamic_globals:
                return
            content = dumps(data._reduce())
            # Another process may store or load the same file now: write a file of a unique name, then replace.
            part = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
            try:
                part.write_bytes(hashlib.sha256(content).digest() + content)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
        except Exception:
            return
