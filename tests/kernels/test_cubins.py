"""numba-cuda compiles every kernel to machine code without a device, and a second process loads what was stored."""

import contextlib
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from exaul.engine.simulation import device_check
from exaul.kernels import orders
from exaul.kernels.backends.cuda import backend
from exaul.kernels.records import StreamPlan
from tests.games import LEARNERS

if importlib.util.find_spec("numba_cuda") is None:
    pytest.skip("numba-cuda is not installed (group gpu)", allow_module_level=True)

MAKERS = {"threads": backend.make, "half warps": backend.make_by_half_warps, "warps": backend.make_by_warps}
CHIPS = {"sm_80": (8, 0, ""), "sm_89": (8, 9, ""), "sm_90a": (9, 0, "a")}
PAIRS = [
    (name, lanes)
    for name, learner in LEARNERS.items()
    for lanes, make in MAKERS.items()
    if make(learner, "float64") is not None
]


@contextlib.contextmanager
def absent_device():
    """As if an H100 were here: kernels are compiled and linked for it, but not loaded."""
    from numba.cuda import codegen, dispatcher
    from numba.cuda.cudadrv import devices

    nowhere = SimpleNamespace(compute_capability=(9, 0))
    with contextlib.ExitStack() as stack:
        for place, name, found in [
            (codegen.CUDACodeLibrary, "_ensure_cc", lambda self, cc: cc or CHIPS["sm_90a"]),
            (dispatcher._Kernel, "bind", lambda self: self._codelibrary.get_cubin()),
            (dispatcher, "get_current_device", lambda: nowhere),
            (devices, "get_context", lambda: SimpleNamespace(device=nowhere)),
        ]:
            stack.enter_context(mock.patch.object(place, name, found))
        yield


def compiled(name, lanes, precision="float64"):
    """Return the code library of a learner's kernel, and how many kernels were loaded from disk."""
    from exaul.engine.simulation import launched
    from exaul.kernels.backends.cuda import device

    environment = device_check.CHECK_ENVIRONMENT
    shapes = tuple(orders.shape(size) for size in device_check.SIZES)
    plan = StreamPlan(environment.choose_pool, shapes, environment.shuffled)
    launched._kernel.cache_clear()
    kernel = launched.generating_kernel(MAKERS[lanes](LEARNERS[name], precision), plan)
    types = device.signature(precision).args
    kernel.compile(types)
    return kernel.overloads[types].library, sum(kernel._cache_hits.values())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "lanes"), PAIRS)
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_a_kernel_compiles_to_machine_code(name, lanes, precision):
    if MAKERS[lanes](LEARNERS[name], precision).precision != precision:
        pytest.skip("it has no weights, and one precision")
    with absent_device():
        library = compiled(name, lanes, precision)[0]
        for chip in CHIPS.values():
            cubin = library.get_cubin(cc=chip)
            assert cubin.code.startswith(b"\x7fELF")
            assert len(cubin.code) > 10_000


def store_and_load(second):
    """Compile two kernels, or, in a second process, load them; and miss one once it or its rule has changed."""
    from numba.cuda import dispatcher

    one, team = ("aci-rank", "threads"), ("exaul", "half warps")
    with absent_device():
        if second:
            stack = mock.patch.object(dispatcher, "compile_cuda", side_effect=ZeroDivisionError)
        else:
            stack = contextlib.nullcontext()
        with stack:
            found = {}
            for name, lanes in (one, team):
                library, hits = compiled(name, lanes)
                found[name] = hashlib.sha256(library.get_cubin().code).hexdigest(), hits
            if second:
                paths = (Path(os.environ["XDG_CACHE_HOME"]) / "exaul").glob("numba-*/*")
                before = {path: path.read_bytes() for path in paths}
                assert len(before) == 2
                for path, content in before.items():
                    path.write_bytes(content[:-1])
                with pytest.raises(ZeroDivisionError):
                    compiled(*one)
                for path, content in before.items():
                    path.write_bytes(content)
                assert compiled(*one)[1] == 1
                rule = LEARNERS["aci-rank"].rule.learn
                consts = tuple(x + 1 if isinstance(x, float) else x for x in rule.__code__.co_consts)
                rule.__code__ = rule.__code__.replace(co_consts=consts)
                with pytest.raises(ZeroDivisionError):
                    compiled(*one)
    print(json.dumps(found))


@pytest.mark.slow
def test_a_second_process_compiles_nothing(tmp_path):
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    first, second = (
        json.loads(
            subprocess.run(
                [sys.executable, "-m", "tests.kernels.test_cubins", which],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for which in ("first", "second")
    )
    assert first == {name: [sha, 0] for name, (sha, _) in first.items()}
    assert second == {name: [sha, 1] for name, (sha, _) in first.items()}


if __name__ == "__main__":
    store_and_load(sys.argv[1] == "second")
