"""Arithmetic on scalars that vectorises inside a compiled loop.

``exp`` is that of ``exaul.kernels.exponential`` (Cody and Waite, "Software Manual for the Elementary Functions",
1980), for LLVM does not vectorise a loop that calls the C library.
"""

from typing import Any

import numba as nb
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from exaul.kernels.backends.native.compile import compiled
from exaul.kernels.exponential import compile_for

_intrinsic: Any = intrinsic


@_intrinsic
def _bits(context, x):
    """The 64 bits of a float64 as an int64."""

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return nb.int64(nb.float64), generate


@_intrinsic
def _float(context, x):
    """The float64 of the 64 bits of an int64."""

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return nb.float64(nb.int64), generate


@_intrinsic
def ones(context, x):
    """Count the bits that are 1.

    Args:
        context: of the compiler; a call in compiled code has only the argument x.
        x: [] int64.

    Returns:
        [] int64 in 0..64.
    """

    def generate(context, builder, signature, args):
        return builder.ctpop(args[0])

    return nb.int64(nb.int64), generate


exp = compile_for(compiled, _bits, _float)


@compiled
def where(condition, x, y):
    """``numpy.where`` of scalars, without the arrays that NumPy's would allocate.

    Args:
        condition: [] bool.
        x: [], the result where the condition holds.
        y: [], the result where it does not.

    Returns:
        [], x or y.
    """
    return x if condition else y


@compiled
def word(x):
    """The uint32 of an integer, by its low 32 bits.

    Args:
        x: [] integer.

    Returns:
        [] uint32.
    """
    return np.uint32(x)


@compiled
def real(x):
    """The float64 of an integer.

    Args:
        x: [] integer.

    Returns:
        [] float64.
    """
    return np.float64(x)
