"""How many lanes a copy gets: below which numbers of copies a warp, or half a warp, is the fastest on this card.

The numbers are those of one device, so that all machines of a sweep with the same kind of device choose the same.
"""

from exaul.kernels.backends.cuda import toolchain


def most_copies_by_warps() -> float:
    """Return the number of copies from which half a warp per copy is faster than a warp on this device.

    With few copies, a round takes 1,150 cycles of latency. At this number, the arithmetic of all copies of a
    multiprocessor takes as long. All counts are those of ``exaul`` in ``benchmarks gpu-model``.
    """
    return _multiprocessors() * 1150 / _cycles(310, 65)


def most_copies_by_half_warps() -> float:
    """Return the number of copies from which a thread per copy is faster than half a warp on this device.

    By half warps, two copies share the arithmetic of a warp. By threads, a round takes 11,000 cycles of latency and
    the float64 operations of a warp, for one copy as for hundreds.
    """
    return _multiprocessors() * (11_000 + _cycles(0, 210)) / (_cycles(350, 70) / 2)


def _multiprocessors() -> int:
    return toolchain.load().get_current_device().MULTIPROCESSOR_COUNT


def _cycles(instructions: int, doubles: int) -> float:
    """Return the cycles of a multiprocessor to issue instructions of a warp, or for float64 operations, if more.

    A multiprocessor has four schedulers, and 64 units for float32 (up to sm_80) or 128. Units for float64 are fewer
    by the card's ratio.
    """
    device = toolchain.load().get_current_device()
    units = (64 if device.compute_capability <= (8, 0) else 128) / device.SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO
    return max(instructions / 4, doubles * 32 / units)
