"""Machine code is stored on disk, and loaded only for the same code and numbers; anything else is compiled."""

import pytest

from exaul.kernels.backends import store
from exaul.kernels.backends.native.compile import compiled, outermost

SOURCE = """
def inner(x):
    return {factor} * x

inner = compiled(inner)
number = {number}

def outer(x):
    return inner(x) + number
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    store._folder.cache_clear()
    yield tmp_path / "exaul"
    store._folder.cache_clear()


def hits(factor=2.0, number=1.0, module="exaul.kernels"):
    """Call a new loop of an importable module, and return whether it was loaded."""
    scope = {"__name__": module, "compiled": compiled}
    exec(SOURCE.format(factor=factor, number=number), scope)
    loop = outermost(scope["outer"])
    assert loop(3.0) == factor * 3 + number
    return sum(loop.stats.cache_hits.values())


def test_what_is_the_same_is_loaded():
    assert [hits(), hits()] == [0, 1]


@pytest.mark.parametrize("change", [{"factor": 4.0}, {"number": 4.0}])
def test_what_has_changed_is_compiled(change):
    assert [hits(), hits(**change), hits()] == [0, 0, 1]


@pytest.mark.parametrize("damage", [lambda x: x[:-1], lambda x: bytes(32) + x[32:], lambda x: b""])
def test_a_damaged_file_is_not_loaded(folder, damage):
    hits()
    (path,) = folder.glob("numba-*/*")
    path.write_bytes(damage(path.read_bytes()))
    assert [hits(), hits()] == [0, 1]


def test_code_of_others_is_not_stored(folder):
    assert [hits(module="tests.games"), hits(module="tests.games")] == [0, 0]
    assert not list(folder.glob("numba-*/*"))


def test_folders_of_old_sources_are_removed(folder, monkeypatch):
    for n in range(store.VERSIONS + 2):
        monkeypatch.setenv("NUMBA_OF_THIS_TEST", str(n))
        store._folder.cache_clear()
        hits()
    assert len(list(folder.glob("numba-*"))) == store.VERSIONS
