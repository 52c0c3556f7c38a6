"""The file of a journal: what is beside it, what a key starts with, and what it is when its model changes."""

import json
import re
import shutil
import sqlite3
import sys
from contextlib import closing
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from exaul import Abstainer, Abstainers, BadInput
from exaul.commands.main import main
from exaul.engine.logs.log import Layout, read_log
from exaul.serving.entries import START, JournalEntry
from exaul.serving.replay import SINCE_START, KeyAbstainer, replayed
from exaul.serving.start import COLD
from tests.processes import output_of, python, refusal_of, sql
from tests.serving.http.apps import EASY

LOG = "examples/log.csv"


@cache
def left_by_a_kill(seed, questions):
    """The bytes of a file that is in use, and of the one beside it, which no kill changes."""
    with TemporaryDirectory() as folder, Abstainers(Path(folder) / "state", seed=seed) as abstainers:
        for n in range(questions):
            abstainers.decide(n % 97 / 97, id=f"{seed}-{n}")
        return abstainers.path.read_bytes(), wal_of(abstainers.path).read_bytes()


def killed(path, seed=1, questions=100):
    """A file whose latest entries are beside it."""
    for file, content in zip((path, wal_of(path)), left_by_a_kill(seed, questions), strict=True):
        file.write_bytes(content)
    return path


def verify(path):
    """The status of the command."""
    return main(["journal", "verify", str(path)])


def wal_of(path):
    """The file beside it."""
    return path.with_name(path.name + "-wal")


def check_refused(path, sentence):
    """Nothing is lost: the file and the one beside it stay as they are."""
    before = {file: file.read_bytes() for file in (path, wal_of(path)) if file.exists()}
    with pytest.raises(BadInput, match=sentence):
        Abstainers(path)
    assert {file: file.read_bytes() for file in before} == before
    assert not path.exists() or verify(path) == 2


