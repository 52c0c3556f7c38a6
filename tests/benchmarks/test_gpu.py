"""The benchmark of GPUs, on a CPU in the place of a device; and launches, counted from a compiled program."""

from importlib.util import find_spec

import pytest

from benchmarks import gpu
from exaul.engine import machine
from tests.games import BACKENDS, PAIRS


def test_every_learner_is_measured_on_every_backend_and_at_every_size(monkeypatch):
    def measure(cases, repetitions):
        return [case._asdict() | {"repetitions": repetitions} for case in cases]

    monkeypatch.setattr(gpu.throughput, "measure", measure)
    monkeypatch.setattr(machine, "platform", lambda: "gpu")
    rows, quick = gpu.run(quick=False), gpu.run(quick=True)
    names = "learner", "backend", "copies", "arms", "rounds", "repetitions"
    pairs = [(name, x) for name in gpu.LEARNERS for x in BACKENDS if (name, x) in PAIRS and x != "native"]
    sizes = (1_024, gpu.ARMS, 2**15, 3), (65_536, gpu.ARMS, 2**9, 3)
    assert [tuple(row[name] for name in names) for row in rows] == [(*pair, *x) for x in sizes for pair in pairs]
    assert [row | {"repetitions": 3} for row in quick] == [
        row for row in rows[: len(quick)] if row["learner"] == "exaul"
    ]
    assert {row["repetitions"] for row in quick} == {1}


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
