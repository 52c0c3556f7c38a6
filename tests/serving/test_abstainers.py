"""Many keys in one file: however the process ends, no decision is lost and no feedback is learned twice."""

import copy
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from exaul import Abstainer, Abstainers, BadInput
from exaul.commands.main import main
from exaul.kernels.fdr_limit import fdr_limit
from exaul.serving import file
from exaul.serving.entries import DECIDE, FEEDBACK, SNAPSHOT, WITHDRAW
from exaul.serving.journal import Journal, read_journal
from exaul.serving.replay import replayed
from exaul.serving.wal import UnreadableJournal
from tests.processes import python, sql

SMALL = {"seed": 5}
pytestmark = pytest.mark.usefixtures("constant_learners", "in_folder")


def used(path):
    """A file of three keys."""
    rng = np.random.default_rng(0)
    with Abstainers(path, **SMALL) as abstainers:
        for n in range(300):
            decision = abstainers.decide(score := float(rng.random()), key=f"k{n % 3}")
            if n % 4:
                abstainers.feedback(decision.id, float(rng.random() > score))


def replay_in_memory(path, **start):
    """The figures of each key from the entries alone, by Abstainers in memory, with the recorded outcomes."""
    alone = {}
    with read_journal(path) as journal:
        for entry in journal.entries():
            if entry.key not in alone:
                alone[entry.key] = Abstainer(**asdict(journal.config) | {"key": entry.seq}, **start)
                alone[entry.key].REMEMBERED = 0  # as of a key
            if entry.kind == DECIDE:
                decision = alone[entry.key].decide(entry.score, entry.id)
                assert decision[1:] == (entry.answered, entry.probability, entry.audit)
            elif entry.kind == FEEDBACK:
                assert alone[entry.key].feedback(entry.id, entry.error) == "counted"
            elif entry.kind == WITHDRAW:
                alone[entry.key].withdraw(entry.id)
        return {key: alone[key].figures() for key in journal.all_keys()}


def test_one_limit_for_all_keys_adds_their_counts():
    """Also after restarts; the limits of the keys are larger. A tenth of the answers is withdrawn."""
    audited, rng = 0, np.random.default_rng(0)
    for start in range(4):
        with Abstainers("state", learner="answers", audit=0.3, **SMALL) as abstainers:
            for n in range(700):
                decision, error = abstainers.decide(float(rng.random()), key=f"k{n % 3}"), float(rng.random() < 0.1)
                audited += decision.audit
                if decision.audit and n % 7:  # some audits have no result
                    abstainers.feedback(decision.id, error)
                if rng.random() < 0.1:
                    abstainers.withdraw(decision.id)
            each = [abstainers.figures(key) for key in abstainers.all_keys()]
            limit = abstainers.fdr_limit()
        wrong, observed, answers, withdrawn = (
            sum(figures[name] for figures in each) for name in ("wrong", "observed", "answers", "withdrawn")
        )
        assert withdrawn > 40 * (start + 1)
        found, remaining = wrong + audited - observed, answers - withdrawn
        assert limit == fdr_limit(found, answers, remaining, 0.3, (0.0, 0.0), 0.05)
        assert all(limit < figures["fdr_limit"] < 1 for figures in each)
    with Abstainers("state") as abstainers:
        assert abstainers.fdr_limit() == limit == abstainers.fdr_limit()
        abstainers.withdraw(abstainers.decide(0.9).id)
        assert abstainers.fdr_limit() >= limit
    assert main(["journal", "verify", "state"]) == 0


def test_a_file_is_refused_with_one_sentence():
    sql("other", "CREATE TABLE t (x)")
    before = os.listdir(), Path("other").read_bytes()
    with pytest.raises(BadInput, match="not a journal; it must be a file of Abstainers"):
        Abstainers("other")
    assert (os.listdir(), Path("other").read_bytes()) == before
    with pytest.raises(BadInput, match="key"):
        Abstainers("new", key=3)


