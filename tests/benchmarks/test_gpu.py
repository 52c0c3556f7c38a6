"""The benchmark of GPUs, on a CPU in the place of a device."""

from benchmarks import gpu
from exaul.engine import machine


def test_every_learner_is_measured_on_every_backend_and_at_every_size(monkeypatch):
    small = {
        "LEARNERS": ("exaul", "aci-rank"),
        "COPIES": (40, 80),
        "ARMS": 20,
        "ROUNDS": 20_480,
    }
    for name, value in small.items():
        monkeypatch.setattr(gpu, name, value)
    monkeypatch.setattr(gpu.throughput, "backends", lambda name, order: ["native", "dense"])
    monkeypatch.setitem(gpu.throughput.REPETITIONS, False, 1)
    monkeypatch.setattr(machine, "platform", lambda: "gpu")
    sizes = [(row["learner"], row["copies"], row["rounds"]) for row in gpu.run(quick=False) if row["value"] > 0]
    assert sizes == [("exaul", 40, 512), ("aci-rank", 40, 512), ("exaul", 80, 256), ("aci-rank", 80, 256)]
    assert [row["learner"] for row in gpu.run(quick=True)] == ["exaul"]
