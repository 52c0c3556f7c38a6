"""The benchmark of GPUs, on a CPU in the place of a device; and launches, counted from a compiled program."""

from importlib.util import find_spec

import pytest

from benchmarks import gpu
from exaul.engine import machine
from tests.benchmarks.test_benchmarks import Once


def test_every_learner_is_measured_on_every_backend_and_at_every_size(monkeypatch):
    small = {"LEARNERS": ("exaul", "aci-rank"), "COPIES": (40, 80), "ARMS": 20, "ROUNDS": 20_480}
    for name, value in small.items():
        monkeypatch.setattr(gpu, name, value)
    monkeypatch.setattr(gpu.throughput, "Timer", Once)
    monkeypatch.setattr(gpu.throughput, "backends", lambda name, order: ["native", "dense"])
    monkeypatch.setattr(machine, "platform", lambda: "gpu")
    sizes = [(row["learner"], row["copies"], row["rounds"]) for row in gpu.run(quick=False) if row["value"] > 0]
    assert sizes == [("exaul", 40, 512), ("aci-rank", 40, 512), ("exaul", 80, 256), ("aci-rank", 80, 256)]
    assert [row["learner"] for row in gpu.run(quick=True)] == ["exaul"]


PROGRAM = """%inner (p: (s32[], f64[8])) -> (s32[], f64[8]) {
  %wrapped = f64[8]{0} fusion(%x), kind=kLoop, calls=%computation
  ROOT %tuple.1 = (s32[], f64[8]{0}) tuple(%i, %wrapped)
}
%outer (p: (s32[], f64[8])) -> (s32[], f64[8]) {
  %copy.1 = f64[8]{0} copy(%x)
  ROOT %while.1 = (s32[]) while(%t), condition=%c, body=%inner, backend_config={"known_trip_count":{"n":"16"}}
}
%called (x: f64[8]) -> f64[8] {
  %copy.2 = f64[8]{0} copy(%x)
  ROOT %sort.1 = f64[8]{0} sort(%x), dimensions={0}
}
ENTRY %main.2 (x: f64[8]) -> f64[8] {
  %call.1 = f64[8]{0} call(%x), to_apply=%called
  %while.2 = (s32[], f64[8]{0}) while(%t), condition=%c, body=%outer, backend_config={"known_trip_count":{"n":"3"}}
  %get-tuple-element.1 = f64[8]{0} get-tuple-element(%while.2), index=1
  ROOT %reduce.1 = f64[] reduce(%get-tuple-element.1, %zero), to_apply=%add
}
"""


def test_loops_count_once_a_turn_and_one_of_unknown_length_is_no_number():
    assert gpu.count_launches(PROGRAM) == 2 + 3 * (1 + 16) + 1
    with pytest.raises(ValueError, match="unknown length"):
        gpu.count_launches(PROGRAM.replace("known_trip_count", "count"))


@pytest.mark.skipif(find_spec("jax_plugins") is None, reason="needs JAX's CUDA plugin (extra cuda12)")
@pytest.mark.parametrize("chip", gpu.CHIPS)
def test_blocks_launch_less_than_once_a_round(chip):
    assert gpu.compile_chunk(chip, "exaul", "blocks", 64, 100)["launches_per_round"] < 1
