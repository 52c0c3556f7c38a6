"""An exponential function whose result depends on operations of IEEE 754 alone, from one source for every compiler.

It reduces the range with ln 2 in two parts (Cody and Waite, "Software Manual for the Elementary Functions", 1980).
"""

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


def compile_for(compiled: Function, bits: Function, number: Function) -> Function:
    """Write the function for a compiler of scalars.

    Args:
        compiled: makes a function ready to be called by others.
        bits: ``bits(x)`` is the 64 bits of a float64 [] as an int64.
        number: ``number(n)`` is the float64 [] of the bits of an int64.

    Returns:
        ``exp(x)`` of a float64 [], to a relative error of 1e-15, for x of at most 700. Below x = -708 it is at most
        1e-307, where the true value is smaller still.
    """

    @compiled
    def exp(x: Any) -> Any:
        """``2^n e^r`` with ``r = x - n ln 2`` in [-ln 2 / 2, ln 2 / 2], and e^r by its Taylor polynomial."""
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
        return number(bits(p) + (bits(shifted) << 52))

    return exp
