"""What users of real clients get of the gateway: answers, abstentions in each form, ids for feedback, and errors.

A client whose library is not installed is skipped; the development group has openai alone:

    uv pip install langchain-openai 'litellm[proxy]'
    npm install --prefix FOLDER openai
    NODE_PATH=FOLDER/node_modules pytest -m slow tests/serving/http/test_clients.py
"""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from pydantic import BaseModel

from exaul.serving.http.gateway import FIELDS
from tests.models.stub import completion
from tests.serving.http.apps import ABSTAIN, QUESTION, SECRET, error, until

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # libraries warn of themselves
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it asks the internet
MESSAGES = QUESTION["messages"]
TEXT, IDK = f"It is {SECRET}", "I don't know."


class Town(BaseModel):
    """The schema of a structured answer."""

    town: str


MASTER_KEY = "sk-a-key-of-this-test-0123456789"
PORT = 20_000 + 2 * (os.getpid() % 6_000)  # below those that the system gives to clients
GATEWAY, PROXY = (f"http://127.0.0.1:{port}/v1" for port in (PORT, PORT + 1))


def rule(asked, before):
    """Reply with JSON where it is asked for."""
    return completion(json.dumps({"town": SECRET}) if "response_format" in asked else TEXT)


# Each client returns its answer, its refusal, and the id that it knows of the decision.


def openai_client(url, headers, kind="OpenAI"):
    """A client of OpenAI's own library."""
    return getattr(pytest.importorskip("openai"), kind)(base_url=url, api_key=MASTER_KEY, default_headers=headers)


def openai_create(url, headers):
    with openai_client(url, headers) as client:
        raw = client.chat.completions.with_raw_response.create(model="m", messages=MESSAGES)
    reply = raw.parse()
    assert raw.headers["x-exaul-id"] == reply.id == reply.exaul["id"]
    assert raw.headers["x-exaul-answer"] == json.dumps(reply.exaul["answer"])
    return reply.choices[0].message.content, reply.choices[0].message.refusal, reply.id


def openai_async(url, headers):
    async def create():
        async with openai_client(url, headers, "AsyncOpenAI") as client:
            return await client.chat.completions.create(model="m", messages=MESSAGES)

    reply = asyncio.run(create())
    return reply.choices[0].message.content, reply.choices[0].message.refusal, reply.id


def openai_stream(url, headers):
    asked = {"model": "m", "messages": MESSAGES}
    with openai_client(url, headers) as client, client.chat.completions.stream(**asked) as stream:
        reply = stream.get_final_completion()
    return reply.choices[0].message.content, reply.choices[0].message.refusal, reply.id


def openai_parse(url, headers):
    with openai_client(url, headers) as client:
        reply = client.chat.completions.parse(model="m", messages=MESSAGES, response_format=Town)
    parsed, refusal = reply.choices[0].message.parsed, reply.choices[0].message.refusal
    return parsed and parsed.town, refusal, reply.id


def langchain_model(url, headers, **more):
    library = pytest.importorskip("langchain_openai")
    return library.ChatOpenAI(base_url=url, api_key="none", model="m", default_headers=headers, **more)


def langchain_stream(url, headers):
    """A refusal is lost."""
    parts = list(langchain_model(url, headers, include_response_headers=True).stream("Which town?"))
    named = parts[0].response_metadata["headers"]["x-exaul-id"]
    return "".join(part.content for part in parts) or None, None, named


def langchain_structured(url, headers):
    reply = langchain_model(url, headers).with_structured_output(Town, include_raw=True).invoke("Which town?")
    refusal = reply["parsing_error"] and str(reply["parsing_error"])
    return reply["parsed"] and reply["parsed"].town, refusal, reply["raw"].response_metadata["id"]


def litellm_call(url, headers, **more):
    named = {"model": "openai/m", "api_base": url, "api_key": "none", "extra_headers": headers}
    return pytest.importorskip("litellm").completion(messages=MESSAGES, **named, **more)


