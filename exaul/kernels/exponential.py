"""An exponential function with the same bits under every compiler: it uses only basic IEEE 754 operations.

The range is reduced with ln 2 in two parts (Cody and Waite, "Software Manual for the Elementary Functions", 1980).
"""

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


def compile_for(compiled: Function, bits: Function, number: Function) -> Function:
    """Build the function for a compiler of scalar code.

    Args:
        compiled: decorator that compiles a function.
        bits: ``bits(x)`` returns the 64 bits of a float64 [] as an int64.
        number: ``number(n)`` returns the float64 [] with the bits of an int64.

    Returns:
        ``exp(x)`` for float64 [] x <= 700, with a relative error of 1e-15. Below x = -708 the result is between the
        true value and 1e-307.
    """

    @compiled
    def exp(x: Any) -> Any:
        """Compute ``2^n e^r`` with ``r = x - n ln 2`` in [-ln 2 / 2, ln 2 / 2]."""
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
        return number(bits(p) + (bits(shifted) << 52))

    return exp
