"""The service without HTTP: what comes back after a restart, and what is kept in memory."""

import contextlib
import time

import pytest

from exaul import BadInput
from exaul.serving import service as module
from exaul.serving.http import application
from exaul.serving.service import Service, for_json
from exaul.serving.texts import DAY, AnswerText, AnswerTexts
from tests.serving.http.apps import CONFIGURATION, EASY, until


@pytest.fixture
def service(tmp_path):
    made = Service(tmp_path / "state", **CONFIGURATION)
    yield made
    made.close()


def test_the_overview_is_the_same_after_a_restart(service):
    for n in range(300):
        decision = service.decide(n * 37 % 100 / 99, "abc"[n % 3])
        if decision.answer and n % 5 == 0:
            assert service.feedback(decision.id, n % 2) == "counted"
        elif decision.answer and n % 7 == 0:
            assert service.withdraw(decision.id) == "withdrawn"
    before = service.overview()
    service.close()
    with contextlib.closing(Service(service.path)) as again:
        after = again.overview()
        for _ in range(module.LATEST + 1):
            again.decide(0.5, text="kept in memory")
        assert len(again._recent_texts) == module.LATEST
    assert (before.pop("scored"), after.pop("scored")) == (module.LATEST, 0)  # it is of the process
    times = [row.pop("at") for row in before["latest"]]
    assert [row.pop("at") for row in after["latest"]] == pytest.approx(times, abs=1)
    assert for_json(after) == for_json(before)
    assert len(after["latest"]) == module.LATEST
    assert {row["withdrawn"] for row in after["latest"]} == {True, False}
    assert {row["error"] for row in after["latest"]} == {None, 0.0, 1.0}


def test_a_text_that_a_gateway_had_in_memory_is_lost_by_a_restart_and_that_of_an_audit_is_not(tmp_path):
    """Without a gateway, no text was there to be lost; and who may not read texts misses none."""

    def shown(texts=True):
        return {x["id"]: (x["text"], x["text_lost"]) for x in service.overview(texts)["latest"]}

    path = tmp_path / "state"
    for is_gateway in (False, True):
        with contextlib.closing(Service(path, alpha=0.1, texts="all")) as service:
            service.decide(0.9, id=f"kept {is_gateway}", question="?", text="long " * 1000)
        with contextlib.closing(Service(path, texts="none")) as service:
            service.decide(0.9, id=f"lost {is_gateway}", question="?", text="a")
            assert shown()[f"lost {is_gateway}"] == ("a", False)
            service.note("score", "logprob")
        with contextlib.closing(Service(path)) as service:
            service.decide(0.9, id=f"no text {is_gateway}")
            assert service.overview()["latest"][0]["text_lost"] is False
            assert shown()[f"lost {is_gateway}"] == (None, True)
            assert shown()[f"kept {is_gateway}"] == ("long " * 800, False)
            assert set(shown(texts=False).values()) == {(None, False)}


def test_reading_does_not_change_which_keys_were_used_last(service, monkeypatch):
    def used(service=service):
        return [row["key"] for row in service.overview()["keys"]]

    monkeypatch.setattr(module, "LATEST_KEYS", 3)
    ids = [service.decide(1.0, key).id for key in "abcde"]
    for key in "abcde":
        service.figures(key)
    assert used() == ["e", "d", "c"]
    assert service.feedback(ids[0], 1) == "counted"
    service.feedback(ids[1], 1)
    service.feedback("unknown", 1)
    assert used() == ["b", "a", "e"]
    service.close()
    with contextlib.closing(Service(service.path)) as again:
        assert used(again) == ["b", "a", "e"]