def litellm_completion(url, headers):
    reply = litellm_call(url, headers)
    message = reply.choices[0].message
    assert reply._hidden_params["additional_headers"]["llm_provider-x-exaul-id"] == reply.id
    return message.content, message.model_dump().get("refusal"), reply.id


def litellm_stream(url, headers):
    """A refusal is lost."""
    parts = list(litellm_call(url, headers, stream=True))
    texts = (part.choices[0].delta.content or "" for part in parts if part.choices)
    return "".join(texts) or None, None, parts[0].id


NODE = """
const OpenAI = require("openai"), [method, url, headers, body] = process.argv.slice(1).map((x) => JSON.parse(x));
const completions = new OpenAI({ baseURL: url, apiKey: "none", defaultHeaders: headers }).chat.completions;
const print = (value) => console.log(JSON.stringify(value));
(async () => {
  const made = completions[method](body);
  const { id, choices } = await (method === "stream" ? made.finalChatCompletion() : made);
  print({ id, ...choices[0].message });
})().catch((error) => print({ error: String(error), status: error.status }));
"""


def in_node(method, url, headers, **more):
    """What a method of the client of OpenAI for Node returns."""
    importing = ["node", "-e", 'require("openai")']
    if not shutil.which("node") or subprocess.run(importing, capture_output=True).returncode:
        pytest.skip("node or its package openai is not installed")
    arguments = [json.dumps(each) for each in (method, url, headers, {"model": "m", "messages": MESSAGES} | more)]
    argv = ["node", "-e", NODE, *arguments]
    reply = json.loads(subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout)
    if "error" in reply:
        failed = ValueError(reply["error"])
        failed.status_code = reply.get("status")
        raise failed
    return reply


def node_stream(url, headers):
    reply = in_node("stream", url, headers)
    return reply["content"], reply.get("refusal"), reply["id"]


def node_parse(url, headers):
    """It parses JSON, and leaves its check by the schema to its user."""
    schema = {"name": "town", "strict": True, "schema": Town.model_json_schema()}
    reply = in_node("parse", url, headers, response_format={"type": "json_schema", "json_schema": schema})
    return reply["parsed"] and reply["parsed"]["town"], reply.get("refusal"), reply["id"]


PLAIN = [openai_create, openai_async, openai_stream, litellm_completion, node_stream]
LOSING = [langchain_stream, litellm_stream]  # a refusal
STRUCTURED = [openai_parse, langchain_structured, node_parse]
EXPECTED = {  # form: of plain clients, of those that lose refusals, and of structured ones
    "auto": ((IDK, None), (IDK, None), (None, IDK)),
    "text": ((IDK, None), (IDK, None), ValueError),
    "refusal": ((None, IDK), (None, None), (None, IDK)),
    "json": (('{"town": "?"}', None), ('{"town": "?"}', None), ("?", None)),
    "error": (400, 400, 400),
}
KINDS = {(each, GATEWAY): kind for kind, clients in enumerate((PLAIN, LOSING, STRUCTURED)) for each in clients}
KINDS |= {(each, PROXY): kind for kind, each in enumerate((openai_async, openai_stream, openai_parse))}
EACH = pytest.mark.parametrize(
    ("client", "address"),
    KINDS,
    indirect=["address"],
    ids=lambda each: "proxy" if each == PROXY else getattr(each, "__name__", "gateway"),
)


