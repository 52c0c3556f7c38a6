"""Fuzzed commands, manifests and states: none ends with a traceback, none changes a file outside its folder."""

import copy
import dataclasses
import json
import os
import shutil
import warnings
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exaul.commands.main import COMMANDS, main
from exaul.engine.simulation import oblivious
from tests.commands.boundaries.helpers import interrupted

pytestmark = pytest.mark.slow
FUZZED = settings(derandomize=True, deadline=None, suppress_health_check=list(HealthCheck), database=None)


class AcceptedError(Exception):
    """The input is accepted; nothing is simulated."""


def accept(*given):
    raise AcceptedError


NUMBERS = [
    "0",
    "1",
    "-1",
    "2",
    "3",
    "0.05",
    "0.5",
    "1.0",
    "1e-308",
    "1e308",
    "1e400",
    "nan",
    "inf",
    "-inf",
    "7" * 30,
]
NUMBERS += [
    "2147483647",
    "2147483648",
    str(2**64),
    "9" * 350,
    "9" * 5000,
    "1_000",
    "0x10",
    "٣",
    " 3",
    "3 ",
    "1/2",
    "2/1",
]
WORDS = [
    "",
    " ",
    "stochastic",
    "single-shift",
    "replay",
    "interactive",
    "exaul",
    "ew",
    "no-abstention",
    "logit",
    "dense",
]
WORDS += [
    "quantile",
    "native",
    "float32",
    "json",
    "bar",
    "quiet",
    "1/sqrt",
    "x=1",
    "patience=0.5",
    "score",
    "error",
    "a:b",
]
WORDS += [
    "os:getcwd",
    "json:x",
    ":",
    "x:",
    "é",
    "\udcff",
    "a\nb",
    "\x1b[31m",
    "\u2028",
    "%s",
    "{}",
    "$x$",
    "x" * 300,
    "\x7f",
]
PATHS = ["log.csv", "log.csv:score=0.5", "log.csv:model=a,model=b", "log.jsonl", "none.csv", ".", "/", "/dev/null"]
PATHS += [
    "/proc/self/mem",
    "done",
    "done/manifest.json",
    "stopped",
    "shard",
    "loop",
    "log.csv/x",
    "~",
    "-",
    "--",
    "-x",
    "x",
]
VALUES = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(WORDS), st.sampled_from(PATHS), st.text(max_size=5))


def flags_of(command):
    """The flags of a command, and its positional arguments, from its configurations."""
    each = [
        f
        for one in import_module(f"exaul.commands.{command.replace(' ', '_')}").CONFIGURATIONS
        for f in dataclasses.fields(one)
    ]
    flags = ["--" + f.name.replace("_", "-") for f in each if f.default is not dataclasses.MISSING]
    return [*flags, "--help", "--x", "-h", "-"], sum(f.default is dataclasses.MISSING for f in each)


