"""Arithmetic on scalars that vectorises inside a compiled loop.

``exp`` is compiled from ``exaul.kernels.exponential`` (Cody and Waite, "Software Manual for the Elementary
Functions", 1980), because LLVM does not vectorise a loop that calls the C library.
"""

from typing import Any

import numba as nb
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from exaul.kernels.exponential import compile_for
from exaul.kernels.native.compile import compiled

_intrinsic: Any = intrinsic


@_intrinsic
def _bits(context, x):
    """Return the 64 bits of a float64 as an int64."""

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return nb.int64(nb.float64), generate


@_intrinsic
def _float(context, x):
    """Return the float64 of the 64 bits of an int64."""

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return nb.float64(nb.int64), generate


@_intrinsic
def ones(context, x):
    """Count the bits that are 1: [] int64 in 0..64.

    Args:
        context: of the compiler; compiled code calls ``ones(x)``.
        x: [] int64.
    """

    def generate(context, builder, signature, args):
        return builder.ctpop(args[0])

    return nb.int64(nb.int64), generate


word, real = np.uint32, np.float64  # casts: compiled code inlines them without compiling a function for each
exp = compile_for(compiled, _bits, _float)


@compiled
def where(condition, x, y):
    """Return x if the condition holds, else y: ``numpy.where`` of scalars, without its temporary arrays."""
    return x if condition else y
