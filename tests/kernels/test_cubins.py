"""numba-cuda compiles every kernel to machine code without a device."""

import importlib.util

import pytest

from exaul.engine.simulation import device_check
from exaul.kernels.backends.cuda import backend
from tests.games import LEARNERS

if importlib.util.find_spec("numba_cuda") is None:
    pytest.skip("numba-cuda is not installed (group gpu)", allow_module_level=True)

MAKERS = {"threads": backend.make, "warps": backend.make_by_warps}
CHIPS = {"sm_80": (8, 0, ""), "sm_89": (8, 9, ""), "sm_90a": (9, 0, "a")}
PAIRS = [
    (name, lanes)
    for name, learner in LEARNERS.items()
    for lanes, make in MAKERS.items()
    if make(learner, "float64") is not None
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "lanes"), PAIRS)
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_a_kernel_compiles_to_machine_code(name, lanes, precision, monkeypatch):
    """It stops where a device would be needed: the kernel is linked, but not loaded."""
    from numba.cuda import codegen, dispatcher

    from exaul.kernels.backends.cuda import device, launch

    made = MAKERS[lanes](LEARNERS[name], precision)
    if made.precision != precision:
        pytest.skip("it has no weights, and one precision")
    kernels = []
    monkeypatch.setattr(codegen.CUDACodeLibrary, "_ensure_cc", lambda self, cc: cc or CHIPS["sm_90a"])
    monkeypatch.setattr(dispatcher._Kernel, "bind", lambda self: kernels.append(self))
    environment = device_check.CHECK_ENVIRONMENT
    kernel = launch._generating_kernel(
        made.kind, environment.choose_pool, environment.sources, environment.shuffled, made.lanes, made.precision
    )
    capability = type("Device", (), {"compute_capability": (9, 0)})
    monkeypatch.setattr(dispatcher, "get_current_device", capability)
    kernel.compile(device.signature(made.precision).args)
    (built,) = kernels
    for chip in CHIPS.values():
        cubin = built._codelibrary.get_cubin(cc=chip)
        assert cubin.code.startswith(b"\x7fELF")
        assert len(cubin.code) > 10_000