@pytest.mark.parametrize("every", [2000, 1])
def test_on_a_full_disk_nothing_is_given_out_and_no_snapshot_is_needed(monkeypatch, every):
    """A decision needs few bytes and a snapshot many: with one after each entry, the snapshots fail first."""
    monkeypatch.setattr("exaul.serving.abstainers.SNAPSHOT_EVERY", every)
    used("state")
    with Abstainers("state") as abstainers:
        journal = abstainers._journal
        pages = journal._connection.execute("PRAGMA page_count").fetchone()[0]
        journal._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        figures = []
        with pytest.raises(OSError, match="full"):  # noqa: PT012
            while len(figures) < 10_000:
                figures.append([abstainers.figures(f"k{key}") for key in range(3)])
                abstainers.decide(0.9, key=f"k{len(figures) % 3}", id="x" * 100 + str(len(figures)))
        assert [abstainers.figures(f"k{key}") for key in range(3)] == figures[-1]
        assert len(figures) > 10
    with Abstainers("state") as abstainers:
        assert [abstainers.figures(f"k{key}") for key in range(3)] == figures[-1]
        abstainers.decide(0.9, key="k0")
        assert abstainers.figures("k0")["questions"] == figures[-1][0]["questions"] + 1
    assert main(["journal", "verify", "state"]) == 0


def test_threads_lose_nothing():
    told = []
    with Abstainers("state", **SMALL) as abstainers:

        def work(seed):
            rng = np.random.default_rng(seed)
            for _ in range(200):
                decision = abstainers.decide(float(rng.random()), key=f"k{seed % 3}")
                told.append((decision.id, abstainers.feedback(decision.id, float(rng.random()))))

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(work, range(8)))
        figures = [abstainers.figures(key) for key in abstainers.all_keys()]
    assert sum(one["questions"] for one in figures) == len({id for id, _ in told}) == 1600
    assert sum(one["observed"] for one in figures) == sum(what == "counted" for _, what in told)


