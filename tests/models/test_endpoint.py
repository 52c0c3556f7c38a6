"""How replies are parsed and failed calls handled, and that no call is paid for twice."""

import asyncio
import json
import math

import pytest
from starlette.responses import JSONResponse, Response

from exaul import BadInput
from exaul.llm.calls import CallFailed, CallRefused, Calls, key_of
from exaul.llm.endpoint import Endpoint, price_of
from exaul.llm.flags import EndpointFlags
from exaul.llm.replies import Reply, reply_of
from tests.models.stub import completion


def request(text="hello", **more):
    return {"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0.0, "seed": 0} | more


def with_endpoint(stub, path, use=lambda endpoint: endpoint.ask(request()), remembers=False, **more):
    """Return the result of ``use(endpoint)``, and what the calls of the run took."""
    config = EndpointFlags(out="-", endpoint="http://-", model="m", **{"retries": 2, "timeout": 5.0} | more)

    async def run():
        calls = Calls(path / "calls.sqlite")
        try:
            endpoint = Endpoint(stub.url, "NO_KEY", calls, config, {"m": (1e6, 1e6)}, remembers)
            try:
                return await use(endpoint), calls
            finally:
                await endpoint.close()
                calls.took = calls.usage()
        finally:
            calls.close()

    return asyncio.run(run())


def read(body):
    """The reply of a body."""
    return reply_of(json.dumps(body).encode(), lambda text: text)


def test_a_score_is_of_the_answers_own_tokens():
    """Reasoning, surrounding white space and the end token do not count."""
    thought = [("<think>", -3.0), ("no", -3.0), ("</think>", -3.0), ("\n\n", -3.0)]
    tokens = [*thought, ("Pa", -0.2), ("ris", -0.4), ("", -9)]
    content = [{"token": token, "bytes": list(token.encode()), "logprob": x} for token, x in tokens]
    body = completion("<think>no</think>\n\nParis")
    body["choices"][0]["logprobs"] = {"content": content}
    found = read(body)
    assert (found.text, found.logprobs) == ("Paris", [-0.2, -0.4])
    assert (found.model, found.fingerprint, found.prompt_tokens, found.reply_tokens) == ("stub-1", "fp", 10, 2)


def test_a_letter_may_be_cut_between_tokens():
    word = "zł".encode()
    content = [{"token": "?", "bytes": [byte], "logprob": -0.5} for byte in word]
    body = completion("zł")
    body["choices"][0]["logprobs"] = {"content": content}
    assert read(body).logprobs == [-0.5] * len(word)


@pytest.mark.parametrize(
    ("content", "tokens", "expected"),
    [
        # thinking cut out by the server
        ("Paris", ["<think>", "hm", "</think>", "\n", "Par", "is", ""], ("Paris", 2)),
        ("Paris", ["<|channel|>", "final", "<|message|>", "Paris", "<|return|>"], ("Paris", 1)),
        ("The Seine", ["\u2581The", "\u2581Se", "ine"], ("The Seine", 3)),
        ("Paris", ["Lon", "don"], ("Paris", 0)),  # changed by the server
        ("<think>well, let me", ["<think>", "well,", " let", " me"], ("", 0)),  # cut before it had an answer
        ("", [], ("", 0)),
    ],
)
def test_tokens_that_are_not_those_of_the_text_say_nothing_of_it(content, tokens, expected):
    body = completion(content)
    each = [{"token": token, "bytes": None, "logprob": -n - 1.0} for n, token in enumerate(tokens)]
    body["choices"][0]["logprobs"] = {"content": each}
    found = read(body)
    assert (found.text, len(found.logprobs)) == expected
    if "is" in tokens:
        assert found.logprobs == [-5.0, -6.0]


@pytest.mark.parametrize("logprobs", [None, {}, {"content": None}])
def test_a_model_without_logprobs_has_none(logprobs):
    body = completion("Paris")
    body["choices"][0]["logprobs"] = logprobs
    assert read(body).logprobs == []
    del body["choices"][0]["logprobs"], body["usage"]
    assert read(body) == Reply("Paris", [], [], "stop", "stub-1", "fp", 0, 0)


def test_a_refusal_is_one():
    body = completion("", [])
    body["choices"][0]["message"] |= {"content": None, "refusal": "I must not"}
    assert read(body)[:4] == ("", [], [], "refusal")


def test_equal_requests_are_one_call_also_in_flight(stub, tmp_path):
    stub.delay = 0.05

    async def use(endpoint):
        together = await asyncio.gather(*(endpoint.ask(request()) for _ in range(10)))
        return [*together, await endpoint.ask(request())]

    replies, calls = with_endpoint(stub, tmp_path, use)
    assert len(stub.asked) == 1
    assert len(set(map(str, replies))) == 1
    assert calls.took["last run"] == {"calls": 1, "from before": 1, "tried again": 0}
    again, calls = with_endpoint(stub, tmp_path)
    assert again == replies[0]
    assert len(stub.asked) == 1
    assert calls.took["last run"] == {"calls": 0, "from before": 1, "tried again": 0}


def test_a_call_is_all_of_its_request():
    keys = {
        key_of(url, body)
        for url in ("a", "b")
        for body in (request(), request(seed=1), request("bye"), request(temperature=1.0))
    }
    assert len(keys) == 8


def after(count, response):
    """Replies so to the first tries."""
    return lambda body, before: response() if before < count else None


class Broken(Response):
    """A reply whose connection breaks in the middle."""

    async def __call__(self, scope, receive, send):
        headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"choices": [', "more_body": True})
        raise ConnectionResetError


FAILURES = {
    "429": lambda: JSONResponse({"error": "slow down"}, 429, {"retry-after": "0"}),
    "500": lambda: JSONResponse({"error": "oops"}, 500, {"retry-after": "0"}),
    "503": lambda: Response("busy", 503, {"retry-after": "0"}),
    "broken": Broken,
}


@pytest.mark.parametrize("kind", FAILURES)
def test_temporary_failures_are_retried(stub, tmp_path, kind, monkeypatch):
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    stub.rule = after(2, FAILURES[kind])
    found, calls = with_endpoint(stub, tmp_path)
    assert found.text == "Paris"
    assert len(stub.asked) == 3
    assert calls.took["last run"] == {"calls": 1, "from before": 0, "tried again": 1}
    assert [headers["x-stainless-retry-count"] for headers in stub.headers] == ["0", "1", "2"]
    stub.rule = after(100, FAILURES[kind])
    with pytest.raises(CallFailed, match="no connection" if kind == "broken" else f"status {kind}") as caught:
        with_endpoint(stub, tmp_path, lambda endpoint: endpoint.ask(request("other")))
    assert len(stub.asked) == 6
    assert caught.value.reply_text == {"429": "slow down", "500": "oops", "503": "busy"}.get(kind, "")


def test_the_key_goes_to_the_endpoint_alone(stub, tmp_path, monkeypatch):
    monkeypatch.setenv("NO_KEY", "sk-secret")
    with_endpoint(stub, tmp_path)
    assert stub.keys == ["Bearer sk-secret"]
    assert not any(b"sk-secret" in path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_refused_request_is_not_retried(stub, tmp_path, status):
    stub.rule = after(100, lambda: JSONResponse({"error": {"message": "no such model"}}, status))
    with pytest.raises(CallFailed, match=f"status {status}") as caught:
        with_endpoint(stub, tmp_path)
    assert len(stub.asked) == 1
    assert "no such model" in caught.value.reply_text
    assert isinstance(caught.value, CallRefused) == (status == 400)


@pytest.mark.parametrize(("remembers", "calls"), [(True, 1), (False, 2)])
def test_a_refusal_is_remembered_where_it_should_be(stub, tmp_path, remembers, calls):
    """In a dialogue, which would be another one if the endpoint thought better of it."""
    stub.rule = after(2, lambda: JSONResponse({"error": {"message": "too long"}}, 400))
    for _ in range(2):
        with pytest.raises(CallRefused) as caught:
            with_endpoint(stub, tmp_path, remembers=remembers)
        assert "too long" in caught.value.reply_text
    assert len(stub.asked) == calls
    stored = Calls(tmp_path / "calls.sqlite")
    assert stored.usage()["calls"] == stored.usage()["dollars"] == 0
    stored.close()


def test_without_usage_tokens_are_modelled(stub, tmp_path):
    """So that a budget ends it there, too."""
    stub.rule = lambda body, before: {k: v for k, v in completion("Paris").items() if k != "usage"}
    found, calls = with_endpoint(stub, tmp_path)
    assert found.prompt_tokens > 3
    assert found.reply_tokens == 2
    assert calls.spent == found.prompt_tokens + found.reply_tokens


def test_an_endpoint_that_is_slow_or_absent_is_reported(stub, tmp_path):
    stub.delay = 0.5
    with pytest.raises(CallFailed, match="no reply in time"):
        with_endpoint(stub, tmp_path, timeout=0.05, retries=0)
    stub.url = "http://127.0.0.1:9/v1"
    with pytest.raises(CallFailed, match="no connection"):
        with_endpoint(stub, tmp_path, retries=0)


@pytest.mark.parametrize("proxy", ["http://user:password@127.0.0.1:x", "ftp://password@h", "socks5://password@h"])
def test_a_proxy_that_is_none_is_one_sentence(stub, tmp_path, monkeypatch, proxy):
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(BadInput, match="proxy: the address in the environment") as failed:
        with_endpoint(stub, tmp_path)
    assert "password" not in str(failed.value)


def test_a_proxy_of_the_environment_is_used(stub, tmp_path, monkeypatch):
    """The stub, which is none, does not know the other host."""
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("http_proxy", stub.url.removesuffix("/v1"))
    stub.url = "http://endpoint.invalid/v1"
    with pytest.raises(CallFailed, match="status 404"):
        with_endpoint(stub, tmp_path)


def test_cookies_are_not_sent_back(stub, tmp_path):
    stub.rule = after(1, lambda: JSONResponse({"error": "busy"}, 503, {"set-cookie": "a=b; Path=/"}))
    with_endpoint(stub, tmp_path)
    assert len(stub.headers) == 2
    assert not any("cookie" in headers for headers in stub.headers)


def test_no_more_at_once_than_allowed(stub, tmp_path):
    stub.delay = 0.02

    async def use(endpoint):
        return await asyncio.gather(*(endpoint.ask(request(str(n))) for n in range(40)))

    with_endpoint(stub, tmp_path, use, concurrent=5)
    assert stub.most == 5


@pytest.mark.parametrize(("calls", "per_minute", "least"), [(6, 600, 0.45), (1, None, 1.0)])
def test_calls_are_paced_as_the_user_and_the_endpoint_say(stub, tmp_path, calls, per_minute, least):
    """Six calls at 600 a minute, of which the first may go at once; and one that is to be made a second later."""
    if per_minute is None:
        stub.rule = after(1, lambda: JSONResponse({}, 429, {"retry-after": "1"}))

    async def use(endpoint):
        start = asyncio.get_running_loop().time()
        await asyncio.gather(*(endpoint.ask(request(str(n))) for n in range(calls)))
        return asyncio.get_running_loop().time() - start

    waited, _ = with_endpoint(stub, tmp_path, use, per_minute=per_minute)
    assert waited >= least


def test_prices():
    assert all(0 < x < 100 for x in price_of("gpt-4o-mini"))
    assert all(map(math.isnan, price_of("my-own-model")))
