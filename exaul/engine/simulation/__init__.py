"""Prepare a sweep and simulate it."""

import os

from exaul.engine.checks import check_holds

# Numba reads these once, when the modules of this package first import it: it would fail there, or later.
_disabled, _threads = os.environ.get("NUMBA_DISABLE_JIT", "0"), os.environ.get("NUMBA_NUM_THREADS", "1")
check_holds("NUMBA_DISABLE_JIT", _disabled, _disabled in ("", "0"), "0, because Numba compiles the simulation")
check_holds("NUMBA_NUM_THREADS", _threads, _threads.isdecimal() and int(_threads) > 0, "an integer of at least 1")