LOAD = """
import random, sys
from exaul import Abstainers
import exaul.serving.abstainers as module
module.SNAPSHOT_EVERY, module.MOST_LOADED = 13, 2  # of four keys
abstainers = Abstainers(sys.argv[1], seed=1)
chance = random.Random(int(sys.argv[2]))
print("ready", flush=True)
while True:
    decision = abstainers.decide(chance.random(), key=str(chance.randrange(4)))
    print("given", decision.id, int(decision.answer), flush=True)
    if chance.random() < 0.7:
        print("told", decision.id, abstainers.feedback(decision.id, chance.random()), flush=True)
"""


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_under_load_no_id_is_lost_and_none_learned_twice(kills):
    """Half of the keys are in memory; the others were put away, and are loaded again."""
    said = []
    for seed in range(1, kills + 1):
        command = [sys.executable, "-c", LOAD, "state", str(seed)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as running:
            assert running.stdout.readline() == "ready\n"
            said += [running.stdout.readline().split() for _ in range(37 * seed)]
            running.send_signal(signal.SIGKILL)
            said += [words for line in running.stdout if len(words := line.split()) == 3]
    with read_journal("state") as journal:
        entries = list(journal.entries())
    given = {entry.id: entry for entry in entries if entry.kind == DECIDE}
    learned = [entry.id for entry in entries if entry.kind == FEEDBACK]
    assert len(learned) == len(set(learned))
    for kind, id, what in said:
        if kind == "given" and len(id) == 32:
            assert given[id].answered == int(what)
        elif kind == "told" and what == "counted":
            assert id in learned
    expected = replay_in_memory("state")
    with Abstainers("state") as abstainers:
        assert {key: abstainers.figures(key) for key in abstainers.all_keys()} == expected


FORKED = """
import os, sys, time
from exaul import Abstainers
abstainers = Abstainers(sys.argv[1], seed=1)
id = abstainers.decide(0.9).id
child = os.fork()
if child:
    abstainers.decide(0.9)
    os.write(1, b"%d\\n" % child)
    time.sleep(60)
for call in (lambda: abstainers.decide(0.9), lambda: abstainers.feedback(id, 1), abstainers.figures):
    try:
        call()
    except OSError as error:
        os.write(1, error.strerror.encode() + b"\\n")
abstainers.close()
time.sleep(60)
"""


def test_a_forked_process_is_refused_and_does_not_keep_the_file():
    with subprocess.Popen([sys.executable, "-c", FORKED, "state"], stdout=subprocess.PIPE, text=True) as running:
        lines = sorted(running.stdout.readline() for _ in range(4))
        with pytest.raises(BadInput, match="is in use by another process; stop that first"):
            Abstainers("state")
        running.kill()
        running.wait()
        assert lines[1:] == ["is closed, or was opened before a fork; open it in this process\n"] * 3
        with Abstainers("state") as abstainers:  # the child still runs
            assert abstainers.figures()["questions"] == 2
        os.kill(int(lines[0]), signal.SIGKILL)


@pytest.mark.parametrize("link", [os.symlink, os.link, None])
def test_one_process_uses_a_file_whatever_its_name(tmp_path, link):
    """In this process and in another; what lies beside the file, and readers, change nothing."""
    path, other = tmp_path / "state", tmp_path / "elsewhere"
    code = f"from exaul import Abstainers; Abstainers({str(other)!r})"
    with Abstainers(path, **SMALL) as abstainers:
        abstainers.decide(0.5)
        link(path, other) if link else path.rename(other)
        (tmp_path / "state.lock").unlink(missing_ok=True)
        if link is os.symlink:
            sql(path, "SELECT count(*) FROM journal")
        with pytest.raises(BadInput, match="is in use by this process"):
            Abstainers(other)
        assert "is in use by another process" in python(code, status=1).stderr.splitlines()[-1]
    if link is os.link:
        with pytest.raises(BadInput, match="has several names"):
            Abstainers(other)


@pytest.mark.parametrize("path", [":memory:", "file:x?mode=memory", "", "/dev/null", None, b"state"])
def test_a_path_is_that_of_a_file(path):
    with pytest.raises(BadInput, match=r"it must be the path of a file|is not a file; it must be one"):
        Abstainers(path)
    assert os.listdir() == []


def test_a_secret_seed_stays_secret():
    for _ in range(2):
        with Abstainers("state", seed=None) as abstainers:
            seed = abstainers._config.seed
            abstainers.decide(0.5)
    with pytest.raises(BadInput, match=r"seed: 5 found; .*state was begun with another") as caught:
        Abstainers("state", seed=5)
    assert str(seed) not in str(caught.value)


def test_a_file_without_entries_takes_other_settings(monkeypatch, caplog):
    Abstainers("state", alpha=0.1, audit=0.5).close()

    def copy(connection, is_in_use, set_in_use=file._set_in_use):
        for name in ("", "-wal") if is_in_use else ():  # what a kill between commit and checkpoint leaves
            shutil.copy(f"state{name}", f"killed{name}")
        set_in_use(connection, is_in_use)

    with monkeypatch.context() as patch:
        patch.setattr(file, "_set_in_use", copy)
        Abstainers("state", alpha=0.2, seed=None).close()
    assert caplog.messages == ["state: settings changed, as nothing was decided yet: alpha"]
    for path in ("state", "killed"):
        with Abstainers(path) as abstainers:
            assert (abstainers.configuration["alpha"], abstainers.configuration["audit"]) == (0.2, 0.5)
            abstainers.decide(0.5)
        assert all(is_same for _, is_same in replayed(path))
        with pytest.raises(BadInput, match=r"alpha: 0\.1 found"):
            Abstainers(path, alpha=0.1)
    assert len(caplog.messages) == 1


def test_an_alpha_that_a_key_has_already_is_left_out():
    with Abstainers("state", alpha=0.1) as abstainers:
        for key in ("", "b"):
            abstainers.decide(0.5, key)
        abstainers.begin("b", 0.2)
        abstainers.begin("b", 0.05)
    already = "which stays; key 'b' already has 0.05: leave alpha out, or give 0.1"
    for alpha, way in ((0.05, already), (0.2, "for one key, .* start state --key '' --alpha 0.2 .* LOG")):
        with pytest.raises(BadInput, match=f"alpha: {alpha} found; state was begun with 0.1, .*{way}$"):
            Abstainers("state", alpha=alpha)
    Abstainers("state", alpha=0.1).close()


def test_a_new_file_is_for_its_owner():
    with Abstainers("state", **SMALL) as abstainers:
        abstainers.decide(0.5)
        assert abstainers._journal._connection.execute("PRAGMA synchronous").fetchone() == (1,)  # NORMAL
        assert {file.name: file.stat().st_mode & 0o777 for file in Path().iterdir()} == dict.fromkeys(
            ("state", "state-wal", "state-shm"), 0o600
        )


def test_a_file_is_created_whole_or_not_at_all(monkeypatch):
    """Whichever statement is the last: the next opening creates it."""
    connect, last, finished = sqlite3.connect, 0, False
    while not finished:
        last += 1
        path, left = str(last), [last]

        class Dying(sqlite3.Connection):
            def execute(self, sql, *more, left=left):
                left[0] -= 1
                if not left[0]:
                    raise KeyboardInterrupt
                return super().execute(sql, *more)

        with monkeypatch.context() as dying, suppress(KeyboardInterrupt):
            dying.setattr(sqlite3, "connect", lambda *given, **more: connect(*given, **more, factory=Dying))
            Abstainers(path, **SMALL).close()
        finished = left[0] > 0
        with Abstainers(path, **SMALL) as abstainers:
            abstainers.decide(0.5)
    assert last > 15  # one for each statement


def test_a_closed_file_is_not_used():
    abstainers = Abstainers("state", **SMALL)
    id, connection = abstainers.decide(0.9).id, abstainers._journal._connection
    connection.execute("PRAGMA query_only = TRUE")  # so it cannot be marked as closed
    abstainers.close()
    abstainers.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
    for call in (lambda: abstainers.decide(0.9), lambda: abstainers.feedback(id, 1), abstainers.all_keys):
        with pytest.raises(OSError, match="is closed"):
            call()
    with pytest.raises(TypeError, match="Abstainers cannot be copied or pickled"):
        copy.copy(abstainers)


def test_a_call_does_not_interrupt_another(monkeypatch):
    """A signal handler can; the decision within would be entered before that around it."""
    append = Journal.append
    used("state")
    with Abstainers("state") as abstainers:

        def interrupted(self, **columns):
            abstainers.close()
            for call in (lambda: abstainers.decide(0.5, key="k0"), lambda: abstainers.figures("k0")):
                with pytest.raises(OSError, match="in use by the call that this one interrupts"):
                    call()
            append(self, **columns)

        with monkeypatch.context() as changed:
            changed.setattr(Journal, "append", interrupted)
            abstainers.decide(0.5, key="k0")
        assert abstainers.figures("k0")["questions"] == 101
    assert main(["journal", "verify", "state"]) == 0


@pytest.mark.parametrize("error", [UnreadableJournal("number"), FileNotFoundError("moved")])
def test_a_snapshot_that_cannot_be_written_leaves_no_lock(monkeypatch, error):
    append = Journal.append

    def full(self, **columns):
        if columns["kind"] == SNAPSHOT:
            raise error
        append(self, **columns)

    with monkeypatch.context() as broken:
        broken.setattr("exaul.serving.abstainers.SNAPSHOT_EVERY", 1)
        broken.setattr(Journal, "append", full)
        used("state")
    with Abstainers("state") as abstainers:
        assert abstainers.figures("k0")["questions"] == 100


def test_open_answers_are_those_of_the_journal_after_any_restart(monkeypatch):
    """Withdrawn, expired, unaudited and answered ones are not; a key in memory all the time decides the same."""
    monkeypatch.setattr("exaul.serving.abstainers.SNAPSHOT_EVERY", 3)
    for learner in ("exaul", "aci-rank"):
        alone = Abstainer(learner=learner, horizon=400, seed=5, expires=25, audit=0.7, key=1)
        rng = np.random.default_rng(0)
        for n in range(400):
            if n % 20 == 0:
                abstainers = Abstainers(learner, learner=learner, horizon=400, expires=25, audit=0.7, **SMALL)
                abstainers.figures() if n else None
                assert n == 0 or abstainers._loaded[""].unsaved_count < 3  # the snapshot was used
            score, which, chance = float(rng.random()), str(int(rng.integers(n + 1))), rng.random()
            assert abstainers.decide(score, id=str(n)) == alone.decide(score, id=str(n))
            if chance < 0.3:
                assert (abstainers.feedback(which, score) == "counted") == (
                    alone.feedback(which, score) == "counted"
                )
            elif chance < 0.4 and which in alone._open:
                assert abstainers.withdraw(which) == alone.withdraw(which)
            if n % 20 == 19:
                restored = abstainers._loaded[""]
                for one in (restored, alone):
                    one._expire()  # feedback that is too late calls it for an Abstainer alone
                assert restored._open == alone._open
                abstainers.close()
        assert main(["journal", "verify", learner]) == 0


def test_neither_a_new_key_nor_a_snapshot_takes_longer_in_a_large_file():
    """Count SQLite's instructions and the bytes of a snapshot, which depend on no machine."""
    with Abstainers("state", learner="answers", **SMALL) as abstainers:
        file, steps = abstainers._journal._connection, [0]
        file.set_progress_handler(lambda: steps.append(steps.pop() + 1), 1)
        instructions = []
        for key in range(1000):
            before = steps[0]
            abstainers.decide(0.5, key=str(key))
            instructions.append(steps[0] - before)
        file.set_progress_handler(None, 1)
        for _ in range(5000):
            abstainers.decide(0.5)
        sizes = [size for (size,) in file.execute("SELECT length(data) FROM journal WHERE kind = 'snapshot'")]
    assert max(instructions[500:]) <= max(instructions[10:20])
    assert len(sizes) == 2
    assert sizes[1] < 1.1 * sizes[0]
