"""Why numba-cuda cannot be used is one sentence; errors of a device are translated; numpy 2.5 does not stop it."""

import importlib.util
import sys
import types

import numpy as np
import pytest

from exaul.kernels.backends.cuda import crossover, errors, toolchain

HERE = importlib.util.find_spec("numba_cuda") is not None


@pytest.fixture(autouse=True)
def forget():
    toolchain.failure.cache_clear()
    yield
    toolchain.failure.cache_clear()


@pytest.fixture
def installed(monkeypatch):
    """As if numba-cuda were installed; returns what it is."""
    module = types.ModuleType("numba_cuda")
    module.__version__ = "0.99"
    module.__spec__ = importlib.util.spec_from_loader("numba_cuda", None)
    monkeypatch.setitem(sys.modules, "numba_cuda", module)
    monkeypatch.delenv("NUMBA_ENABLE_CUDASIM", raising=False)
    cuda = types.SimpleNamespace(implementation="NVIDIA", cuda_error=lambda: None, gpus=[0])
    monkeypatch.setattr(toolchain, "load", lambda: cuda)
    return cuda


def test_it_is_not_installed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    cause = "numba-cuda is not installed; the extras cuda12 and cuda13 install it"
    assert toolchain.failure() == cause
    assert toolchain.problem() == f"the cuda backends are not used: {cause}"


def test_it_cannot_be_imported(installed, monkeypatch):
    def load():
        raise AttributeError("module 'numpy' has no attribute 'row_stack'\n")

    monkeypatch.setattr(toolchain, "load", load)
    said = "numba-cuda cannot be imported (AttributeError: module 'numpy' has no attribute 'row_stack'; "
    assert toolchain.failure() == said + f"numba-cuda 0.99, numpy {np.__version__})"


def test_it_is_that_of_numba(installed):
    installed.implementation = "Built-in"
    assert "numba.cuda comes from numba, because" in toolchain.failure()


def test_there_is_no_driver(installed):
    installed.cuda_error = lambda: "\nCUDA driver library cannot be found.\nEnsure that it is.\n"
    said = "the CUDA driver cannot be used (CUDA driver library cannot be found. Ensure that it is; numba-cuda 0.99"
    assert toolchain.failure().startswith(said)


def test_there_is_no_device(installed):
    installed.gpus = []
    assert toolchain.failure().startswith("the CUDA driver lists no device (numba-cuda 0.99, ")


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (RuntimeError("\nMissing libdevice file.\nPlease install it"), "RuntimeError: Missing libdevice file;"),
        (0.0, "a first kernel computes a wrong result"),
        (1.0, None),
    ],
)
def test_a_first_kernel_is_run(installed, outcome, said):
    def copy_to_host():
        if isinstance(outcome, Exception):
            raise outcome
        return np.array([outcome])

    class Kernel:
        def __getitem__(self, how):
            return lambda array: None

    installed.to_device = lambda array: types.SimpleNamespace(copy_to_host=copy_to_host)
    installed.jit = lambda function, lto, max_registers: Kernel()
    found = toolchain.failure()
    assert found is None if said is None else said in found
    assert found is None or "\n" not in found


@pytest.mark.parametrize(
    ("capability", "multiprocessors", "ratio", "by_warps", "by_half_warps"),
    [
        ((9, 0), 132, 2, 1960, 34_000),
        ((8, 0), 108, 2, 1600, 28_000),
        ((8, 9), 128, 64, 140, 3280),
        ((8, 9), 58, 64, 64, 1480),
        ((7, 5), 40, 32, 44, 1020),
    ],
    ids=["H100", "A100", "4090", "L4", "T4"],
)
def test_slow_float64_favours_fewer_lanes(installed, capability, multiprocessors, ratio, by_warps, by_half_warps):
    device = types.SimpleNamespace(
        compute_capability=capability,
        MULTIPROCESSOR_COUNT=multiprocessors,
        SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO=ratio,
    )
    installed.get_current_device = lambda: device
    assert crossover.most_copies_by_warps() == pytest.approx(by_warps, rel=0.03)
    assert crossover.most_copies_by_half_warps() == pytest.approx(by_half_warps, rel=0.03)


@pytest.mark.skipif(not HERE, reason="numba-cuda is not installed (group gpu)")
def test_it_is_loaded_with_any_numpy():
    had = hasattr(np, "row_stack")
    assert toolchain.load().implementation == "NVIDIA"
    assert hasattr(np, "row_stack") == had


def test_the_alias_is_there_only_while_it_is_needed(monkeypatch):
    monkeypatch.delattr(np, "row_stack", raising=False)
    with toolchain._with_row_stack():
        assert vars(np)["row_stack"] is np.vstack
    assert "row_stack" not in vars(np)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY", MemoryError),
        ("[700] Call to cuMemcpyDtoH results in CUDA_ERROR_ILLEGAL_ADDRESS", errors.DeviceFailure),
        ("CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure", errors.DeviceFailure),
    ],
)
def test_errors_of_a_device(text, kind):
    found = errors.translated(RuntimeError(text), 1)
    assert type(found) is kind
    assert str(found).startswith("CUDA device 1: ")
    assert kind is MemoryError or "--backend dense" in str(found)


def test_another_error_stays_itself():
    error = ValueError("an array of the wrong shape")
    assert errors.translated(error, 0) is error
