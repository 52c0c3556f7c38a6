"""Texts that wait for an audit: kept until their time is over, then gone from the disk."""

import time

import pytest

from exaul import BadInput
from exaul.serving.http import application
from exaul.serving.texts import DAY, AnswerText, AnswerTexts
from tests.serving.http.apps import EASY, until


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
