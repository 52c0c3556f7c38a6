"""The guardrail in a real LiteLLM proxy, between clients and an endpoint, with real services of exaul.

LiteLLM's proxy has some hundred packages, so it is no dependency, not even of the tests. To run these:

    uv run --isolated --with 'litellm[proxy]==1.106.2' pytest -n 0 -m slow tests/serving/test_litellm.py
"""

import asyncio
import json
import math
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from exaul.serving.http.application import app
from tests.models.stub import completion, served
from tests.serving.http.apps import running, until

VERSION = "1.106.2"  # the one that the guardrail was written for
TOKEN, LITELLM_KEY = "decides-0123456789", "sk-of-litellm"
SECRET, SCORE = "Quito Lima Sucre Bogota", math.exp(-0.25)  # the answer of the endpoint
MESSAGES = [{"role": "user", "content": "What is it called?"}]
ABSTENTION = "I do not know."
RECORDER = """
import json
from litellm.integrations.custom_logger import CustomLogger

class Recorder(CustomLogger):
    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        entry = kwargs["standard_logging_object"]
        with open({path!r}, "a") as file:
            file.write(json.dumps([kwargs["litellm_call_id"], entry["guardrail_information"]]) + "\\n")

recorder = Recorder()
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("litellm") is None, reason="litellm is not installed"),
]


def guardrail(name, port, **parameters):
    """A guardrail of the configuration; clients choose it by its name."""
    given = {
        "guardrail": "exaul.serving.litellm.AbstentionGuardrail",
        "mode": ["pre_call", "post_call"],
        "api_base": f"http://127.0.0.1:{port}",
        "api_key": "os.environ/EXAUL_TOKEN",
        "abstention": ABSTENTION,
        "on_error": "abstain",
        "shadow": False,
    }
    return {"guardrail_name": name, "litellm_params": given | parameters}


class SlowService:
    """A service that takes seconds to decide, and records what is withdrawn."""

    def __init__(self):
        self.decided, self.withdrawn = [], []
        routes = [Route(f"/v1/{name}", getattr(self, name), methods=["POST"]) for name in ("decide", "withdraw")]
        self.application = Starlette(routes=routes)

    async def decide(self, request):
        self.decided.append((await request.json())["id"])
        await asyncio.sleep(3)
        return JSONResponse({"answer": True, "probability": 1.0})

    async def withdraw(self, request):
        self.withdrawn.append((await request.json())["id"])
        return JSONResponse({"accepted": True, "reason": "withdrawn"})


def unused_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Proxy:
    """A running LiteLLM proxy, and what is behind it."""

    def __init__(self, url, stub, services, ports, log):
        self.url, self.stub, self.services, self.ports, self.log = url, stub, services, ports, log

    def post(self, path, body, **headers):
        """Return the headers and the bytes of a reply."""
        return post(self.url + path, body, LITELLM_KEY, **headers)

    def ask(self, guardrail=None, call_id=None, **more):
        """Ask for a chat completion; return the call id and the bytes of the reply."""
        body = {"model": "plain", "messages": MESSAGES} | more
        if guardrail is not None:
            body["guardrails"] = [guardrail]
        given = {} if call_id is None else {"x-litellm-call-id": call_id}
        headers, reply = self.post("/v1/chat/completions", body, **given)
        return headers["x-litellm-call-id"], reply

    def logged(self, call_id):
        """Return the status and the facts that LiteLLM logs of a guardrail, once it does."""

        def entries():
            lines = self.log.read_text().splitlines() if self.log.exists() else []
            return [entries for id, entries in map(json.loads, lines) if id == call_id]

        until(entries)
        [entry] = entries()[-1]
        return entry["guardrail_status"], entry["guardrail_response"]

    def send_feedback(self, service, id):
        """Report that an answer was right; return the reply."""
        url = f"http://127.0.0.1:{self.ports[service]}/v1/feedback"
        return json.loads(post(url, {"id": id, "thumb": "up"}, TOKEN)[1])


def post(url, body, token, **headers):
    headers |= {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as reply:
        return reply.headers, reply.read()


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    """A proxy whose guardrails ask a service that shows all answers, one that withholds all, or none."""
    assert metadata.version("litellm") == VERSION
    folder = tmp_path_factory.mktemp("litellm")
    tokens, log = folder / "tokens", folder / "log.jsonl"
    tokens.write_text(f"decide,feedback {TOKEN}\n")
    with ExitStack() as stack:
        stub = stack.enter_context(served())
        services, ports = {}, {}
        for name, learner in (("shows", "tests.constant:answers"), ("withholds", "tests.constant:abstains")):
            application = app(
                folder / f"{name}.sqlite", tokens=str(tokens), learner=f"tests.constant:{learner}", alpha=0.1
            )
            services[name] = application.state.service
            services[name].decide(0.5, "compiled")  # the first decision of a process can take seconds
            ports[name] = stack.enter_context(running(application))
        services["slow"] = SlowService()
        ports["slow"] = stack.enter_context(running(services["slow"].application))
        (folder / "recorder.py").write_text(RECORDER.format(path=str(log)))
        endpoint = {"model": "openai/stub-1", "api_base": stub.url, "api_key": "none"}
        models = {
            "plain": endpoint,
            "gated": endpoint | {"guardrails": ["withholds"]},
            "vllm": endpoint | {"model": "hosted_vllm/stub-1", "guardrails": ["withholds"]},
            "no-logprobs": endpoint | {"model": "anthropic/claude-sonnet-4-5"},
        }
        guardrails = [
            guardrail("shows", ports["shows"], key="{model}/{team}"),
            guardrail("withholds", ports["withholds"]),
            guardrail("shadows", ports["withholds"], shadow=True),
            guardrail("too-slow", ports["slow"], timeout=0.3),
            guardrail("patient", ports["slow"], timeout=10),
            guardrail("down-answer", unused_port(), on_error="answer"),
            guardrail("down-abstain", unused_port()),
            guardrail("down-shadows", unused_port(), shadow=True),
        ]
        write_config(folder, models, guardrails)
        process, url = start(folder, stack)
        yield Proxy(url, stub, services, ports, log)
        assert process.poll() is None


def write_config(folder, models, guardrails):
    config = {
        "model_list": [{"model_name": name, "litellm_params": given} for name, given in models.items()],
        "guardrails": guardrails,
        "litellm_settings": {
            "callbacks": ["recorder.recorder"],
            "cache": True,
            "cache_params": {"type": "local", "mode": "default_off"},
        },
        "general_settings": {"master_key": LITELLM_KEY},
    }
    (folder / "config.yaml").write_text(json.dumps(config))  # JSON is YAML


def start(folder, stack):
    """Start LiteLLM; return the process and its address when it replies or has ended."""
    port = unused_port()
    env = os.environ | {
        "EXAUL_TOKEN": TOKEN,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks the network for prices
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    argv = ["--config", str(folder / "config.yaml"), "--host", "127.0.0.1", "--port", str(port)]
    output = stack.enter_context((folder / "output").open("w"))
    process = subprocess.Popen(
        [sys.executable, "-c", "from litellm import run_server; run_server()", *argv],
        cwd=folder,
        env=env,
        stdout=output,
        stderr=subprocess.STDOUT,
    )
    stack.callback(process.wait, 20)
    stack.callback(process.terminate)
    url, end = f"http://127.0.0.1:{port}", time.monotonic() + 120
    while process.poll() is None:
        assert time.monotonic() < end, (folder / "output").read_text()[-3000:]
        try:
            urllib.request.urlopen(f"{url}/health/liveliness", timeout=5).close()
            break
        except OSError:
            time.sleep(0.2)
    return process, url


@pytest.fixture(autouse=True)
def _replies(request):
    """The endpoint replies with the secret."""
    if "proxy" in request.fixturenames:
        stub = request.getfixturevalue("proxy").stub
        stub.rule, stub.delay = streaming(completion(SECRET)), 0.0
        stub.asked.clear()


def streaming(whole):
    """A rule of the stub: reply with a completion, one token in each chunk if the client asks for a stream."""
    common = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "stub-1"}

    def rule(body, before):
        if not body.get("stream"):
            return whole
        [choice] = whole["choices"]
        parts = [
            {
                "index": 0,
                "delta": {"role": "assistant", "content": token["token"]},
                "logprobs": {"content": [token]} if body.get("logprobs") else None,
                "finish_reason": None,
            }
            for token in choice["logprobs"]["content"]
        ]
        parts.append({"index": 0, "delta": {}, "finish_reason": "stop"})
        events = [common | {"choices": [part]} for part in parts] + [
            common | {"choices": [], "usage": whole["usage"]}
        ]
        lines = [f"data: {json.dumps(event)}\n\n" for event in events]
        return StreamingResponse(iter([*lines, "data: [DONE]\n\n"]), media_type="text/event-stream")

    return rule


def chunks_of(reply):
    """The chunks of a stream, and its text."""
    lines = [line.removeprefix("data: ") for line in reply.decode().splitlines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    chunks = list(map(json.loads, lines))
    return chunks, "".join(c["delta"].get("content") or "" for chunk in chunks for c in chunk["choices"])


def content_of(reply):
    return json.loads(reply)["choices"][0]["message"]["content"]


def has_secret(reply):
    return any(word.encode() in reply for word in SECRET.split())


def test_a_shown_answer_and_its_feedback(proxy):
    call_id, reply = proxy.ask("shows")
    assert content_of(reply) == SECRET
    assert b"logprob" not in reply
    assert proxy.stub.asked[-1]["logprobs"] is True
    status, facts = proxy.logged(call_id)
    assert (status, facts["id"], facts["abstainer"]) == ("success", call_id, "plain/")
    assert facts["score"] == pytest.approx(SCORE)
    assert facts["probability"] == 1
    assert proxy.send_feedback("shows", call_id) == {"accepted": True, "reason": "counted"}
    assert proxy.services["shows"].figures("plain/")["observed"] >= 1


def test_a_withheld_answer(proxy):
    call_id, reply = proxy.ask("withholds")
    assert content_of(reply) == ABSTENTION
    assert not has_secret(reply)
    assert json.loads(reply)["usage"]["total_tokens"] == 14
    status, facts = proxy.logged(call_id)
    assert (status, facts["answer"], facts["probability"]) == ("guardrail_intervened", False, 0)
    assert proxy.send_feedback("withholds", call_id) == {"accepted": False, "reason": "withheld"}


@pytest.mark.parametrize("model", ["plain", "gated"])
def test_a_withheld_stream_has_no_token_of_the_answer(proxy, model):
    """Whether the client or the model names the guardrail."""
    guardrail = None if model == "gated" else "withholds"
    call_id, reply = proxy.ask(guardrail, model=model, stream=True, stream_options={"include_usage": True})
    assert not has_secret(reply)
    chunks, text = chunks_of(reply)
    assert text == ABSTENTION
    assert chunks[-1]["usage"]["total_tokens"] == 14
    assert [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if "finish_reason" in c] == ["stop"]
    assert proxy.logged(call_id)[0] == "guardrail_intervened"


def test_a_guardrail_of_a_model_decides_once(proxy):
    """LiteLLM calls such a guardrail twice after a completion."""
    call_id, reply = proxy.ask(model="gated")
    assert content_of(reply) == ABSTENTION
    assert proxy.logged(call_id)[0] == "guardrail_intervened"


def test_a_shown_stream(proxy):
    call_id, reply = proxy.ask("shows", stream=True)
    chunks, text = chunks_of(reply)
    assert text == SECRET
    assert len(chunks) > 4
    assert b"logprob" not in reply
    assert proxy.logged(call_id)[1]["score"] == pytest.approx(SCORE)
    assert proxy.send_feedback("shows", call_id)["reason"] == "counted"


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_gets_the_logprobs_that_it_asked_for(proxy, stream):
    _, reply = proxy.ask("shows", logprobs=True, stream=stream)
    assert reply.count(b'"logprob"') == 4


@pytest.mark.parametrize("stream", [False, True])
def test_shadow_shows_every_answer(proxy, stream):
    call_id, reply = proxy.ask("shadows", stream=stream)
    assert (chunks_of(reply)[1] if stream else content_of(reply)) == SECRET
    status, facts = proxy.logged(call_id)
    assert (status, facts["answer"], facts["withheld"]) == ("guardrail_flagged", False, False)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["down-answer", "down-abstain", "down-shadows"])
def test_the_service_is_down(proxy, name, stream):
    call_id, reply = proxy.ask(name, stream=stream)
    shown = chunks_of(reply)[1] if stream else content_of(reply)
    assert shown == (ABSTENTION if name == "down-abstain" else SECRET)
    status, facts = proxy.logged(call_id)
    assert status == "guardrail_failed_to_respond"
    assert facts["error"] == "the service cannot be reached (ClientConnectorError)"


def test_an_id_that_the_client_chose(proxy):
    """The same answer has the same decision; another one under the same id is not shown."""
    for _ in range(2):
        call_id, reply = proxy.ask("shows", "of-the-client")
        assert (call_id, content_of(reply)) == ("of-the-client", SECRET)
    proxy.stub.rule = streaming(completion("Another answer", [-1.0, -2.0]))
    call_id, reply = proxy.ask("shows", "of-the-client")
    assert content_of(reply) == ABSTENTION
    # the first answer is not withdrawn
    assert proxy.send_feedback("shows", call_id)["reason"] == "counted"


def test_what_passes_undecided(proxy):
    one = completion(SECRET)
    [choice] = one["choices"]
    call = {"id": "c", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    calls = {"role": "assistant", "content": SECRET, "tool_calls": [call]}
    for choices, reason in (
        ([choice, choice | {"index": 1}], "n"),
        ([choice | {"logprobs": None}], "no_score"),
        ([choice | {"message": calls}], "tool_calls"),
    ):
        proxy.stub.rule = lambda *_, choices=choices: one | {"choices": choices}
        call_id, reply = proxy.ask("withholds")
        assert content_of(reply) == SECRET
        assert proxy.logged(call_id) == ("not_run", {"id": call_id, "undecided": reason})


@pytest.mark.parametrize("stream", [False, True])
def test_other_routes_pass_undecided(proxy, stream):
    body = {"model": "vllm", "max_tokens": 9, "messages": MESSAGES, "stream": stream}
    headers, reply = proxy.post("/v1/messages", body)
    assert has_secret(reply)
    assert proxy.logged(headers["x-litellm-call-id"]) == ("not_run", {"undecided": "route"})


def test_cached_answers_are_decided(proxy):
    """The cache has the answer, not what another client was shown."""
    for name, shown in (("withholds", ABSTENTION), ("shows", SECRET), ("withholds", ABSTENTION)):
        _, reply = proxy.ask(name, cache={"use-cache": True})
        assert content_of(reply) == shown
        _, reply = proxy.ask(name, cache={"use-cache": True}, stream=True)
        assert chunks_of(reply)[1] == shown
    assert sum(not body.get("stream") for body in proxy.stub.asked) == 1
    assert len(proxy.stub.asked) == 4  # LiteLLM would keep streams without logprobs, so they are not cached


def go_away(proxy, guardrail, happened):
    """Ask for a stream, and close the connection when something has happened."""
    body = {"model": "plain", "messages": MESSAGES, "stream": True, "guardrails": [guardrail]}
    content = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {LITELLM_KEY}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(proxy.url.rpartition(":")[2]))) as client:
        client.sendall(head.encode() + content)
        until(happened)


def test_a_client_that_goes_away_before_the_end_of_a_stream(proxy):
    """Nothing is decided."""
    before = proxy.services["shows"].figures("plain/")["questions"]
    proxy.stub.delay = 0.5
    go_away(proxy, "shows", lambda: proxy.stub.asked)
    time.sleep(2)
    assert proxy.services["shows"].figures("plain/")["questions"] == before


def test_a_client_that_goes_away_before_the_decision(proxy):
    """The service may have decided to show what nobody sees."""
    slow = proxy.services["slow"]
    before = len(slow.decided)
    go_away(proxy, "patient", lambda: len(slow.decided) > before)
    until(lambda: slow.decided[before] in slow.withdrawn)


def test_a_decision_that_comes_too_late(proxy):
    call_id, reply = proxy.ask("too-slow")
    assert content_of(reply) == ABSTENTION
    assert proxy.logged(call_id)[1]["error"] == "the service took more than 0.3 s"
    until(lambda: call_id in proxy.services["slow"].withdrawn)


def test_models_without_logprobs(proxy):
    """LiteLLM refuses to ask them, unless it may drop parameters."""
    with pytest.raises(urllib.error.HTTPError) as error:
        proxy.ask("shows", model="no-logprobs")
    assert error.value.code == 400
    assert b"drop_params" in error.value.read()
    error.value.close()


def test_litellm_does_not_start_with_a_mistake(tmp_path):
    """It would start without a guardrail that raises ValueError, and show every answer."""
    (tmp_path / "recorder.py").write_text(RECORDER.format(path=str(tmp_path / "log")))
    write_config(tmp_path, {}, [guardrail("wrong", 1, shadwo=False)])
    with ExitStack() as stack:
        process, _ = start(tmp_path, stack)
        assert process.poll() not in (None, 0)
        assert "guardrail wrong: shadwo: unknown" in (tmp_path / "output").read_text()


@pytest.mark.filterwarnings("ignore")  # of LiteLLM's own imports
@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"on_error": "maybe"}, "on_error: 'maybe' is unknown; one of answer, abstain"),
        ({"shadwo": False}, "shadwo: unknown"),
        ({"event_hook": "post_call"}, "mode: 'post_call' found; it must be [pre_call, post_call]"),
        ({"event_hook": ["pre_call"]}, "mode: ['pre_call'] found"),
    ],
)
def test_mistakes(monkeypatch, parameters, sentence):
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    from exaul.serving.litellm import AbstentionGuardrail

    right = {"event_hook": ["pre_call", "post_call"], "api_base": "http://127.0.0.1:1", "on_error": "answer"}
    AbstentionGuardrail(guardrail_name="right", **right)
    with pytest.raises(RuntimeError, match=re.escape(f"guardrail wrong: {sentence}")):
        AbstentionGuardrail(guardrail_name="wrong", **right | parameters)
