"""Store machine code on disk that Numba compiled, for later processes.

Numba's cache does not serve here: it keys an entry by the pickled closure, which differs in every process, and
does not notice changes of functions in other files. Here the key is made of the code of ``exaul.kernels`` and of
the code and the values that a function reads, which may be a user's.
"""

import hashlib
import inspect
import os
import pickle
import shutil
import sys
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

from exaul.kernels.cache import cache_folder, kernels_hash

PACKAGE = "exaul"
VERSIONS = 4  # versions of the sources whose machine code stays on disk (chosen)


def _key_parts(function: Callable[..., Any]) -> Iterator[str]:
    """Yield the code of a function, each name and value that it reads, and the same for the functions it calls.

    The code is included besides the sources, because a file may be edited after a process has imported it, and
    because a rule may be the user's. Raise ValueError if the code is in no file, or a value has no text.
    """
    if getattr(sys.modules.get(function.__module__), "__file__", None) is None:
        raise ValueError(f"{function.__module__} is in no file that can be imported")
    code = function.__code__
    yield f"{function.__module__}.{code.co_qualname}"
    yield repr((code.co_code, code.co_consts, code.co_names, code.co_varnames))
    yield _text_of((function.__defaults__, tuple((function.__kwdefaults__ or {}).items())))
    variables = inspect.getclosurevars(function)
    for name, value in sorted({**variables.nonlocals, **variables.globals}.items()):
        yield name
        if hasattr(value, "py_func"):
            yield from _key_parts(value.py_func)
        else:
            yield _text_of(value)


def _text_of(value: Any) -> str:
    """Return a text that differs between different values; raise ValueError if there is none."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({', '.join(map(_text_of, value))})"
    is_known = value is None or isinstance(value, int | float | complex | str | bytes | np.generic)
    name = getattr(value, "__module__", getattr(value, "__name__", None)) or ""
    if is_known or hasattr(value, "_fields") or name.partition(".")[0] in (PACKAGE, "numpy", "numba", "math"):
        return f"{value!r} {getattr(value, '_fields', ())}"
    raise ValueError(f"no text tells the value of a {type(value).__name__}")


@cache
def _folder() -> Path | None:
    """Return the folder for these versions of the sources, Python and the compiler; None if none is writable."""
    root = cache_folder()
    if root is None:
        return None
    versions = nb.__version__, llvmlite.__version__, np.__version__, sys.version
    settings = sorted(item for item in os.environ.items() if item[0].startswith("NUMBA_"))
    try:
        content = versions, settings, kernels_hash()
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


def is_empty() -> bool:
    """Return whether nothing is stored for these versions, so that the first sweep compiles."""
    folder = _folder()
    return folder is None or not any(folder.iterdir())


class Store(NullCache):
    """Store machine code of one function on disk, one file per signature. On any failure, the function is compiled.

    A file is the SHA-256 of its content, then the content: the pickled result of the compiler.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        """Store the results of compiling a Python function."""
        self._function = function

    def _path(self, signature: Any, codegen: Any) -> Path | None:
        folder = _folder()
        if folder is None:
            return None
        key = str(signature), codegen.magic_tuple(), *_key_parts(self._function)
        return folder / hashlib.sha256(repr(key).encode()).hexdigest()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function of a signature, or None."""
        try:
            path = self._path(sig, target_context.codegen())
            content = b"" if path is None else path.read_bytes()
            if hashlib.sha256(content[32:]).digest() != content[:32]:
                return None
            target_context.refresh()  # as in Numba's own cache: code is rebuilt in an initialized context
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
