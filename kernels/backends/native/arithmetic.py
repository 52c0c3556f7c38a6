"""Arithmetic on scalars that vectorises inside a compiled loop.

``exp`` reduces the range with ln 2 in two parts (Cody and Waite, "Software Manual for the Elementary Functions",
1980), for LLVM does not vectorise a loop that calls the C library. Its result depends on operations of IEEE 754
alone, not on the C library.
"""

from typing import Any

import numba as nb
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from exaul.kernels.backends.native.compile import compiled

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


@compiled
def exp(x):
    """Exponential, to a relative error of 1e-15.

    ``2^n e^r`` with ``r = x - n ln 2`` in [-ln 2 / 2, ln 2 / 2], and e^r by its Taylor polynomial of degree 12.

    Args:
        x: [] float64, at most 700.

    Returns:
        [] float64. Below x = -708 it is at most 1e-307, where the true value is smaller still.
    """
    x = max(x, -708.0)
    shifted = x * 1.4426950408889634 + 6755399441055744.0  # 1.5 * 2**52: rounds to an integer, in the low bits
    n = shifted - 6755399441055744.0
    r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10
    r2 = r * r
    r4 = r2 * r2
    low = (1.0 + r) + r2 * (0.5 + r * 0.16666666666666666)
    middle = (0.041666666666666664 + r * 0.008333333333333333) + r2 * (
        0.001388888888888889 + r * 0.0001984126984126984
    )
    high = (2.48015873015873e-05 + r * 2.7557319223985893e-06) + r2 * (
        2.755731922398589e-07 + r * 2.505210838544172e-08
    )
    p = low + r4 * (middle + r4 * (high + r4 * 2.08767569878681e-09))
    return _float(_bits(p) + (_bits(shifted) << 52))


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
