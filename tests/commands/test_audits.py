"""``exaul audits``: of a running service and of a file, printed, and judged by hand and by a model."""

import time
from contextlib import closing

import pytest
from starlette.responses import JSONResponse

from exaul.commands.main import main
from exaul.commands.terminal import INCOMPLETE_STATUS
from exaul.serving.service import Service
from exaul.serving.texts import DAY
from tests.models.stub import completion
from tests.processes import output_of, refusal_of
from tests.serving.http.apps import EASY, gateway

RIGHT, WRONG = "It is Paris", "It is Lyon"


def judge(asked, before):
    """A judge that knows the town, and is unclear about nothing but 42."""
    prompt = asked["messages"][0]["content"]
    if "42" in prompt:
        return completion("perhaps")
    return completion("Yes." if RIGHT in prompt else "No.")


@pytest.fixture
def journal(tmp_path):
    """The file of a service with audits: one right, one wrong, one unclear, and one without a text."""
    service = Service(tmp_path / "state", audit=1.0, warm_start=EASY)
    for text in ("42", RIGHT, WRONG):
        service.decide(0.9, text=text, question="Which town?")
    service.decide(0.9, "other")
    service.close()
    return tmp_path / "state"


def test_open_audits_are_printed_and_old_texts_left_to_the_service(journal, capsys, monkeypatch):
    with closing(Service(journal)) as service:
        id = service.decide(0.9, text="of old").id
        service.feedback(id, "up")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 31 * DAY)
    text = output_of(["audits", str(journal)], capsys)
    parts = (
        f"answer: {RIGHT}",
        "question: Which town?",
        "key 'other'\nno text is kept",
        "4 open audits\nJudge",
    )
    assert [part for part in parts if part not in text] == []
    assert "0.9" not in text  # it could sway the judge
    assert b"of old" in journal.with_name("state.texts").read_bytes()


def test_verdicts_are_given_by_hand_and_none_if_an_id_is_not_open(journal, capsys, monkeypatch):
    monkeypatch.setattr("exaul.serving.http.audits.PAGE", 1)
    with closing(Service(journal)) as service:
        ids = [row["id"] for row in service.audits(10)[1]]
    argv = ["audits", str(journal), "--wrong", ids[2], ids[3], "--right", ids[1]]
    said = "--right, --wrong: 'none' found; it must be the id of an open audit; no verdict was given"
    assert said in refusal_of([*argv, "none"], capsys)
    assert output_of(argv, capsys) == "judged 3 of 4 open audits (right: 1, wrong: 2)\n"
    judged = f"{ids[1]!r} found; it must be the id of an open audit, and this one was judged before; no verdict"
    assert judged in refusal_of([*argv[:2], "--right", ids[1]], capsys)
    with closing(Service(journal)) as service:
        assert [row["id"] for row in service.audits(10)[1]] == ids[:1]
        assert (service.figures()["wrong"], service.figures("other")["wrong"]) == (1, 1)


@pytest.mark.parametrize(("page", "refuses"), [(1, True), (2, False), (100, True)])
def test_a_model_judges_the_audits_of_a_file(journal, stub, capsys, monkeypatch, page, refuses):
    """What it does not say, and what has no text, stays open, and does not hide the audits after it."""
    monkeypatch.setattr("exaul.serving.http.audits.PAGE", page)
    refusal = JSONResponse({}, 400)  # as of a filter
    stub.rule = lambda asked, before: refusal if refuses and "42" in str(asked) else judge(asked, before)
    argv = ["audits", str(journal), "--judge-model", "large", "--endpoint", stub.url]
    assert main(argv) == 0
    said = "large judged 2 of 4 open audits (no clear verdict: 1, no text is kept: 1, right: 1, wrong: 1)"
    assert capsys.readouterr().out.strip() == said
    assert {asked["model"] for asked in stub.asked} == {"large"}
    service = Service(journal)
    assert (service.figures()["observed"], service.figures()["wrong"], service.open_audits(0)[0]) == (2, 1, 2)
    service.close()


