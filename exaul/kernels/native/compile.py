"""Compile functions with Numba, and store compiled loops on disk for later processes.

A loop of this package calls small compiled functions, which LLVM inlines into it. Only the outermost function of
each loop is stored, because loaded object code cannot be inlined.
"""

import types
import uuid
from collections.abc import Callable
from typing import Any

import numba as nb
from numba.core.compiler import CompilerBase, CompileResult, DefaultPassBuilder

from exaul.kernels.native.store import Store


class _Disjoint(CompilerBase):
    """Tell LLVM that array arguments do not overlap; else it checks for overlap before each inner loop."""

    def define_pipelines(self) -> list[Any]:
        self.state.flags.noalias = True
        return [DefaultPassBuilder.define_nopython_pipeline(self.state)]


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """Return a Numba dispatcher that compiles a function at its first call; compiled callers inline it.

    Args:
        function: written in the part of Python that Numba compiles.
        options: of Numba, in place of those of this package.
    """
    known: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz"}} | options
    return nb.njit(**known)(_renamed(function))


def disjoint(function: Callable[..., Any]) -> Any:
    """Compile as ``compiled`` a function whose array arguments do not overlap."""
    return compiled(function, pipeline_class=_Disjoint)


def exact(function: Callable[..., Any]) -> Any:
    """Compile as ``disjoint``, with each product and each sum rounded: the same bits wherever it is inlined."""
    return compiled(function, pipeline_class=_Disjoint, fastmath={"nsz"})


def outermost(function: Callable[..., Any], compiler: Callable[..., Any] = compiled) -> Any:
    """Return a dispatcher as of ``compiler``, for a function that Python calls; its machine code is stored on disk.

    Args:
        function: as of ``compiled``.
        compiler: ``compiled``, or another decorator of this module.
    """
    dispatcher = compiler(function)
    if hasattr(dispatcher, "py_func"):  # with NUMBA_DISABLE_JIT it is the function itself
        dispatcher._cache = Store(dispatcher.py_func, _reduce, _rebuild)
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


def _reduce(result: Any) -> Any:
    return None if result.lifted or result.library.has_dynamic_globals else result._reduce()


def _rebuild(target_context: Any, states: Any) -> Any:
    # As in Numba's own cache: the context must be initialized before code is rebuilt in it.
    target_context.refresh()
    return CompileResult._rebuild(target_context, *states)
