"""The guardrail in a real LiteLLM proxy, between clients and an endpoint, with real services of exaul.

LiteLLM's proxy has some hundred packages, so it is no dependency, not even of the tests. To run these:

    uv run --isolated --with 'litellm[proxy]==1.106.2' pytest -n 0 -m slow tests/serving/test_litellm.py
"""

import json
import os
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
from starlette.responses import StreamingResponse

from exaul.serving.http.application import app
from tests.models.stub import completion, served
from tests.serving.http.apps import running, until

VERSION = "1.106.2"  # the one that the guardrail was written for
TOKEN, LITELLM_KEY = "decides-0123456789", "sk-of-litellm"
SECRET = "The capital is Paris"  # the answer of the endpoint
ABSTENTION = "I do not know."
RECORDER = '''
import json
from litellm.integrations.custom_logger import CustomLogger

class Recorder(CustomLogger):
    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        entry = kwargs["standard_logging_object"]
        with open({path!r}, "a") as file:
            file.write(json.dumps([entry["id"], kwargs["litellm_call_id"], entry["guardrail_information"]]) + "\\n")

recorder = Recorder()
'''

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


def unused_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Proxy:
    """A running LiteLLM proxy, and what is behind it."""

    def __init__(self, url, stub, services, log):
        self.url, self.stub, self.services, self.log = url, stub, services, log

    def post(self, path, body, **headers):
        """Return the headers and the bytes of a reply."""
        headers |= {"Authorization": f"Bearer {LITELLM_KEY}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.headers, reply.read()

    def ask(self, guardrail, call_id=None, **more):
        """Ask for a chat completion; return the call id and the bytes of the reply."""
        body = {"model": "plain", "messages": [{"role": "user", "content": "What is the capital?"}]} | more
        if guardrail is not None:
            body["guardrails"] = [guardrail]
        headers, reply = self.post("/v1/chat/completions", body, **({"x-litellm-call-id": call_id} if call_id else {}))
        return headers["x-litellm-call-id"], reply

    def logged(self, call_id):
        """Return what LiteLLM logs of the guardrails of a call, once it does."""

        def entries():
            text = self.log.read_text() if self.log.exists() else ""
            return [entry[2] for entry in map(json.loads, text.splitlines()) if entry[1] == call_id]

        until(entries)
        return [(entry["guardrail_status"], entry["guardrail_response"]) for entry in entries()[0] or []]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    """A proxy in front of the stub; its guardrails ask a service that shows all, one that withholds all, or none."""
    assert metadata.version("litellm") == VERSION
    folder = tmp_path_factory.mktemp("litellm")
    tokens = folder / "tokens"
    tokens.write_text(f"decide,feedback,read {TOKEN}\n")
    with ExitStack() as stack:
        stub = stack.enter_context(served())
        services, ports = {}, {}
        for name, learner in (("shows", "no-abstention"), ("withholds", "always-abstain")):
            application = app(folder / f"{name}.sqlite", tokens=str(tokens), learner=learner, alpha=0.1)
            services[name], ports[name] = application.state.service, stack.enter_context(running(application))
        down = unused_port()
        log = folder / "log.jsonl"
        (folder / "recorder.py").write_text(RECORDER.format(path=str(log)))
        endpoint = {"model": "openai/stub-1", "api_base": stub.url, "api_key": "none"}
        config = {
            "model_list": [
                {"model_name": "plain", "litellm_params": endpoint},
                {"model_name": "gated", "litellm_params": endpoint | {"guardrails": ["withholds"]}},
            ],
            "guardrails": [
                guardrail("shows", ports["shows"], key="{model}/{team}"),
                guardrail("withholds", ports["withholds"]),
                guardrail("shadows", ports["withholds"], shadow=True),
                guardrail("down-answer", down, on_error="answer"),
                guardrail("down-abstain", down),
            ],
            "litellm_settings": {"callbacks": ["recorder.recorder"], "num_retries": 0, "telemetry": False},
            "general_settings": {"master_key": LITELLM_KEY},
        }
        (folder / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
        process, url = start(folder, stack)
        yield Proxy(url, stub, services, log)
        assert process.poll() is None


def start(folder, stack, wait=True):
    """Start LiteLLM on a configuration; return the process and its address."""
    port = unused_port()
    root = Path(__file__).parents[2]
    env = os.environ | {
        "EXAUL_TOKEN": TOKEN,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # the network has nothing for it
        "PYTHONPATH": str(root),
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
    stack.callback(lambda: (process.terminate(), process.wait(20)))
    url, end = f"http://127.0.0.1:{port}", time.monotonic() + 120
    while wait and process.poll() is None and time.monotonic() < end:
        try:
            urllib.request.urlopen(f"{url}/health/liveliness", timeout=5).close()
        except OSError:
            time.sleep(0.2)
        else:
            return process, url
    if wait:
        pytest.fail((folder / "output").read_text()[-3000:])
    return process, url


def streaming(text, **more):
    """A rule of the stub: stream a completion, a token for each chunk, if the client asks for a stream."""
    whole = completion(text)
    tokens = whole["choices"][0]["logprobs"]["content"]

    def event(choices, **more):
        body = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "stub-1", "choices": choices}
        return f"data: {json.dumps(body | more)}\n\n"

    def rule(body, before):
        if not body.get("stream"):
            return completion(text)
        parts = [
            event(
                [
                    {
                        "index": 0,
                        "delta": {"role": "assistant", "content": token["token"]},
                        "logprobs": {"content": [token]} if body.get("logprobs") else None,
                        "finish_reason": None,
                    }
                ]
            )
            for token in tokens
        ]
        parts.append(event([{"index": 0, "delta": {}, "finish_reason": "stop"}]))
        if (body.get("stream_options") or {}).get("include_usage"):
            parts.append(event([], usage=whole["usage"]))
        return StreamingResponse(iter([*parts, "data: [DONE]\n\n"]), media_type="text/event-stream")

    return rule


def streamed(reply):
    """The chunks of a stream."""
    lines = [line for line in reply.decode().splitlines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def text_of(chunks):
    return "".join(c["delta"].get("content") or "" for chunk in chunks for c in chunk["choices"])


@pytest.fixture(autouse=True)
def _answers(request):
    if "proxy" in request.fixturenames:
        stub = request.getfixturevalue("proxy").stub
        stub.rule = streaming(SECRET)
        stub.asked.clear()


def test_shown(proxy):
    call_id, reply = proxy.ask("shows")
    body = json.loads(reply)
    assert body["choices"][0]["message"]["content"] == SECRET
    assert not body["choices"][0].get("logprobs")
    assert proxy.stub.asked[-1]["logprobs"] is True
    figures = proxy.services["shows"].figures("plain/")
    assert figures["answers"] == 1
    [(status, facts)] = proxy.logged(call_id)
    print(facts)
    assert status == "success"
    assert facts["probability"] == 1


def test_withheld(proxy):
    call_id, reply = proxy.ask("withholds")
    print(reply)
    assert SECRET.split()[-1].encode() not in reply
    assert json.loads(reply)["choices"][0]["message"]["content"] == ABSTENTION
    print(proxy.logged(call_id))


@pytest.mark.parametrize("name", ["shows", "withholds", "shadows", "down-answer", "down-abstain"])
def test_stream(proxy, name):
    call_id, reply = proxy.ask(name, stream=True, stream_options={"include_usage": True})
    print(reply.decode())
    print(proxy.logged(call_id))
    chunks = streamed(reply)
    print(text_of(chunks))