def test_a_judge_without_any_clear_verdict_is_no_success(journal, stub, capsys):
    stub.rule = lambda asked, before: completion("perhaps")
    argv = ["audits", str(journal), "--judge-model", "m", "--endpoint", stub.url]
    printed = output_of(argv, capsys, INCOMPLETE_STATUS)
    assert printed.startswith("m judged 0 of 4 open audits (no clear verdict: 3")


def test_a_model_judges_the_audits_of_a_running_service(stub, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TOKENS", "ask,read asking-token-0123456\naudit auditing-token-01234")
    monkeypatch.setenv("TOKEN", "auditing-token-01234")
    monkeypatch.setenv("WRONG_TOKEN", "asking-token-0123456")
    stub.rule = lambda asked, before: judge(asked, before) if asked["model"] == "large" else completion(RIGHT)
    how = {"tokens": "env:TOKENS", "audit": 1.0, "keys": {"": {"warm_start": EASY}}}
    with gateway(tmp_path, stub.url, "aci-rank", **how) as client:
        for _ in range(2):
            assert client.ask(authorization="Bearer asking-token-0123456")[0] == 200
        argv = ["audits", f"http://127.0.0.1:{client.port}", "--judge-model", "large", "--endpoint", stub.url]
        printed = output_of([*argv, "--token-variable", "TOKEN"], capsys)
        assert printed.strip() == "large judged 2 of 2 open audits (right: 2)"
        assert client.service.figures()["observed"] == 2
        client.service.decide(0.9)
        argv[2:] = []
        assert "\n1 open audit\nJudge them" in output_of([*argv, "--token-variable", "TOKEN"], capsys)
        argv += ["--wrong", client.service.audits(1)[1][0]["id"], "--token-variable", "TOKEN"]
        assert output_of(argv, capsys) == "judged 1 of 1 open audit (wrong: 1)\n"
        assert client.service.figures()["wrong"] == 1
        assert "open audit, and this one was judged before; no" in refusal_of(argv, capsys)
        argv[3] = "none"
        assert "'none' found; it must be the id of an open audit; no verdict was given" in refusal_of(argv, capsys)
        argv[2:] = []
        assert "the token lacks the scope audit" in refusal_of([*argv, "--token-variable", "WRONG_TOKEN"], capsys)
        refusal = refusal_of(["audits", str(client.service.path)], capsys)
        assert refusal.endswith(" found; it must be http://HOST:PORT of the service that has it open\n")


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        ("none", "where: 'none' found; it must be http://HOST:PORT, or a journal that exists"),
        ("http://127.0.0.1:P", "where: http://127.0.0.1:P is not an address (Invalid port"),
        ("http://127.0.0.1:9", ":9: no reply of a service (ConnectError); for a stopped service, give its file"),
        ("OTHER", ": no reply of a service"),
        ("FILE --judge-model m", "--judge-model, --endpoint: one of the two is missing"),
        (
            "FILE --right a --judge-model m --endpoint http://127.0.0.1:9",
            "either you judge or a model",
        ),
        ("FILE --right a b --wrong b", "wrong: 'b' found; it must be an id that is not in right"),
        ("FILE --token-variable NO_SUCH", "--token-variable: the environment variable NO_SUCH is not set"),
        ("FILE --token-variable a-secret", "exaul: --token-variable: it must be the name of an environment"),
        ("FILE --judge-model m --endpoint http://127.0.0.1:9/v1", "endpoint: the upstream did not"),
    ],
)
def test_bad_input_is_one_line(journal, stub, argv, part, capsys):
    """``OTHER`` is the address of a program that is no service. A secret is not printed."""
    words = {"FILE": str(journal), "OTHER": stub.url.removesuffix("/v1")}
    said = refusal_of(["audits", *(words.get(word, word) for word in argv.split())], capsys)
    assert part in said
    assert "a-secret" not in said
