"""Machine code is stored on disk, and loaded only for the same code and numbers; anything else is compiled."""

from types import SimpleNamespace

import numpy as np
import pytest

from exaul.kernels.cache import hash_of
from exaul.kernels.native import store
from exaul.kernels.native.compile import compiled, outermost

SOURCE = """
def inner(x, power={power}):
    return {factor} * x**power

inner = compiled(inner)
def outer(x):
    return inner(x) + table[len(table) // 2]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    store._folder.cache_clear()
    yield tmp_path / "exaul"
    store._folder.cache_clear()


def hits(factor=2.0, power=1, table=(1.0,), module="exaul.kernels"):
    """Call a new loop of an importable module, which reads a table; return whether it was loaded."""
    scope = {"__name__": module, "compiled": compiled, "table": table}
    exec(SOURCE.format(factor=factor, power=power), scope)
    loop = outermost(scope["outer"])
    assert loop(3.0) == factor * 3**power + table[len(table) // 2]
    return sum(loop.stats.cache_hits.values())


USER = {"module": "tests.games"}
NOWHERE = {"module": "in_no_file"}
LONG = {"table": np.arange(2000.0)}
CHANGED = {"table": np.where(LONG["table"] == 1000, 1.0, LONG["table"])}  # its text leaves out the middle


@pytest.mark.parametrize(
    ("calls", "loaded"),
    [
        ([{}, {"factor": 4.0}, {}], [0, 0, 1]),
        ([{}, {"power": 2}, {}], [0, 0, 1]),
        ([{}, {"table": (4.0,)}, {}], [0, 0, 1]),
        ([LONG, LONG, CHANGED], [0, 1, 0]),
        ([USER, USER, USER | {"factor": 4.0}], [0, 1, 0]),
        ([NOWHERE, NOWHERE], [0, 0]),
    ],
)
def test_the_same_code_is_loaded_and_what_has_changed_is_compiled(calls, loaded, folder):
    """Of users' modules too; code that is in no file is not stored."""
    assert [hits(**call) for call in calls] == loaded
    assert bool(list(folder.glob("numba-*/*"))) == (calls[0] is not NOWHERE)


def test_the_code_of_another_processor_is_not_loaded(folder):
    stored = store.Store(outermost)
    paths = [stored._path("signature", SimpleNamespace(magic_tuple=lambda n=n: (n,))) for n in (0, 0, 1)]
    assert len(set(paths)) == 2


@pytest.mark.parametrize("damage", [lambda x: x[:-1], lambda x: bytes(32) + x[32:], lambda x: b""])
def test_a_damaged_file_is_not_loaded(folder, damage):
    hits()
    (path,) = folder.glob("numba-*/*")
    path.write_bytes(damage(path.read_bytes()))
    assert [hits(), hits()] == [0, 1]


@pytest.mark.parametrize(
    ("source", "counts"),
    [
        ('def f(x=1):\n    """Return x."""\n    return x  # the argument\n', False),
        ('"""A module."""\n\n\ndef f(x=1):\n    return (x)\n', False),
        ("def f(x=1):\n    return -x\n", True),
        ("def f(x=1):\n    'x'\n    'y'\n    return x\n", True),
        ("{% template %}", True),
    ],
)
def test_comments_and_docstrings_do_not_change_a_hash(tmp_path, source, counts):
    path, hashes = tmp_path / "own.py", set()
    for text in ("def f(x=1):\n    return x\n", source):
        path.write_text(text)
        hashes.add(hash_of(tmp_path, [path]))
    assert len(hashes) == 1 + counts


def test_folders_of_old_sources_are_removed(folder, monkeypatch):
    for n in range(store.VERSIONS + 2):
        monkeypatch.setenv("NUMBA_OF_THIS_TEST", str(n))
        store._folder.cache_clear()
        hits()
    assert len(list(folder.glob("numba-*"))) == store.VERSIONS