@pytest.mark.parametrize(
    ("texts", "audit", "kept"),
    [(None, 1.0, 2), ("none", 1.0, 0), (None, None, 0), ("all", None, 2), (None, 1e-9, 0)],
)
def test_texts_that_wait_for_an_audit_are_kept(tmp_path, texts, audit, kept):
    """Also over a restart; and not in the journal."""
    path = tmp_path / "audited"
    known = {"alpha": 0.1, "warm_start": EASY, "audit": audit}
    with contextlib.closing(Service(path, texts=texts, **known)) as service:
        ids = [service.decide(0.5, id=id, question=f"secret {id}?", text=f"secret {id}!").id for id in "ab"]
    with contextlib.closing(Service(path, texts=texts, **known)) as service:
        _, waiting = service.audits(10)
        assert [row["id"] for row in waiting] == (ids if audit == 1 else [])
        if audit and kept:
            assert [(row["question"], row["text"]) for row in waiting] == [
                (f"secret {x}?", f"secret {x}!") for x in ids
            ]
            assert service.feedback("a", "down") == "counted"
            assert [row["id"] for row in service.audits(10)[1]] == ["b"]
    assert not any(b"secret" in file.read_bytes() for file in (path, *tmp_path.glob("audited-*")))
    stored = path.with_name("audited.texts")
    assert (b"secret b!" in stored.read_bytes() if stored.exists() else False) == bool(kept)


def test_a_text_that_cannot_be_kept_costs_no_decision(tmp_path, monkeypatch):
    known = {"alpha": 0.1, "warm_start": EASY, "audit": 1.0}
    with contextlib.closing(Service(tmp_path / "s", **known)) as service:
        half = service.decide(0.5, question="half a pair: \ud800", text="x" * 30_000).id
        _, (row,) = service.audits(1)
        assert (row["question"], row["text"][-7:], len(row["text"])) == ("half a pair: ?", "x [cut]", 20_000)
        monkeypatch.setattr(service._texts, "add", lambda *_: service._texts._connection.execute("no SQL"))
        assert service.decide(0.5, question="", text="").audit
        assert service.open_audits(0)[0] == 2
        assert service.feedback(half, "up", judges=False) == "unaudited"  # whoever rates first gives no verdict
        assert service.feedback(half, "down") == "counted"
        assert service.feedback(half, "up", judges=False) == "repeated"


# Texts that wait for an audit: kept until their time is over, then gone from the disk.


def test_a_text_is_gone_from_the_disk_when_its_time_is_over(tmp_path, monkeypatch):
    path = tmp_path / "state"
    texts = AnswerTexts(path, retain_days=2)
    for id in ("a", "b", "open"):
        texts.add(id, AnswerText(f"the question of {id}", f"a secret answer {id}"))
    assert texts.of("a") == ("the question of a", "a secret answer a")
    texts.close_text("a")
    now = time.time() + 1.5 * DAY
    monkeypatch.setattr(time, "time", lambda: now)
    for id in "ab":  # the first verdict counts
        texts.close_text(id)
    assert texts.of("a") is not None
    now += DAY
    texts.add("next", AnswerText("", ""))
    assert texts.of("a") is None
    assert None not in (texts.of("b"), texts.of("open"))
    texts.close()
    (file,) = [each for each in tmp_path.iterdir() if each.stat().st_size]
    assert file.stat().st_mode & 0o777 == 0o600
    assert b"secret answer a" not in file.read_bytes()
    assert b"secret answer open" in file.read_bytes()
    texts = AnswerTexts(path, retain_days=0)
    assert texts.of("b") is None  # since the file was opened
    texts.close_text("open")
    assert texts.of("open") is None
    texts.close()


def test_an_idle_service_deletes_texts(opened, tmp_path, monkeypatch):
    monkeypatch.setattr(application, "TEXT_SECONDS", 0.01)
    with opened(audit=1.0, warm_start=EASY) as client:
        service, file, later = client.app.state.service, tmp_path / "state.texts", time.time() + DAY
        service.feedback(service.decide(0.5, question="", text="a secret").id, "up")
        assert b"a secret" in file.read_bytes()
    with opened(texts="none", retain_days=0.5):  # also one that keeps no more
        monkeypatch.setattr(time, "time", lambda: later)
        until(lambda: b"a secret" not in file.read_bytes())


def test_a_file_that_is_none_is_one_sentence(tmp_path):
    (tmp_path / "state.texts").write_bytes(b"no database, but long enough to look like one" * 10)
    with pytest.raises(BadInput, match=r"state.texts: cannot be used \(file is not a database\)"):
        AnswerTexts(tmp_path / "state", retain_days=1)
