"""Fuzzed commands, logs, manifests, states: none ends with a traceback, or changes a file outside its folder."""

import csv
import dataclasses
import io
import json
import math
import os
import re
import shutil
import warnings
from contextlib import suppress
from functools import reduce
from importlib import import_module
from itertools import cycle, pairwise
from operator import getitem
from pathlib import Path
from unittest import mock

import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from exaul import BadInput
from exaul.commands.main import COMMAND_MODULES, main
from exaul.engine.logs.log import Layout, load_log
from exaul.engine.manifest import first_difference, identity
from exaul.engine.simulation import batch
from tests.commands.boundaries.helpers import SMALL, interrupted
from tests.conftest import draw_few_figures

FUZZED = settings(derandomize=True, deadline=None, suppress_health_check=list(HealthCheck), database=None)


class AcceptedError(Exception):
    """The input is accepted; nothing is simulated."""


def accept(*given, **named):
    raise AcceptedError


NUMBERS = ["0", "1", "-1", "2", "3", "0.05", "0.5", "1.0", "1e-308", "1e308", "1e400", "nan", "inf", "-inf"]
NUMBERS += ["2147483647", "2147483648", "1_000", "0x10", "٣", "1/2", "2/1"]
NUMBERS += [" 3", "3 ", str(2**64), "7" * 30, "9" * 350, "9" * 5000]
WORDS = ["stochastic", "single-shift", "replay", "interactive", "exaul", "ew", "no-abstention", "logit", "dense"]
WORDS += ["quantile", "native", "float32"]
WORDS += ["json", "bar", "quiet", "1/sqrt", "x=1", "patience=0.5", "score", "error", "a:b", "os:getcwd", "json:x"]
WORDS += [":", "x:", "é", "%s", "{}", "$x$"]
WORDS += ["", " ", "\udcff", "a\nb", "\x1b[31m", "\u2028", "x" * 300, "\x7f"]
PATHS = ["log.csv", "log.csv:score=0.5", "log.csv:model=a,model=b", "log.jsonl", "none.csv", "log.csv/x", "done"]
PATHS += ["done/manifest.json"]
PATHS += ["stopped", "shard", "loop", ".", "/", "/dev/null", "/proc/self/mem", "~", "-", "--", "-x", "x"]
VALUES = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(WORDS), st.sampled_from(PATHS), st.text(max_size=5))


def flags_of(command):
    """The flags of a command, and its positional arguments, from its configurations."""
    each = [
        f
        for one in import_module(f"exaul.commands.{COMMAND_MODULES[command][0]}").COMMANDS[command].configurations
        for f in dataclasses.fields(one)
    ]
    flags = ["--" + f.name.replace("_", "-") for f in each if f.default is not dataclasses.MISSING]
    return [*flags, "--help", "--x", "-h", "-"], sum(f.default is dataclasses.MISSING for f in each)


@st.composite
def lines(draw):
    """A command with some of its flags, and values that may be theirs or not."""
    command = draw(st.sampled_from([*COMMAND_MODULES, *COMMAND_MODULES, "dance", ""]))
    if command not in COMMAND_MODULES:
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
    with pytest.MonkeyPatch.context() as patch:
        draw_few_figures(patch)
        assert main(["sweep", *SMALL, "--out", "done"]) == 0
    assert main(["sweep", *SMALL, "--shard", "1/2", "--out", "shard"]) == 0
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
        err = re.sub(r"\A(trace \d+ of \d+: .*\n)+", "", err)  # a sweep that has begun says where it is
        assert err.startswith("exaul: "), argv
        assert err.count("\n") == 1, argv
        assert err.rstrip("\n").isprintable(), argv
        assert out == "" or argv[0] == "inspect", argv
    return status