def test_a_damaged_byte_beside_the_file_is_found_before_anything_is_lost(tmp_path):
    """SQLite alone would drop what follows it. The last frame may be torn, as by a power failure."""
    path = killed(tmp_path / "state")
    wal, rng = wal_of(path).read_bytes(), np.random.default_rng(0)
    size = 24 + int.from_bytes(wal[8:12], "big")
    frames = (len(wal) - 32) // size
    assert frames > 300
    starts = [32 + f * size for f in range(0, frames - 1, frames // 12)]
    for place in (int(rng.integers(32)), 20, *(start + int(rng.integers(size)) for start in starts)):
        edited = bytearray(wal)
        edited[place] ^= 1 << int(rng.integers(8))
        wal_of(path).write_bytes(edited)
        check_refused(path, "state-wal: is damaged; entries that were confirmed would be lost")
    wal_of(path).write_bytes(wal[: -size // 2])
    with Abstainers(path) as abstainers:
        assert abstainers.figures()["questions"] == 99


def test_what_an_earlier_use_has_left_beside_the_file_is_no_damage(tmp_path):
    """SQLite begins to write there anew after a checkpoint, over what is in the file by then."""
    path, later = killed(tmp_path / "state"), tmp_path / "later"
    with Abstainers(path) as abstainers:
        for n in range(5):
            abstainers.decide(0.5, id=f"old {n}")
        abstainers._journal._connection.execute("PRAGMA wal_checkpoint(RESTART)")
        abstainers.decide(0.5, id="new")
        wal = wal_of(path).read_bytes()
        for place, is_damage in ((len(wal) - 100, False), (100, True)):
            edited = bytearray(wal)
            edited[place] ^= 1
            later.write_bytes(path.read_bytes())
            wal_of(later).write_bytes(edited)
            if is_damage:
                check_refused(later, "later-wal: is damaged")
            else:
                with Abstainers(later) as restored:
                    assert restored.entries_of("new")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("another wal", "is of another file"),
        ("an earlier wal", "-wal is of another file, or of an earlier time"),
        ("an empty wal", "-wal was removed or emptied"),
        ("DELETE FROM journal WHERE seq > 50", "the latest entries are not those"),
        ("UPDATE journal SET score = 0.7 WHERE seq = 101", "or one before it was changed"),
        ("UPDATE meta SET value = replace(value, '0.1', '0.9')", "or one before it was changed"),
        ("hot", "program was interrupted"),
        ("missing", "is empty or missing"),
    ],
)
def test_what_is_gone_or_of_another_file_is_noticed(tmp_path, damage, sentence):
    path = killed(tmp_path / "state")
    own = wal_of(path).read_bytes()
    match damage:
        case "another wal":
            wal_of(path).write_bytes(left_by_a_kill(2, 50)[1])
        case "an earlier wal":
            with Abstainers(path) as abstainers:
                for n in range(100):
                    abstainers.decide(0.5, id=f"later {n}")
            wal_of(path).write_bytes(own)
        case "an empty wal":
            wal_of(path).write_bytes(b"")
            # as soon as another one is open, nothing is missing
            Abstainers(killed(tmp_path / "begun", seed=2, questions=0)).close()
        case "missing":
            path.unlink()
        case _:
            Abstainers(path).close()
            if damage == "hot":
                path.with_name("state-journal").write_bytes(b"of another program")
            else:
                sql(path, damage)
    check_refused(path, sentence)


def test_a_copy_without_what_is_beside_it_is_refused_unless_the_loss_is_accepted(tmp_path, capsys):
    path, bare = killed(tmp_path / "state"), tmp_path / "bare"
    shutil.copy(path, bare)
    check_refused(bare, "bare: was copied while it was in use, or bare-wal was removed")
    assert "--accept-loss" in capsys.readouterr().err
    with Abstainers(bare, accept_loss=True) as abstainers:
        abstainers.decide(0.5)
    Abstainers(bare).close()
    with Abstainers(path) as abstainers:
        assert abstainers.figures()["questions"] == 100


def test_a_copy_that_nobody_may_write_is_verified(tmp_path, capsys, monkeypatch):
    path = killed(tmp_path / "state")
    Abstainers(path).close()
    before = path.read_bytes()
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write all files
    assert (verify(path), path.read_bytes(), wal_of(path).exists()) == (0, before, False)
    assert "101 entries of 1 key; 100 decisions\nsame decisions: yes" in capsys.readouterr().out


def decisions(one, scores, **key):
    """What it decides, if all shown answers are right."""
    found = []
    for score in scores:
        decision = one.decide(float(score), **key)
        found.append(decision[1:])
        one.feedback(decision.id, "up")
    return found


def test_a_key_starts_from_its_log_and_with_its_target(tmp_path):
    """As an Abstainer does; the logs are not needed later, and a start is written once for all keys."""
    rng, path = np.random.default_rng(0), tmp_path / "state"
    own = rng.random(500), rng.random(500) < 0.2
    keys = {"": {"alpha": 0.3, "warm_start": own}, "strict": {"alpha": 0.05}, "other": {"warm_start": own}}
    defaults = {"alpha": 0.1, "warm_start": LOG}
    alone = {key: Abstainer(**defaults | keys.get(key, {})) for key in (*keys, "new")}
    said = {f"{'new keys' if key == 'new' else f'key {key!r}'}: {one.started}" for key, one in alone.items()}
    for given in (defaults | {"keys": keys}, {}):
        with Abstainers(path, **given) as abstainers:
            assert set(abstainers.describe_keys(9)) == said
            said = set()
            for key, one in alone.items():
                scores = rng.random(100)
                assert decisions(abstainers, scores, key=key) == decisions(one, scores)
                assert abstainers.figures(key) == pytest.approx(one.figures(), nan_ok=True)
                share = one.figures()["answers"] / one.figures()["questions"]
                said.add(f"key {key!r}: {one.started}; answered since then: {share:.1%} of 100")
    assert one.figures()["aim"] == 0.1
    assert len(sql(path, "SELECT * FROM starts")) == 4


def test_a_journal_is_not_taken_for_a_log(tmp_path):
    path = killed(tmp_path / "old", questions=0)
    with Abstainers(path) as abstainers:
        for source in (f"{path}:billing", str(path)):  # in use, too
            with pytest.raises(BadInput, match="old is a journal; exaul journal export"):
                abstainers.begin("new", warm_start=source)
        abstainers.decide(0.5)
    with pytest.raises(BadInput, match="old is a journal"):
        Abstainers(tmp_path / "state", warm_start=f"{path}:billing")


@pytest.mark.parametrize("settings", [{"alpha": 2}, {"grid": 1}, {"warm_start": "none"}, {}])
def test_a_bad_start_leaves_no_file(tmp_path, settings):
    with pytest.raises(BadInput, match="keys: "):
        Abstainers(tmp_path / "state", keys={"a" if settings else "\0": settings})
    assert list(tmp_path.iterdir()) == []


def test_a_key_begins_anew_and_its_figures_are_those_of_both_spans(tmp_path, capsys, monkeypatch):
    """Its bound is the sum of both; open answers are late; the command does it, too.

    To restore it repeats each span from its last snapshot on.
    """
    monkeypatch.setattr("exaul.serving.abstainers.SNAPSHOT_EVERY", 50)
    repeat, repeated = KeyAbstainer.repeat, list[JournalEntry]()
    monkeypatch.setattr(KeyAbstainer, "repeat", lambda self, entry: repeated.append(entry) or repeat(self, entry))
    path, rng, log = tmp_path / "state", np.random.default_rng(0), read_log(LOG, Layout())
    first, second = Abstainer(alpha=0.1, audit=0.5, seed=1, key=1), None
    with Abstainers(path, alpha=0.1, audit=0.5, seed=1) as abstainers:
        open_id = None
        for score in rng.random(400):
            decision, alone = abstainers.decide(float(score)), first.decide(float(score))
            assert decision[1:] == alone[1:]
            if decision.audit and open_id is not None:
                assert abstainers.feedback(decision.id, score < 0.1) == first.feedback(alone.id, score < 0.1)
            elif decision.audit:
                open_id = decision.id
    argv = ["journal", "start", str(path), "--key", "", "--warm-start", LOG]
    refusal = refusal_of(argv, capsys)
    assert "--abandon-audits: missing; audited answers of key '' without a verdict: 1;" in refusal
    assert refusal.endswith(f"; judge them first: exaul audits {path} lists them, and says how\n")
    printed = output_of([*argv, "--abandon-audits"], capsys)
    with Abstainers(path) as abstainers:
        assert f"starts by answering {abstainers.figures()['expected_share']:.1%}" in printed
    for outcome in ("late", "repeated"):  # also after a restart
        with Abstainers(path) as abstainers:
            seq = abstainers.latest_entries(1, START, key="")[0].seq
            repeated.clear()
            abstainers.figures("")
            assert 2 < len(repeated) < 2 + 2 * 50
            second = second or Abstainer(alpha=0.1, audit=0.5, seed=1, key=seq, warm_start=(log.scores, log.errors))
            for score in rng.random(100):
                decision, alone = abstainers.decide(float(score)), second.decide(float(score))
                assert decision[1:] == alone[1:]
                if decision.audit:
                    assert abstainers.feedback(decision.id, 0.0) == second.feedback(alone.id, 0.0) == "counted"
            assert abstainers.feedback(open_id, "up") == outcome
            spans, both = (first.figures(), second.figures()), abstainers.figures()
            for name in ("questions", "answers", "observed", "wrong", "feedback_risk", "feedback_risk_bound"):
                assert both[name] == pytest.approx(sum(span[name] for span in spans))
            assert both["open"] == spans[1]["open"]
            assert all(both[f"{name}_since_start"] == spans[1][name] for name in SINCE_START)
            assert both["fdr_limit"] == abstainers.fdr_limit()
            assert both["fdr_observed"] == pytest.approx(both["wrong"] / both["observed"])
    assert verify(path) == 0
    assert main(["journal", "start", str(path), "--key", "", "--alpha", "2"]) == 2
    capsys.readouterr()
    for flags in (["--alpha", "0.2"], ["--key", "b"], ["--key", "", "--score", "s"], ["--key", ""]):
        assert main(["journal", "start", str(path), *flags]) == 2  # a misspelt key would get a bound of its own
    missing, unknown, unused, forgotten = capsys.readouterr().err.splitlines()
    assert missing == "exaul: --key: missing; it must be one of the keys ['']"
    assert unknown == "exaul: --key: 'b' found; it must be one of the keys ['']"
    assert unused == "exaul: --score: given without warm_start, whose columns they name"
    assert forgotten.startswith("exaul: --warm-start: missing; LOG or key:KEY to start from, or none to forget")
    assert "begins anew: without a log at alpha = 0.1\n" in output_of(
        ["journal", "start", str(path), "--key", "", "--warm-start", "none"], capsys
    )


def test_what_sqlite_would_change_is_stored_as_it_returns(tmp_path):
    """It has no negative zero, and returns plain texts; a subclass of str has another repr.

    An entry with one would not be that which its digest was made of.
    """
    path, name = tmp_path / "state", np.str_("\U0001fae8")
    with Abstainers(path, warm_start=([0.0] * 50, [0] * 50)) as abstainers:
        for score in (-0.0, 0.0, 1.0):
            assert abstainers.feedback(abstainers.decide(score).id, -0.0) in ("counted", "withheld")
        abstainers.show(-0.0)
        for id in (name, np.str_("b")):
            abstainers.decide(0.5, key=np.str_("k"), id=id, ref=np.str_(f"ref {id}"))
            assert abstainers.feedback(id, "up") == "counted"
        abstainers.show(0.5, key=name, ref=np.str_("shown"))
        for alpha in (0.3, 0.2, None):
            abstainers.begin(name, alpha)
        assert abstainers.figures(name)["aim"] == 0.2
    assert verify(path) == 0


def test_an_answer_has_a_second_name_for_feedback(tmp_path):
    with Abstainers(tmp_path / "state", warm_start=EASY) as abstainers:
        id = abstainers.decide(0.5, ref="theirs").id
        for name, used in product(("ref", "id"), ("theirs", "")):
            with pytest.raises(BadInput, match=f"{name}: '{used}' found; it must not be empty"):
                abstainers.decide(0.5, **{name: used})
        assert [abstainers.feedback(name, "up") for name in ("theirs", id)] == ["counted", "repeated"]
        assert abstainers.withdraw("theirs") == abstainers.withdraw(id) == abstainers.feedback(id, 1) == "withdrawn"


LEFT = """
import gc, os, sys
from exaul import Abstainers
Abstainers(sys.argv[1]).decide(0.5)
gc.collect()
assert not os.path.exists(f"{sys.argv[1]}-wal")
abstainers = Abstainers(sys.argv[1])
abstainers.decide(0.5)
exec(sys.argv[2])
"""


FORK = """
os.fork() or sys.exit()
os.wait()
abstainers._journal._connection.execute("SELECT * FROM meta WHERE value = ''").fetchone() or os._exit(1)
"""


@pytest.mark.parametrize("end", ["raise KeyboardInterrupt", FORK])
def test_a_file_that_nobody_closes_is_opened_again(tmp_path, end):
    """A program may end without ``close``, or by Ctrl-C; SQLite then closes the file. A fork that ends does not."""
    path = tmp_path / "state"
    python(LEFT, path, end, status=None)
    assert not wal_of(path).exists()
    with Abstainers(path) as abstainers:
        assert abstainers.figures()["questions"] == 2


@pytest.mark.parametrize(("audit", "first", "slope", "share"), [(None, 0.05, 0.1, 1.0), (0.4, 1.0, 1.0, 0.2)])
def test_a_key_starts_gating_from_what_was_shown_in_shadow_mode(tmp_path, audit, first, slope, share):
    """An easy model, of which all answers may be shown, and a hard one, of which a fifth.

    An answer of score s is wrong with probability first - slope s. Feedback in shadow mode is in no figure of the
    gate.
    """
    path, rng = tmp_path / "state", np.random.default_rng(3)
    scores = rng.random(1500)
    errors = rng.random(len(scores)) < first - slope * scores

    def rated(decision):
        return rng.random() < 0.4 if audit is None else decision.audit

    with Abstainers(path, alpha=0.1, audit=audit, seed=1) as abstainers:
        decisions = [abstainers.show(float(score)) for score in scores]
        assert all(decision.answer for decision in decisions)
        assert abstainers.figures()["shadow_answers"] == len(scores)  # later figures add what is newer
        for decision, error in zip(decisions, errors, strict=True):
            if rated(decision):
                assert abstainers.feedback(decision.id, bool(error)) == "counted"
                assert abstainers.feedback(decision.id, bool(error)) == "repeated"
        figures = abstainers.figures()
        assert (figures["questions"], figures["answers"], figures["shadow_answers"]) == (0, 0, len(scores))
        assert np.isnan([figures["threshold"], figures["silent"]]).all()  # the learner that will begin is not known
        assert figures["shadow_wrong"] / figures["shadow_observed"] == pytest.approx(errors.mean(), abs=0.06)
        assert audit is None or errors.mean() < figures["shadow_fdr_limit"] < errors.mean() + 0.1
        assert abstainers.withdraw(decisions[0].id) == "shadow"
    answers = wrong = 0
    for _ in range(2):  # also after a restart
        with Abstainers(path) as abstainers:
            for score in rng.random(250):
                decision, error = abstainers.decide(float(score)), rng.random() < first - slope * score
                answers, wrong = answers + decision.answer, wrong + error * decision.answer
                if decision.answer and rated(decision):
                    assert abstainers.feedback(decision.id, bool(error)) == "counted"
                elif decision.answer and audit is not None:
                    assert abstainers.feedback(decision.id, bool(error)) == "unaudited"
            figures = abstainers.figures()
    with Abstainers(path) as abstainers:  # a verdict on a withheld answer is of later use alone
        assert abstainers.feedback(abstainers.decide(0.0).id, "down") in ("withheld", "counted", "unaudited")
        for name in ("shadow_observed", "shadow_wrong"):
            assert abstainers.figures()[name] == figures[name]
    assert sum(json.loads(sql(path, "SELECT start FROM starts")[0][0])["table"]) > 1000  # ranks are among all
    assert answers / 500 == pytest.approx(share, abs=0.1)
    assert wrong / answers < 0.14
    assert (figures["questions"], figures["answers"]) == (500, answers)
    assert verify(path) == 0


def test_a_few_rated_answers_of_shadow_mode_do_not_replace_a_log(tmp_path):
    for count, begins in ((29, " 99 rows"), (30, "answers of key '': 30 rows")):
        with Abstainers(tmp_path / f"{count}", alpha=0.1, warm_start=([0.9] * 99, [0] * 99)) as abstainers:
            for _ in range(count):
                abstainers.feedback(abstainers.show(0.5).id, "up")
            assert begins in abstainers.describe_keys(1)[0]


def test_a_key_that_starts_from_its_answers_reaches_no_lower_than_they(tmp_path):
    """All rated ones are right, and nothing is known of the scores below, which were withheld."""
    scores = np.linspace(0, 1, 1000)
    with Abstainers(tmp_path / "state", alpha=0.1, warm_start=(scores, 1.0 * (scores < 0.6))) as abstainers:
        decisions = [abstainers.decide(score) for score in np.random.default_rng(0).random(100)]
        for decision in decisions:
            if decision.answer:
                abstainers.feedback(decision.id, "up")
        share = np.mean([decision.answer for decision in decisions])
        assert 0.3 < share < 0.6
        begun = re.search(r"starts by answering ([\d.]+)% at", abstainers.begin("", warm_start="key:"))
        assert float(begun[1]) / 100 == pytest.approx(share, abs=0.02)


def test_a_key_starts_from_the_answers_of_another(tmp_path):
    """Also from feedback on withheld ones, which moves nothing before; a cold key is said to be one."""
    path, scores = tmp_path / "state", np.linspace(0.01, 0.99, 99)
    keys = {"new": {"warm_start": "key:old"}, "cold": {"warm_start": "key:none"}}
    with Abstainers(path, alpha=0.1, warm_start=([0.5] * 99, [1] * 99), keys=keys) as abstainers:
        for score in scores:
            decision = abstainers.decide(float(score), "old")
            before = abstainers.figures("old")
            outcomes = [abstainers.feedback(decision.id, float(score < 0.3)) for _ in range(2)]
            assert outcomes == (["counted", "repeated"] if decision.answer else ["withheld"] * 2)
            assert decision.answer or abstainers.figures("old") == before
        assert 30 < abstainers.figures("old")["answers"] < 60  # it starts silent
        cold = "key 'cold': without a log: key:none has too few answers with feedback"
        assert cold in abstainers.describe_keys(9)
        assert [abstainers.decide(score, "new").answer for score in (0.8, 0.05)] == [True, False]
        assert abstainers.decide(0.8, "cold").probability == Abstainer(alpha=0.1).decide(0.8).probability
        assert "answers of key 'old': " in abstainers.begin("cold", warm_start="key:old")
        with pytest.raises(BadInput, match="warm_start: 'key:none' has 0 of the 30 answers with feedback that are"):
            abstainers.begin("new", warm_start="key:none")
        assert "shadow_answers" not in abstainers.figures("old")
        assert abstainers.fdr_limit() != abstainers.fdr_limit()  # NaN: nothing was audited
    assert verify(path) == 0
    assert main(["journal", "export", str(path), "--out", str(tmp_path / "log.csv")]) == 0
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 100  # a header and the rated answers


def test_with_audits_no_other_rating_is_a_start(tmp_path):
    with Abstainers(tmp_path / "state", audit=1e-9) as abstainers:
        for _ in range(99):
            assert abstainers.feedback(abstainers.show(0.5).id, "up") == "unaudited"
        assert abstainers.describe_keys(1) == [f"key '': {COLD}"]
        with pytest.raises(BadInput):
            abstainers.figures("unknown")
        assert "unknown" not in abstainers._journal._sums  # clients may ask for any number of them


def test_audits_wait_until_they_have_a_result(tmp_path):
    with Abstainers(tmp_path / "state", audit=1.0, warm_start=EASY) as abstainers:
        shadow, later = (abstainers.show(0.7, key=key).id for key in ("new", "a"))
        ids = [abstainers.decide(0.5, key=key).id for key in "abab"]
        assert [entry.id for entry in abstainers.open_audits(3)[1]] == [shadow, later, ids[0]]
        for id in (shadow, ids[1]):
            abstainers.feedback(id, "down")
        abstainers.withdraw(ids[2])
        assert [entry.id for entry in abstainers.open_audits(10)[1]] == [later, ids[0], ids[3]]
        abstainers.begin("a", abandon_audits=True)  # then a verdict is late, but not on what shadow mode showed
        assert [entry.id for entry in abstainers.open_audits(10)[1]] == [later, ids[3]]
        assert abstainers.all_keys() == ["new", "a", "b"]


def test_ctrl_c_at_any_moment_leaves_the_journal_and_the_memory_alike(tmp_path, monkeypatch):
    """Also if the program goes on while it holds the traceback, and frees it in the middle of another call."""
    monkeypatch.setattr("exaul.serving.abstainers.SNAPSHOT_EVERY", 3)
    path, kept, left, interrupts = tmp_path / "state", [], [0], 0

    def interrupt(frame, event, argument):
        if not re.search(r"exaul/serving|contextlib", frame.f_code.co_filename):
            return None
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return interrupt

    with Abstainers(path, warm_start=EASY, seed=1) as abstainers:
        for moment in range(1, 700, 3):
            left[0], id = moment, f"{moment}"
            try:
                sys.settrace(interrupt)
                abstainers.decide(0.5, key=f"k{moment % 5}", id=id)
                abstainers.feedback(id, "up")
            except KeyboardInterrupt as error:
                kept.append(error)
                interrupts += 1
            finally:
                sys.settrace(None)
            if abstainers._lock._is_owned():  # the interrupt was at the very lock, as no signal can be
                abstainers._lock.release()
            found = abstainers.entries_of(id)
            assert abstainers.feedback(id, "up") in (("counted", "repeated") if found else ("unknown",))
            if moment % 7 == 0:
                kept.clear()
        figures = {key: abstainers.figures(key) for key in abstainers.all_keys()}
    assert 150 < interrupts < 233  # also the last moments of a call
    with Abstainers(path) as abstainers:
        for key in abstainers.all_keys():
            assert abstainers.figures(key) == pytest.approx(figures[key], nan_ok=True)
    assert verify(path) == 0


SWAPPED_INDEXES = """PRAGMA writable_schema = ON; UPDATE sqlite_master SET rootpage =
    (SELECT sum(rootpage) FROM sqlite_master WHERE name IN ('by_id', 'by_audit')) - rootpage
    WHERE name IN ('by_id', 'by_audit')"""
READ = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM journal').fetchall()"


def test_a_reader_in_the_process_and_a_program_beside_it_lose_nothing(tmp_path):
    """A reader that closes a handle of the file would release SQLite's locks of its process."""
    path = tmp_path / "state"
    with Abstainers(path, seed=1) as abstainers:
        for n in range(5):
            abstainers.decide(0.5, id=f"{n}")
            assert all(same for _, same in replayed(path))
            python(READ, path)
    with Abstainers(path) as abstainers:
        assert abstainers.figures()["questions"] == 5


def test_an_index_of_other_entries_is_found(tmp_path):
    path = tmp_path / "state"
    with Abstainers(path) as abstainers:
        abstainers.decide(0.5)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SWAPPED_INDEXES)
    with pytest.raises(BadInput, match=r"is damaged .*by_"):
        list(replayed(path))


def test_a_start_that_an_index_has_lost_is_an_error_of_the_file(tmp_path, monkeypatch):
    with Abstainers(tmp_path / "state") as abstainers:
        monkeypatch.setattr("exaul.serving.journal.Journal.starts", lambda journal, key: [])
        with pytest.raises(OSError, match="the start of key 'a' is not found; an index is damaged"):
            abstainers.decide(0.5, "a")
        monkeypatch.undo()
        assert abstainers.decide(0.5, "a").id