@st.composite
def lines(draw):
    """A command with some of its flags, and values that may be theirs or not."""
    command = draw(st.sampled_from([*COMMANDS, *COMMANDS, "dance", ""]))
    if command not in COMMANDS:
        return [command, *draw(st.lists(VALUES, max_size=2))]
    flags, positional = flags_of(command)
    argv = [*command.split(), *draw(st.lists(st.sampled_from(PATHS), min_size=positional, max_size=positional + 1))]
    for flag in draw(st.lists(st.sampled_from(flags), max_size=4)):
        argv += [flag, *draw(st.lists(VALUES, max_size=2))]
    return argv


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with logs, a sweep that ended, one that was stopped, another over traces, and a shard."""
    home, before = tmp_path_factory.mktemp("fuzz"), os.getcwd()
    os.chdir(home)
    Path("log.csv").write_text("score,error,model\n0.5,1,a\n0.9,0,b\n")
    Path("log.jsonl").write_text('{"score": 0.5, "error": 1}\n')
    Path("loop").symlink_to("loop")
    small = ["--trials", "2", "--horizon", "300", "--arms", "20", "--learners", "exaul", "--progress", "quiet"]
    assert main(["sweep", *small, "--out", "done"]) == 0
    assert main(["sweep", *small, "--shard", "1/2", "--out", "shard"]) == 0
    interrupted()
    Path("out").rename("stopped")
    interrupted("--logs", "log.csv", "--each", "model")
    Path("out").rename("traces")
    yield home
    os.chdir(before)


def seen(folder):
    """All that is in a folder."""
    return {p: None if p.is_symlink() or p.is_dir() else p.read_bytes() for p in folder.rglob("*")}


def ends(argv, capsys):
    """How a command ends: quietly, in one line, or where it would simulate; the status."""
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            status = main(argv)
        except AcceptedError:
            return None
    out, err = capsys.readouterr()
    assert status in (0, 1, 2), argv
    if status == 2:
        assert err.startswith("exaul: "), argv
        assert err.count("\n") == 1, argv
        assert err.rstrip("\n").isprintable(), argv
        assert out == "" or argv[0] == "inspect", argv
    return status


@settings(FUZZED, max_examples=10_000)
@given(argv=lines())
def test_ten_thousand_command_lines(argv, place, capsys):
    os.chdir(place)
    before = seen(place)
    with (
        mock.patch("exaul.engine.job.SweepJob.finish", accept),
        mock.patch("exaul.engine.simulation.certify.certify_all", accept),
        mock.patch("exaul.engine.simulation.resources._program_bytes", return_value=0),
    ):
        ends(argv, capsys)
    places = [Path(value) for flag, value in pairwise(argv) if flag == "--out" and value]
    after = seen(place)
    outs = [place / path for path in places if not os.path.islink(place / path)]
    for path in after.keys() | before.keys():
        if before.get(path, 0) != after.get(path, 0):
            assert any(path.is_relative_to(out) or out.is_relative_to(path) for out in outs), (argv, path)
    for path in sorted(after.keys() - before.keys(), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


HOSTILE = [
    None,
    True,
    -1,
    0,
    1,
    2.5,
    1e308,
    10**400,
    "",
    "x",
    "1",
    [],
    [1],
    [None],
    {},
    {"a": 1},
    "\ud800",
    "a\nb",
    "é" * 300,
]
HOSTILE += ["os:getcwd", "replay", "stopped", ["x"] * 3, float("nan"), float("inf"), [[]], {"seed": 1}]


def places_in(tree, above=()):
    """The paths of all values in nested lists and dictionaries."""
    yield above
    for key in tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield from places_in(tree[key], (*above, key))


@settings(FUZZED, max_examples=4_000)
@given(data=st.data())
def test_edited_manifests(data, place, capsys, tmp_path_factory):
    folder = tmp_path_factory.mktemp("edited")
    os.chdir(folder)
    kind = data.draw(st.sampled_from(["stopped", "done", "shard", "traces"]))
    shutil.copytree(place / kind, folder / "out")
    shutil.copy(place / "log.csv", folder)
    about = json.loads((folder / "out/manifest.json").read_text())
    for _ in range(data.draw(st.integers(1, 2))):
        where = data.draw(st.sampled_from(sorted(places_in(about), key=repr)))
        above, value = about, data.draw(st.sampled_from(HOSTILE))
        for key in where[:-1]:
            above = above[key]
        if not where:
            about = copy.deepcopy(value) if isinstance(value, dict) else about
        elif data.draw(st.booleans()) or isinstance(above, list):
            above[where[-1]] = copy.deepcopy(value)
        else:
            del above[where[-1]]
    (folder / "out/manifest.json").write_text(json.dumps(about))
    check_all(folder, data, capsys)


@settings(FUZZED, max_examples=1_000)
@given(data=st.data())
def test_edited_states(data, place, capsys, tmp_path_factory):
    """Bytes changed, files cut, arrays changed or exchanged: refused, or as it was."""
    folder = tmp_path_factory.mktemp("edited")
    os.chdir(folder)
    kind, name = data.draw(st.sampled_from([("stopped", "state/now.npz"), ("shard", "counts.npz")]))
    shutil.copytree(place / kind, folder / "out")
    path = folder / "out" / name
    content = bytearray(path.read_bytes())
    how = data.draw(st.sampled_from(["flip", "cut", "grow", "arrays", "exchange", "folder", "gone"]))
    if how == "flip":
        for _ in range(data.draw(st.integers(1, 3))):
            content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    if how in ("flip", "cut", "grow"):
        end = data.draw(st.integers(0, len(content))) if how == "cut" else len(content)
        path.write_bytes(content[:end] + bytes(data.draw(st.binary(max_size=9)) if how == "grow" else b""))
    elif how == "arrays":
        arrays = dict(np.load(path))
        one = data.draw(st.sampled_from(sorted(arrays)))
        changed = [None, np.zeros(0), arrays[one].astype("S"), arrays[one][..., None], np.array("x"), np.array(7)]
        value = changed[data.draw(st.integers(0, len(changed) - 1))]
        arrays.pop(one)
        np.savez(path, **arrays if value is None else arrays | {one: value})
    elif how == "exchange":
        shutil.copy(place / ("shard/counts.npz" if kind == "stopped" else "stopped/state/now.npz"), path)
    else:
        path.unlink()
        if how == "folder":
            path.mkdir()
    check_all(folder, data, capsys)


def check_all(folder, data, capsys):
    """Resume, rerun and merge a folder; input that is accepted must equal what was saved."""
    argv = data.draw(st.sampled_from([["sweep", "--resume", "out"], ["rerun", "out"], ["merge", "out"]]))
    more = data.draw(st.sampled_from([[], ["--out", "new"]])) if argv[0] != "sweep" else []
    before = seen(folder)
    with mock.patch.object(oblivious, "make_chunks", accept):
        status = ends([*argv, *more], capsys)
    after = seen(folder)
    new = folder / "new"
    assert all(path.is_relative_to(new) for path in after.keys() ^ before.keys())
    assert all(after[path] == content for path, content in before.items())
    assert status in (None, 0, 1, 2)
    shutil.rmtree(folder)