@pytest.mark.slow
@settings(FUZZED, max_examples=10_000)
@given(argv=lines())
def test_ten_thousand_command_lines(argv, place, capsys):
    os.chdir(place)
    before = seen(place)
    with (
        mock.patch("exaul.engine.run._run_missing", accept),
        mock.patch("exaul.commands.verify.certify_all", accept),
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


HOSTILE = [None, True, -1, 0, 1, 2.5, 1e308, 10**400, float("nan"), float("inf"), [], [1], [None], [[]], ["x"] * 3]
HOSTILE += [{}, {"a": 1}, {"seed": 1}, "", "x", "1", "\ud800", "a\nb", "é" * 300, "os:getcwd", "replay", "stopped"]


def places_in(tree, above=()):
    """The paths of all values in nested lists and dictionaries."""
    yield above
    for key in tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield from places_in(tree[key], (*above, key))


OF_EACH_TYPE, GONE = [True, 1, 2.5, "x", [], {}], object()
RESUME = ["sweep", "--resume", "out"]
USES = {  # of a folder, by what it has; three, so that each takes its turn at every value
    "stopped": (RESUME, ["rerun", "out"], ["merge", "out"]),
    "traces": (RESUME, ["rerun", "out", "--out", "new"], RESUME),
    "shard": (["merge", "out"], RESUME, ["merge", "out"]),
}


@pytest.mark.parametrize("kind", USES)
def test_each_value_of_a_manifest(kind, place, capsys, tmp_path):
    """Others in its place, or none: refused, or nothing that a resumed sweep depends on differs; types stay.

    Of a configuration, values that are the same in ``stopped`` are replaced there alone.
    """
    os.chdir(tmp_path)
    shutil.copytree(place / kind, "out")
    shutil.copy(place / "log.csv", ".")
    hostile, uses = cycle(HOSTILE), cycle(USES[kind])
    path, is_stopped = Path("out/manifest.json"), kind == "stopped"
    text, before = path.read_text(), seen(tmp_path)
    stopped = json.loads((place / "stopped" / "manifest.json").read_text())
    whole, known = identity(stopped), stopped["configuration"] if kind in ("traces", "shard") else {}
    same = [name for name in known if known[name] == json.loads(text)["configuration"][name]]
    for *above, key in [*places_in(json.loads(text))][1:]:
        if above[:1] == ["configuration"] and [*above, key][1] in same:
            continue
        old = reduce(getitem, above, json.loads(text))[key]
        is_read = above == ["configuration"] or (above == [] and key in {*whole, "start", "end"})
        is_typed = is_stopped and is_read and (old is not None or key == "end")
        types = {type(None), str if key == "end" else type(old), int if isinstance(old, float) else type(old)}
        for value in [next(hostile), *(OF_EACH_TYPE if is_typed else []), GONE]:
            about = json.loads(text)
            holder = reduce(getitem, above, about)
            holder[key] = value
            if value is GONE:
                del holder[key]
            path.write_text(json.dumps(about))
            argv = next(uses)
            with mock.patch.object(batch, "make_chunks", accept):
                status = ends(argv, capsys)
            if is_stopped and status != 2:
                assert not is_typed or type(value) in types or value is GONE, (*above, key, value, argv)
                changed = argv == RESUME and first_difference(whole, identity(about), "", "")
                assert not changed, (*above, key, value)
            shutil.rmtree("new", ignore_errors=True)
    path.write_text(text)
    assert seen(tmp_path) == before


CELLS = ["0", "1", "0.5", "1.0", "1e-3", "-0.0", "nan", "inf", "1.5", "-1", "0,5", "true", "False", "x", "é"]
CELLS += ["", " ", " 1", "\x1b[31m", "a\nb", 'a"b', "\u2028", None, True, False, 0, 1, 0.25, 2, -1, 1e308, math.nan]
CELLS += [10**400]
NESTED = [[], [0.5], {"a": 1}, {}]  # in JSON lines only
NAMES = ["score", "error", "correct", "model", "", "Score", " score", "score_a", "a,b", "a\nb", "\x1b[2J", "0"]

EDITS = "cell", "cell", "name", "drop row", "drop column", "again"


@st.composite
def edited_tables(draw):
    """The columns and rows of a small log, after up to three edits; and the ending of its file."""
    ending = draw(st.sampled_from(["csv", "jsonl", "parquet"]))
    columns, rows = ["score", "error", "model"], [[draw(st.floats(0, 1)), i % 2, "ab"[i % 2]] for i in range(6)]
    cells = st.sampled_from(CELLS + NESTED * (ending == "jsonl"))
    for how in draw(st.lists(st.sampled_from(EDITS), max_size=3)):
        i, k = draw(st.integers(0, len(rows) - 1)), draw(st.integers(0, len(columns) - 1))
        if how == "cell":
            rows[i][k] = draw(cells)
        elif how == "name":
            columns[k] = draw(st.sampled_from(NAMES))
        elif how == "drop row" and len(rows) > 1:
            del rows[i]
        elif how == "drop column" and len(columns) > 1:
            for line in (columns, *rows):
                del line[k]
        elif how == "again":
            for line in (columns, *rows):
                line.append(line[k])
    return ending, columns, rows


def written(ending, columns, rows):
    """The bytes of a log, and its cells as the format keeps them: text in CSV, text or null in Parquet."""
    if ending == "jsonl":
        pairs = [[f"{json.dumps(n)}: {json.dumps(x)}" for n, x in zip(columns, row, strict=True)] for row in rows]
        return "".join(f"{{{', '.join(each)}}}\n" for each in pairs).encode(), rows
    texts = [[None if x is None else str(x) for x in row] for row in rows]
    stream = io.BytesIO()
    if ending == "parquet":
        arrays = [pyarrow.array(cells, pyarrow.string()) for cells in zip(*texts, strict=True)]
        parquet.write_table(pyarrow.Table.from_arrays(arrays, names=columns), stream)
        return stream.getvalue(), texts
    text = io.StringIO()
    csv.writer(text).writerows([columns, *([x or "" for x in row] for row in texts)])
    return text.getvalue().encode(), [[x or "" for x in row] for row in texts]


def read_plainly(columns, rows, drop):
    """The scores and errors of a log, by the rules of docs/logs.md; None if it must be refused."""
    named = [name for name in columns if name]
    labels = {"error", "correct"} & set(columns)
    if len(set(named)) < len(named) or "score" not in columns or len(labels) != 1:
        return None
    (label,) = labels
    kept = []
    for row in rows:
        score, error = (row[columns.index(name)] for name in ("score", label))
        missing = [x is None or x != x or (isinstance(x, str) and not x.strip()) for x in (score, error)]
        truth = {"true": 1.0, "false": 0.0}.get(str(error).strip().lower())
        numbers = [math.nan if isinstance(score, bool) else as_number(score), truth]
        numbers[1] = as_number(error) if truth is None else truth
        if any(not (gone and drop) and not 0 <= x <= 1 for x, gone in zip(numbers, missing, strict=True)):
            return None
        if not any(missing):
            kept.append((numbers[0], 1 - numbers[1] if label == "correct" else numbers[1]))
    return kept or None


def as_number(cell):
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.nan


@pytest.mark.parametrize("many", [100, pytest.param(10_000, marks=pytest.mark.slow)])
def test_edited_logs(many, in_folder, capsys):
    settings(FUZZED, max_examples=many)(given(table=edited_tables(), drop=st.booleans(), data=st.data())(edit_log))(
        capsys
    )


def edit_log(capsys, table, drop, data):
    """A log is read as ``read_plainly`` reads it, or refused; with changed bytes, it is read or refused."""
    ending, columns, _ = table
    content, cells = written(*table)
    log, records = Path(f"log.{ending}"), None
    log.write_bytes(content)
    expected = read_plainly(columns, cells, drop)
    with suppress(BadInput):
        records = load_log(str(log), Layout(drop_missing=drop))
    assert (records is None) == (expected is None)
    if records is not None:
        assert list(zip(records.scores, records.errors, strict=True)) == expected
        assert records.dropped == len(cells) - len(expected)
    if data.draw(st.booleans()):
        damaged = bytearray(content)
        for _ in range(data.draw(st.integers(1, 3))):
            damaged[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        log.write_bytes(damaged[: data.draw(st.integers(1, len(content)))])
        expected = ...
    argv = data.draw(st.sampled_from([["inspect"], ["sweep", "--logs"], ["sweep", "--each", "model", "--logs"]]))
    before = seen(Path.cwd())
    with mock.patch("exaul.engine.run._run_missing", accept):
        status = ends([*argv, str(log), *(["--drop-missing"] if drop else [])], capsys)
    assert expected is ... or "--each" in argv or (status == 2) == (expected is None)
    assert seen(Path.cwd()) == before
