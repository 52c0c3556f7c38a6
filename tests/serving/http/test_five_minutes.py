"""The commands of docs/service.md do what the page says, before a real model."""

import json
import shutil
import subprocess
from importlib.util import find_spec

import pytest
from openai import BadRequestError

from tests.models.conftest import small_model  # noqa: F401  # a fixture
from tests.processes import EXAUL, ROOT, serving
from tests.serving.http.apps import blocks
from tests.serving.http.test_clients import IDK, Town, langchain_model, openai_client
from tests.serving.http.test_page import browser, row  # noqa: F401  # a fixture

PAGE = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
ENDPOINT, SERVICE = "http://127.0.0.1:8000/v1", "http://127.0.0.1:8321"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="no curl, which the page uses"),
]


def of_page(command):
    """The command that starts the service, on a free port."""
    assert command.startswith("uv run --extra serve exaul serve ")
    return [*EXAUL, *command.replace("\\\n", "").split()[5:], "--port", "0"]


def asked(command, address):
    """Run a command with curl, and return the reply."""
    assert SERVICE in command
    done = subprocess.run(command.replace(SERVICE, address), shell=True, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_five_minutes(small_model, tmp_path, in_folder):  # noqa: F811
    start, ask, rate = blocks(PAGE, "Five minutes", "sh")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with serving(of_page(start.replace(ENDPOINT, small_model)), tmp_path) as (_, address):
        for _ in range(3):
            reply = asked(ask, address)
            described = json.loads("{" + blocks(PAGE, "Five minutes", "json")[0] + "}")["exaul"]
            decision = reply["exaul"]
            assert list(decision) == list(described)
            shown = reply["choices"][0]["message"]["content"] != "I don't know."
            assert shown == decision["answer"]
            outcome = asked(rate.replace(described["id"], decision["id"]), address)
            assert outcome == {"accepted": shown, "reason": "counted" if shown else "withheld"}
        scope = {}
        exec(blocks(PAGE, "Five minutes", "python")[0].replace(SERVICE, address), scope)
        assert scope["reply"].exaul["id"] == scope["reply"].id


def test_your_own_program(tmp_path):
    start, ask = blocks(PAGE, "Your own program", "sh")[0].split("\n", 1)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with serving(of_page(start), tmp_path) as (_, address):
        assert asked(ask, address).keys() == {"id", "answer", "probability", "audit", "repeated", "error"}


def test_the_main_job(small_model, tmp_path, browser):  # noqa: F811
    """An answer is shown, others are withheld in each form, and the audit is learned, counted and on the page."""
    start = blocks(PAGE, "Five minutes", "sh")[0].replace(ENDPOINT, small_model)
    limits = {"max_tokens": 16, "temperature": 0}
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with (
        openai_client(small_model, {}) as direct,
        serving(of_page(f"{start} --audit 1"), tmp_path) as (_, address),
        openai_client(f"{address}/v1", {}) as client,
    ):
        questions = "Which town is the capital of France?", "Invent the name of a town."
        messages = ([{"role": "user", "content": question}] for question in questions)
        known, unknown = ({"model": "m", "messages": each, **limits} for each in messages)
        by_itself, shown = (each.chat.completions.create(**known) for each in (direct, client))
        assert shown.choices[0] == by_itself.choices[0]
        assert "Paris" in shown.choices[0].message.content
        text = client.chat.completions.create(**unknown)
        parsed = client.chat.completions.parse(**unknown, response_format=Town)
        assert text.choices[0].message.content == parsed.choices[0].message.refusal == IDK
        *_, last = client.chat.completions.create(**unknown, stream=True, stream_options={"include_usage": True})
        assert last.usage.completion_tokens == text.usage.completion_tokens > 0
        assert client.models.list().data[0].id == direct.models.list().data[0].id
        for each in (direct, client):  # the model's own error
            with pytest.raises(BadRequestError, match="messages"):
                each.chat.completions.create(**known, extra_body={"messages": 3})
        ids = [shown.id, text.id, parsed.id, last.id]
        if find_spec("langchain_openai"):
            reply = langchain_model(f"{address}/v1", {}, **limits).invoke(unknown["messages"])
            assert reply.content == IDK
            ids.append(reply.response_metadata["id"])
        assert [audit["id"] for audit in client.get("/audits", cast_to=dict)["audits"]] == [shown.id]
        reasons = [client.post("/feedback", body={"id": id, "thumb": "up"}, cast_to=dict)["reason"] for id in ids]
        assert reasons == ["counted", *["withheld"] * (len(ids) - 1)]
        assert client.get("/audits", cast_to=dict)["total"] == 0
        expected = {"questions": len(ids), "answers": 1, "audited": 1, "observed": 1, "wrong": 0}
        assert expected.items() <= client.get("/keys", cast_to=dict)["keys"][0].items()
        browser.open(f"{address}/")
        browser.wait(f"/Paris.*▲ right · counted/s.test({row(shown.id)}?.innerText)")
        for id in ids[1:]:
            assert "○ withheld" in browser.evaluate(f"{row(id)}.innerText")
