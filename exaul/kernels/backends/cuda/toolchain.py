"""Load numba-cuda and compile kernels with it, or explain in one sentence why it cannot run here."""

import importlib.util
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from exaul.kernels.backends.store import Store

# Most registers of a thread, so that 16 warps fit into a multiprocessor.
REGISTERS = 128


def simulated() -> bool:
    """Return whether Numba's simulator replaces a device."""
    return os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"


def load() -> Any:
    """Return the module ``numba.cuda`` of numba-cuda.

    Raises:
        ImportError: it is not installed, or cannot be imported.
    """
    if not simulated():
        with _with_row_stack(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # numpy warns about what numba-cuda calls
            import_module("numba.cuda.np.arrayobj")  # else imported later, when row_stack is gone
    return import_module("numba.cuda")


def launchable(function: Callable[..., Any]) -> Any:
    """Return a kernel that Python launches; its machine code is stored on disk.

    Args:
        function: written in the part of Python that numba-cuda compiles; it returns nothing.
    """
    cuda = load()
    if simulated():
        return cuda.jit(function)
    # With optimization at link time numba-cuda compiles each kernel twice. Without it, as many warps of each kernel
    # of ``device.py`` fit into the registers of a scheduler (compiled for sm_90a).
    dispatcher = cuda.jit(function, lto=False, max_registers=REGISTERS)
    # numba-cuda has no public way to set a cache of one's own, and to launch a stored cubin with ``cuda.core`` one
    # would have to repeat how it passes arrays.
    dispatcher._cache = Store(function, lambda kernel: kernel, lambda context, kernel: kernel, _versions)
    return dispatcher


def _versions() -> tuple[Any, ...]:
    """Return the versions of numba-cuda and of the compiler and the linker that it uses."""
    nvvm, linker = (import_module(f"cuda.bindings.{name}") for name in ("nvvm", "nvjitlink"))
    return import_module("numba_cuda").__version__, nvvm.version(), nvvm.ir_version(), linker.version()


@contextmanager
def _with_row_stack() -> Iterator[None]:
    """Define ``numpy.row_stack`` while numba-cuda is imported.

    numba-cuda up to 0.30.4 registers an implementation of it, but numpy 2.5 removed it, and then no kernel
    compiles. numba-cuda is in maintenance mode and will not follow numpy (its issue 907). No kernel here uses the
    function.
    """
    if hasattr(np, "row_stack"):
        yield
        return
    vars(np)["row_stack"] = np.vstack  # linters would rewrite an attribute to vstack
    try:
        yield
    finally:
        del vars(np)["row_stack"]


def problem() -> str | None:
    """Return one sentence that says why the CUDA backends cannot be used here, or None if they can."""
    return None if failure() is None else f"the cuda backends are not used: {failure()}"


@cache
def failure() -> str | None:
    """Run a kernel of one line with numba-cuda, and describe the failure, if any.

    Returns:
        One clause that names the cause (driver, compiler, module) and the versions; None if the kernel runs.
    """
    if simulated():
        return None
    if importlib.util.find_spec("numba_cuda") is None:
        return "numba-cuda is not installed; the extras cuda12 and cuda13 install it"
    versions = f"numba-cuda {import_module('numba_cuda').__version__}, numpy {np.__version__}"
    try:
        cuda = load()
    except Exception as error:
        return f"numba-cuda cannot be imported ({_first_line(error)}; {versions})"
    if getattr(cuda, "implementation", None) != "NVIDIA":
        return f"numba.cuda comes from numba, because the .pth file of numba-cuda was not read ({versions})"
    if cuda.cuda_error() is not None:
        return f"the CUDA driver cannot be used ({_one_line(cuda.cuda_error())}; {versions})"
    try:
        devices = len(cuda.gpus)  # initializes the driver
    except Exception as error:
        return f"the CUDA driver cannot be used ({_one_line(str(error))}; {versions})"
    if devices == 0:
        return f"the CUDA driver lists no device ({versions})"
    try:
        found = cuda.to_device(np.zeros(1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one block leaves most of a device idle
            launchable(_write)[1, 32](found)
        ran = found.copy_to_host()[0] == 1
    except Exception as error:
        return f"a first kernel fails ({_first_line(error)}; {versions})"
    return None if ran else f"a first kernel computes a wrong result ({versions})"


def _write(x):
    x[0] = 1


def _one_line(text: str) -> str:
    return " ".join(text.split()).strip(" :.")


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {_one_line(lines[0])}" if lines else type(error).__name__
