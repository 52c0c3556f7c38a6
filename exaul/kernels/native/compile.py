"""Compile functions with Numba, and store compiled loops on disk for later processes.

A loop of this package calls small compiled functions, which LLVM inlines into it. Only the outermost function of
each loop is stored, because loaded object code cannot be inlined. Rules are compiled from what JAX traces.
"""

import types
import uuid
from collections.abc import Callable
from typing import Any

import numba as nb
import numpy as np
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.cpython.unsafe.numbers import viewer

from exaul.kernels.native.store import Store
from exaul.kernels.online import choose


class _Disjoint(CompilerBase):
    """Tell LLVM that array arguments do not overlap; else it checks for overlap before each inner loop."""

    def define_pipelines(self) -> list[Any]:
        self.state.flags.noalias = True
        return [DefaultPassBuilder.define_nopython_pipeline(self.state)]


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """Return a Numba dispatcher that compiled functions call, and inline; Python cannot call it.

    Array arguments of the function must not overlap. ``options`` of Numba replace those of this package.
    """
    # entries for Python and C would take half of the time to compile a small function
    settings: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": _Disjoint}
    settings |= {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz"}}
    return nb.njit(**settings | options)(_renamed(function))


def exact(function: Callable[..., Any]) -> Any:
    """Compile as ``compiled``, with each product and each sum rounded: the same bits wherever it is inlined."""
    return compiled(function, fastmath={"nsz"})


def outermost(function: Callable[..., Any]) -> Any:
    """Return a dispatcher, as in ``compiled``, that Python calls; its machine code is stored on disk."""
    dispatcher = compiled(function, no_cpython_wrapper=False)
    dispatcher._cache = Store(dispatcher.py_func)
    return dispatcher


def _renamed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Copy a function under a name that is unique across processes.

    Numba names machine code by the function's name and a counter of the process. Two loops that are loaded from
    disk may come from different processes; if two symbols had the same name, one of them would serve for both.
    """
    copy = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__qualname__ = f"{function.__qualname__}_{uuid.uuid4().hex}"
    return copy


_view: Any = viewer  # reads the bits of a number as another type
word, real = np.uint32, np.float64  # casts: compiled code inlines them without compiling a function for each


@compiled
def exp(x: Any) -> Any:
    """Compute e^x for float64 [] x <= 700, with a relative error of 1e-15; below -708, at most 1e-307.

    It is ``2^n e^r`` with ``r = x - n ln 2`` in [-ln 2 / 2, ln 2 / 2], by basic operations of IEEE 754 only: LLVM
    does not vectorise a loop that calls the C library. The range is reduced with ln 2 in two parts (Cody and Waite,
    "Software Manual for the Elementary Functions", 1980).
    """
    x = max(x, -708.0)  # below, 2^n would be subnormal and the shift of the exponent wrong
    # Adding 1.5 * 2**52 rounds x / ln 2 to the integer n and leaves n in the low bits of the sum.
    shifted = x * 1.4426950408889634 + 6755399441055744.0
    n = shifted - 6755399441055744.0
    # ln 2 = high part + low part: n times the high part is exact, so r keeps its low bits.
    r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10
    r2 = r * r
    r4 = r2 * r2
    # Taylor polynomial of e^r, in Estrin's scheme: short dependency chains, and one fixed order of operations.
    low = (1.0 + r) + r2 * (0.5 + r * 0.16666666666666666)
    middle = (0.041666666666666664 + r * 0.008333333333333333) + r2 * (
        0.001388888888888889 + r * 0.0001984126984126984
    )
    high = (2.48015873015873e-05 + r * 2.7557319223985893e-06) + r2 * (
        2.755731922398589e-07 + r * 2.505210838544172e-08
    )
    p = low + r4 * (middle + r4 * (high + r4 * 2.08767569878681e-09))
    # p is in [0.7, 1.5]: adding n to the exponent bits of p multiplies it by 2^n.
    return _view(_view(p, nb.int64) + (_view(shifted, nb.int64) << 52), nb.float64)


where = compiled(choose)


def compile_with_helpers(function: Callable[..., Any], within: tuple[Any, ...] = ()) -> Any:
    """Compile a function of a rule, and all functions that it calls by name or closes over.

    JAX calls such helpers as Python; compiled code can call only compiled functions. ``within`` are functions that
    are being compiled, which ends recursion.
    """
    within = (*within, function)

    def ready(value: Any) -> Any:
        is_helper = isinstance(value, types.FunctionType) and value not in within
        return compile_with_helpers(value, within) if is_helper else value

    # The copy has the same code but other globals and cells: the original stays callable from Python.
    code, scope = function.__code__, function.__globals__
    scope = scope | {name: ready(scope[name]) for name in code.co_names if name in scope}
    cells = tuple(types.CellType(ready(cell.cell_contents)) for cell in function.__closure__ or ()) or None
    return compiled(types.FunctionType(code, scope, function.__name__, function.__defaults__, cells))


def accessors(count: int) -> tuple[Any, Any]:
    """Compile functions that read and write the M = ``count`` numbers of one copy, in an array [M, L] for L copies.

    They are ``read(array, copy)``, which returns a tuple of M floats, and ``write(array, copy, numbers)``.
    """
    # A chain of M functions, one per number: with a loop over numbers inside, LLVM would not vectorise the
    # loop over copies.
    if not count:
        return compiled(lambda array, copy: ()), compiled(lambda array, copy, numbers: None)
    number, (read_others, write_others) = count - 1, accessors(count - 1)

    @compiled
    def read(array, copy):
        return (*read_others(array, copy), array[number, copy])

    @compiled
    def write(array, copy, numbers):
        write_others(array, copy, numbers)
        array[number, copy] = numbers[number]

    return read, write
