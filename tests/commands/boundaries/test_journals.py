"""Journals that were edited or damaged: the right result or one sentence, never a traceback or silence."""

import json
import math
import random
import shutil
import sqlite3
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from exaul import Abstainers, BadInput
from exaul.commands.main import main
from exaul.engine.logs import files
from exaul.serving.entries import DECIDE, FEEDBACK, SNAPSHOT, WITHDRAW, JournalEntry, digest_of
from exaul.serving.file import FILE_VERSION
from exaul.serving.journal import read_journal
from tests.processes import ENTRY, output_of, python, sql
from tests.serving.test_abstainers import replay_in_memory

KEYS = "a", "b", "c"
LOG = [0.2, 0.9] * 20, [1, 0] * 20


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """A file of three keys, the first two of which have snapshots."""
    path, rng = tmp_path_factory.mktemp("journal") / "state", np.random.default_rng(0)
    with pytest.MonkeyPatch.context() as often:
        often.setattr("exaul.serving.abstainers.SNAPSHOT_EVERY", 60)
        with Abstainers(path, alpha=0.3, seed=1, warm_start=LOG) as abstainers:
            for n in range(140):
                id = abstainers.decide(float(rng.random()), key=KEYS[int(n % 10 > 4) + (n % 10 == 9)], id=str(n)).id
                if n % 3:
                    abstainers.feedback(id, float(rng.random() > 0.8))
                if n % 7 == 0:
                    abstainers.withdraw(str(n // 2))
    assert sql(path, "SELECT count(*) FROM journal WHERE kind = 'snapshot'") == [(2,)]
    return path


def figures_of(path):
    with Abstainers(path) as abstainers:
        return {key: abstainers.figures(key) for key in abstainers.all_keys()}


@pytest.fixture
def state(journal):
    shutil.copy(journal, "state")


CHANGED = "entry 40 or one before it was changed"
DAMAGES = {
    "UPDATE journal SET score = score + 1e-12 WHERE seq = 40": CHANGED,
    "UPDATE journal SET chain = 'x' WHERE seq = 40": CHANGED,
    "UPDATE journal SET id = CAST(x'ff' AS TEXT) WHERE seq = 40": "cannot be used (Could not decode to UTF-8",
    "DELETE FROM journal WHERE seq = 40": "entry 40 is missing",
    "UPDATE journal SET seq = seq - 1000": "the latest entries are not those",  # they are counted from one
    "DELETE FROM keys WHERE key = 'a'": "the keys are not those of the journal",
    "INSERT INTO keys VALUES (9, 'd')": "the keys are not those of the journal",
    "UPDATE starts SET start = replace(start, '0.2', '0.3')": "entry 1: a start that was never written",
    "DROP INDEX by_id": "the tables were changed",
    "CREATE TRIGGER sqlitet AFTER INSERT ON journal BEGIN DELETE FROM journal; END": "the tables were changed",
    "UPDATE meta SET value = replace(value, '0.3', '0.2') WHERE name = 'config'": "changed, or is of another file",
    "UPDATE meta SET value = x'00' WHERE name = 'config'": "the configuration is incomplete",
    "DELETE FROM meta": "version None found",
    "UPDATE meta SET value = '4' WHERE name = 'version'": "must be 6; begin a new file with --warm-start LOG",
}


@pytest.mark.parametrize("statement", DAMAGES)
def test_damage_is_one_sentence(state, capsys, refused, statement):
    expected = figures_of("state")
    sql("state", statement)
    refused(["journal", "verify", "state"], "exaul: state: ", DAMAGES[statement])
    capsys.readouterr()
    status = main(["journal", "export", "state", "--out", "rated.csv"])  # which needs less of the file
    out, err = capsys.readouterr()
    assert (status, out.count("\n"), err.count("\n")) in ((0, 3, 0), (2, 0, 1))
    with suppress(BadInput, OSError), Abstainers("state") as abstainers:
        for key in KEYS:  # the damage may be before the saved state
            assert abstainers.figures(key) == expected[key]


def test_a_key_is_a_text(state):
    sql("state", "INSERT INTO keys VALUES (9, x'ff')")
    with Abstainers("state") as abstainers, pytest.raises(OSError, match=r"key b'\\xff' found; it must be a text"):
        abstainers.all_keys()


def chain_anew(path):
    """Compute the digests of a journal as ``append`` does, which an edit by hand does not."""
    with sqlite3.connect(path) as file:
        (config,) = file.execute("SELECT value FROM meta WHERE name = 'config'").fetchone()
        link = digest_of(str(FILE_VERSION), config)
        for row in file.execute(f"SELECT {','.join(JournalEntry._fields)} FROM journal ORDER BY seq").fetchall():
            link = digest_of(link, json.dumps(row))
            file.execute("UPDATE journal SET chain = ? WHERE seq = ?", (link, row[0]))
        file.execute("UPDATE meta SET value = ? WHERE name = 'closed'", (f"{row[0]} {link}",))
    file.close()


def test_what_a_replay_does_not_repeat_is_named(state, capsys):
    """By verify wherever it is; an entry by an open file if it is replayed, instead of losing its feedback.

    Whoever edits the file can compute the chain anew, and another release could decide otherwise.
    """
    with read_journal("state") as journal:
        withdrawn = {entry.id for entry in journal.entries() if entry.kind == WITHDRAW}
        shown = [entry for entry in journal.entries() if entry.answered and entry.id not in withdrawn]
        first, last = shown[0], [entry for entry in shown if entry.key == "c"][-1]
    change = f"answered = (seq <> {last.seq}), audit = (seq = {first.seq})"
    sql("state", f"UPDATE journal SET {change} WHERE seq in ({first.seq}, {last.seq})")
    chain_anew("state")
    printed = output_of(["journal", "verify", "state"], capsys, 1)
    assert f"same decisions: no, 2 differ, first at entry {first.seq}\n" in printed
    again = rf"entry {last.seq}: decide found, which a replay does not repeat"
    with Abstainers("state") as abstainers, pytest.raises(OSError, match=again):
        abstainers.decide(0.5, key="c")
    of = "SELECT {} FROM journal WHERE kind = 'snapshot' AND key = 'a' ORDER BY seq LIMIT 1"
    sql("state", f"UPDATE journal SET data = ({of.format('data')}) WHERE kind = 'snapshot' AND key = 'b'")
    chain_anew("state")
    assert "same snapshots: no, 1 differ, first at entry" in output_of(["journal", "verify", "state"], capsys, 1)


def test_a_snapshot_is_used_as_it_was_written_and_with_its_open_answers(state):
    """In a file that was closed, whose latest entry alone is checked when it is opened. Each place matters."""
    with read_journal("state") as journal:
        entries = list(journal.entries(key="a"))
    (snapshot,) = (entry for entry in entries if entry.kind == SNAPSHOT)
    closed = {entry.id for entry in entries if entry.kind in (FEEDBACK, WITHDRAW)}
    waits = next(entry for entry in entries if entry.answered and entry.id not in closed)
    assert waits.seq < snapshot.seq
    late = f"entry {snapshot.seq}: .* open answers, of which"
    changes = [(("DELETE FROM journal WHERE seq = ?", (waits.seq,)), late)]
    for n in range(0, len(text := snapshot.data), max(1, len(text) // 60)):
        data = f"{text[:n]}{chr(ord(text[n]) ^ 1)}{text[n + 1 :]}"
        changes.append((("UPDATE journal SET data = ? WHERE seq = ?", (data, snapshot.seq)), "was changed"))
    for change, sentence in changes:
        sql("state", *change)
        with Abstainers("state") as abstainers, pytest.raises(OSError, match=sentence):
            abstainers.figures("a")


def test_a_journal_in_use_is_verified_and_exported(state, capsys, monkeypatch):
    with Abstainers("state") as abstainers:
        monkeypatch.setattr("exaul.serving.file.check_wal", pytest.fail)  # it may change while it is read
        abstainers.decide(0.5, key="new")
        printed = output_of(["journal", "verify", "state"], capsys)
        assert printed.endswith("141 decisions\nsame decisions: yes\nsame snapshots: yes\n")
        assert main(["journal", "export", "state", "--out", "rated.csv"]) == 0
        before = Path("state-wal").stat()[:7]  # without times
        shutil.copy("state", "copy")  # which releases SQLite's locks of this process
        python(ENTRY, "journal", "verify", "state")
        assert Path("state-wal").stat()[:7] == before
    monkeypatch.undo()
    assert main(["journal", "verify", "state"]) == 0


def test_rated_answers_are_exported_to_a_new_file(state, capsys, refused):
    """Also with a carriage return in the name of a key."""
    with Abstainers("state") as abstainers:
        abstainers.feedback(abstainers.decide(1.0, key="a\rb", id="n").id, "up")
    assert main(["journal", "export", "state", "--out", "rated.csv"]) == 0
    _, columns = files.read(Path("rated.csv"), ["key"])
    assert "a\rb" in columns["key"]
    printed = capsys.readouterr().out
    assert f"{len(columns['key'])} answers with feedback, of 141 decisions" in printed
    assert "do not start a learner from this file" in printed
    refused(["journal", "export", "state", "--out", "rated.csv"], "rated.csv", "found; it must be a new file")
    refused(["journal", "verify", "none"], "none")


def random_value(rng):
    """Return a value that SQLite can store, often one that is nearly right."""
    texts = *KEYS, DECIDE, FEEDBACK, WITHDRAW, "7", "", "x\0", "\u20ac", "[" * 5000, '{"a": 1}'
    numbers = None, 0, 1, -1, 2, rng.randrange(250), 2**31, 2**63 - 1, -(2**63), rng.random(), -0.5, 1e300, math.inf
    return rng.choice([*texts, *numbers, b"", b"\xff\xfe", str(rng.random()).encode()])


def edit_at_random(path, rng):
    """Change a value, exchange two, remove a row, write some bytes, or cut the file."""
    kind = rng.choice(["value", "value", "other row", "delete", "bytes"])
    if kind == "bytes":
        content = bytearray(path.read_bytes())
        first = rng.randrange(len(content))
        new = rng.choice([rng.randbytes(rng.randint(1, 8)), bytes(rng.randint(1, 500)), b""])
        content[first : first + len(new) if new else None] = new
        path.write_bytes(content)
        return
    table = rng.choice(["meta", "keys", "starts", *["journal"] * 5])
    (column,) = rng.choice(sql(path, f"SELECT name FROM pragma_table_info('{table}')"))
    rows = [row for (row,) in sql(path, f"SELECT rowid FROM {table}")]
    row, value = rng.choice(rows), random_value(rng)
    if kind == "other row":
        ((value,),) = sql(path, f"SELECT {column} FROM {table} WHERE rowid = {rng.choice(rows)}")
    with suppress(sqlite3.IntegrityError, UnicodeError):
        if kind == "delete":
            sql(path, f"DELETE FROM {table} WHERE rowid = {row}")
        else:
            sql(path, f"UPDATE OR REPLACE {table} SET {column} = ? WHERE rowid = {row}", (value,))


@pytest.mark.parametrize("edits", [60, pytest.param(10_000, marks=pytest.mark.slow)])
def test_any_edit_is_found_or_harmless(journal, tmp_path, capsys, edits):
    """If ``verify`` says yes, the file goes on as its entries say; otherwise each use is right or one sentence."""
    rng, count = random.Random(1), defaultdict(int)
    for _ in range(edits):
        shutil.copy(journal, "state")
        edit_at_random(Path("state"), rng)
        status = main(["journal", "verify", "state"])
        out, err = capsys.readouterr()
        count[status] += 1
        assert (status, out.count("\n"), err.count("\n")) in ((0, 3, 0), (1, 3, 0), (2, 0, 1))
        exported = main(["journal", "export", "state", "--out", "rated.csv"])
        out, err = capsys.readouterr()
        assert (exported, out.count("\n"), err.count("\n")) in ((0, 1, 0), (0, 3, 0), (2, 0, 1))
        try:
            figures = figures_of("state")
            expected = replay_in_memory("state", warm_start=LOG) if status == 0 else figures
            with Abstainers("state") as abstainers:
                for key in (*KEYS, "new"):
                    for n in range(5):
                        abstainers.feedback(abstainers.decide(n / 5, key=key).id, n / 5)
        except (BadInput, OSError):
            assert status
        else:
            assert figures == {key: pytest.approx(expected[key], nan_ok=True) for key in expected}
        for path in tmp_path.iterdir():
            path.unlink()
    assert min(count[status] for status in (0, 2)) > edits / 50
