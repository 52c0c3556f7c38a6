"""Limits of memory that a container sets."""

import pytest

from exaul.engine import machine


@pytest.mark.parametrize("version", [1, 2])
def test_limits_of_containers_count(version, tmp_path, monkeypatch):
    """The free memory is the limit of an ancestor group, less the memory in use but for droppable caches."""
    root = tmp_path / "cgroup" / ("memory" if version == 1 else "")
    inner = root / "outer" / "inner"
    inner.mkdir(parents=True)
    limit, used, cache = machine.LIMITS[2 - version]
    for folder, most, taken in ((root / "outer", "500000", "300000"), (inner, "max", "200000")):
        (folder / limit).write_text(most + "\n")
        (folder / used).write_text(taken + "\n")
        (folder / "memory.stat").write_text(f"anon 5\n{cache} 40000\n")
    own = tmp_path / "own"
    own.write_text("4:memory:/outer/inner\n1:cpu:/\n" if version == 1 else "0::/outer/inner\n")
    monkeypatch.setattr(machine, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(machine, "OWN_CGROUPS", own)
    assert machine.host_memory() == 240_000
    own.write_text("")
    assert machine.host_memory() > 2**20