@pytest.fixture
def address(request):
    """The address of the gateway, or of LiteLLM's proxy in front of it."""
    return request.getfixturevalue("proxy") if request.param == PROXY else request.param


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    """LiteLLM's proxy with a cache, in front of the gateways, as docs/service.md recommends."""
    program = Path(sys.executable).with_name("litellm")
    if not program.exists():
        pytest.skip("litellm is not installed")
    parameters = {"model": "openai/m", "api_base": GATEWAY, "api_key": "none"}
    parameters["cache"] = {"no-cache": True, "no-store": True}
    config = {
        "model_list": [{"model_name": "m", "litellm_params": parameters}],
        "litellm_settings": {"cache": True, "cache_params": {"type": "local"}},
        "general_settings": {"master_key": MASTER_KEY, "forward_client_headers_to_llm_api": True},
        "router_settings": {"num_retries": 0},
    }
    folder = tmp_path_factory.mktemp("proxy")
    (folder / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
    argv = [program, "--config", folder / "config.yaml", "--host", "127.0.0.1", "--port", str(PORT + 1)]
    with (folder / "log").open("w") as log, subprocess.Popen(argv, stdout=log, stderr=log) as running:
        try:
            until(lambda: socket.socket().connect_ex(("127.0.0.1", PORT + 1)) == 0, 300)
            yield PROXY
        finally:
            running.terminate()


def rated(running, id):
    """The outcome of a user's feedback on an answer."""
    return json.loads(running.ask({"id": id, "thumb": "up"}, "/v1/feedback")[2])["reason"]


@EACH
def test_a_shown_answer_its_feedback_and_errors(stub, gate, client, address):
    """An error of the endpoint is tried three times, one of the gateway's own once, unless LiteLLM is between."""
    stub.rule = rule
    with gate(port=PORT) as running:
        answer, refusal, id = client(address, {})
        assert (answer, refusal) == (SECRET if client in STRUCTURED else TEXT, None)
        assert rated(running, id) == "counted"
        for reply, status, sentence in ((error(500), 500, "no: "), ({"choices": []}, 502, "not a chat completion")):
            stub.rule = lambda asked, before, reply=reply: reply
            stub.asked.clear()
            with pytest.raises(Exception, match=sentence) as failed:
                client(address, {})
            assert failed.value.status_code == status
            assert len(stub.asked) == (3 if address == PROXY or status == 500 else 1)


@pytest.mark.parametrize("form", EXPECTED)
@EACH
def test_a_withheld_answer(stub, gate, client, address, form):
    stub.rule = rule
    headers = {"x-exaul-withheld": form}
    with gate(ABSTAIN, port=PORT, withheld_json='{"town": "?"}') as running:
        expected = EXPECTED[form][KINDS[client, address]]
        if isinstance(expected, tuple):
            answer, refusal, id = client(address, headers)
            assert (answer, refusal) == expected
            assert rated(running, id) == "withheld"
        else:
            with pytest.raises(Exception, match=IDK if expected == 400 else "Town|JSON") as failed:
                client(address, headers)
            if expected == 400:
                assert failed.value.status_code == 400
            else:
                assert isinstance(failed.value, expected)
        assert len(stub.asked) == 1


def test_every_field_of_the_client_of_openai_is_allowed():
    params = pytest.importorskip("openai.types.chat.completion_create_params")
    known = params.CompletionCreateParamsBase.__annotations__.keys() | {"stream"}
    assert known <= set(FIELDS.split())


ABUSES = [
    {"n": 2},
    {"logprobs": False},
    {"stream": True, "logprobs": False},
    {"additional_drop_params": ["logprobs"]},
    {"drop_params": True, "top_k": 3},
    {"custom_llm_provider": "hosted_vllm"},
    {"extra_body": {"n": 2}},
    {"extra_headers": {"x-exaul-withheld": "show"}},
    {"model": "m,m"},
    {"metadata": {"guardrails": []}},
    {"cache": {"no-cache": False}},
]


def test_no_parameter_gets_an_undecided_text_through_litellm(gate, proxy, stub):
    stub.rule = rule
    how = {"headers": {"authorization": f"Bearer {MASTER_KEY}"}, "timeout": 30}
    with gate(ABSTAIN, port=PORT) as running, httpx2.Client(base_url=proxy, **how) as client:
        for fields in ABUSES:
            body = {"model": "m", "messages": MESSAGES}
            assert SECRET not in client.post("chat/completions", json=body | fields).text, fields
            before = running.questions()
            clean = client.post("chat/completions", json=body)
            assert (clean.status_code, running.questions()) == (200, before + 1)
            assert clean.json()["id"] == clean.headers["llm_provider-x-exaul-id"]
            assert IDK in clean.text
