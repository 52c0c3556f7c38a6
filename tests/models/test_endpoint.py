"""Calls of an endpoint: what failed is tried again or one sentence, and no call is paid for twice."""

import asyncio
import gzip
import json
import math

import pytest
from starlette.responses import JSONResponse, Response

from exaul import BadInput
from exaul.commands.main import main
from exaul.llm.calls import CallFailed, CallRefused, Calls, key_of
from exaul.llm.endpoint import Endpoint, price_of
from exaul.llm.flags import EndpointFlags
from exaul.llm.replies import LARGEST_REPLY
from tests.models.stub import Stub, command_at, completion

KEY = "sk-very-secret"


def request(text="hello", **more):
    return {"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0.0, "seed": 0} | more


def with_endpoint(stub, path, use=lambda endpoint: endpoint.ask(request()), **more):
    """Return the result of ``use(endpoint)``, and what the calls of the run took."""
    config = EndpointFlags(out="-", endpoint="http://-", model="m", **{"retries": 2, "timeout": 5.0} | more)

    async def run():
        calls = Calls(path / "calls.sqlite")
        try:
            endpoint = Endpoint(stub.url, "NO_KEY", calls, config, {"m": (1e6, 1e6)}, False)
            try:
                return await use(endpoint), calls
            finally:
                await endpoint.close()
                calls.took = calls.usage()
        finally:
            calls.close()

    return asyncio.run(run())


def test_a_call_is_all_of_its_request():
    keys = {key_of(url, body) for url in "ab" for body in (request(), request(seed=1), request("bye"))}
    assert len(keys | {key_of("a", request(), 1)}) == 7


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


def error(status, message="no such model", **headers):
    return JSONResponse({"error": {"message": message}}, status, headers)


def packed(raw, coding="gzip"):
    return Response(raw, 200, {"content-encoding": coding})


PARIS = json.dumps(completion("Paris")).encode()
NO_COMPLETION = "unreadable reply", "it is not a chat completion", 1
ESCAPED = r"\x1b[31m\n\u2028."
FAILURES = [  # a response, the failure and what is told of it, and the number of calls if two more are allowed
    (lambda: error(429, "slow down", **{"retry-after": "0"}), "status 429", "slow down", 3),
    (lambda: Response("busy", 503, {"retry-after": "0", "set-cookie": "a=b; Path=/"}), "status 503", "busy", 3),
    (Broken, "no connection", "", 3),
    (lambda: error(400), "status 400", "no such model", 1),
    (lambda: error(401, "\x1b[31m\n\u2028."), "status 401", ESCAPED, 1),
    (lambda: error(404), "status 404", "no such model", 1),
    (lambda: Response("{}", 302, {"location": "http://h/\x1b[2J"}), "status 302", r"to http://h/\x1b[2J", 1),
    (lambda: Response("[" * 10**5, 418), "status 418", "[[[", 1),
    (lambda: Response("{", 418, {"content-type": "text/plain; charset=hex"}), "status 418", "{", 1),
    (lambda: JSONResponse({"error": {"message": [1]}}, 418), "status 418", '{"error":{"message":[1]}}', 1),
    (lambda: packed(b"not packed"), *NO_COMPLETION),
    (lambda: packed(gzip.compress(gzip.compress(PARIS)), "gzip, gzip"), *NO_COMPLETION),
    (lambda: packed(gzip.compress(b" " * (LARGEST_REPLY + 1), 9)), "unreadable reply", "more than 16 MiB", 1),
]


@pytest.mark.parametrize(("response", "failure", "text", "calls"), FAILURES)
def test_a_response_that_is_no_reply_is_one_sentence(stub, tmp_path, monkeypatch, response, failure, text, calls):
    """If it may be temporary, the call is tried again first, without a cookie of the response."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    stub.rule = after(100, response)
    with pytest.raises(CallFailed) as caught:
        with_endpoint(stub, tmp_path)
    assert str(caught.value) == failure
    assert text in caught.value.reply_text
    assert caught.value.reply_text.isprintable()
    assert isinstance(caught.value, CallRefused) == (failure == "status 400")
    assert [headers["x-stainless-retry-count"] for headers in stub.headers] == ["0", "1", "2"][:calls]
    assert not any("cookie" in headers for headers in stub.headers)
    if calls == 3:  # and then it succeeds
        stub.rule = after(5, response)
        found, run = with_endpoint(stub, tmp_path)
        assert (found.text, len(stub.asked)) == ("Paris", 6)
        assert run.took["last run"] == {"calls": 1, "from before": 0}


def test_without_usage_tokens_are_modelled(stub, tmp_path):
    """So that a budget ends it there, too."""
    stub.rule = lambda body, before: {k: v for k, v in completion("Paris").items() if k != "usage"}
    found, calls = with_endpoint(stub, tmp_path)
    assert found.prompt_tokens > 3
    assert found.reply_tokens == 2
    assert calls.spent == found.prompt_tokens + found.reply_tokens


def test_an_endpoint_that_is_slow_is_reported(stub, tmp_path):
    stub.delay = 0.5
    with pytest.raises(CallFailed, match="no reply in time"):
        with_endpoint(stub, tmp_path, timeout=0.05, retries=0)


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


@pytest.mark.parametrize(("calls", "per_minute", "least"), [(4, 1200, 0.13), (1, None, 0.3)])
def test_calls_are_paced_as_the_user_and_the_endpoint_say(stub, tmp_path, calls, per_minute, least):
    """Four calls at 1,200 a minute, of which the first may go at once; and one to be made three tenths later."""
    if per_minute is None:
        stub.rule = after(1, lambda: JSONResponse({}, 429, {"retry-after": "0.3"}))

    async def use(endpoint):
        start = asyncio.get_running_loop().time()
        await asyncio.gather(*(endpoint.ask(request(str(n))) for n in range(calls)))
        return asyncio.get_running_loop().time() - start

    waited, _ = with_endpoint(stub, tmp_path, use, per_minute=per_minute)
    assert waited >= least


@pytest.mark.parametrize("more", [{}, {"per_minute": 1}])
def test_closing_ends_every_wait_and_calls_no_more(stub, tmp_path, more):
    """The wait that an endpoint requests, and that for the next call of a minute."""
    stub.rule = lambda body, before: JSONResponse({"error": "slow down"}, 429, {"retry-after": "45"})

    async def use(endpoint):
        calls = [asyncio.create_task(endpoint.ask(request(str(n)))) for n in range(1 + len(more))]
        await asyncio.sleep(0.1)
        start = asyncio.get_running_loop().time()
        await endpoint.close()
        assert asyncio.get_running_loop().time() - start < 5
        return await asyncio.gather(*calls, return_exceptions=True)

    results, _ = with_endpoint(stub, tmp_path, use, **more)
    assert len(stub.asked) == 1
    assert all(isinstance(result, asyncio.CancelledError) for result in results)


def test_the_key_is_removed_from_all_that_an_endpoint_says(stub, tmp_path, monkeypatch, sums, capsys):
    """The answer keeps its logprobs."""
    monkeypatch.setenv("NO_KEY", KEY)
    said = completion(f"it is {KEY} !", finish=KEY, top=[{"token": KEY, "logprob": -1.0}])
    stub.rule = lambda body, before: said | {"model": KEY, "system_fingerprint": KEY}
    found, _ = with_endpoint(stub, tmp_path)
    assert found[:1] + found[3:6] == ("it is [key] !", "[key]", "[key]", "[key]")
    assert len(found.logprobs) == 4
    argv = command_at(stub.url, tmp_path / "out", "collect", str(sums), "--key-variable", "NO_KEY")
    main(argv)
    stub.rule = lambda body, before: JSONResponse({"error": f"no such key: {KEY}"}, 401, {"location": KEY})
    assert main([*argv, "--judge", "llm", "--out", str(tmp_path / "other")]) == 2
    printed = capsys.readouterr()
    assert "no such key: [key]" in printed.err
    assert KEY not in printed.out + printed.err
    assert len(list((tmp_path / "out").iterdir())) > 3
    assert not any(KEY.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.parametrize("key", [f"{KEY}\n", "ключ-длинный"])
def test_a_key_that_no_header_can_hold_is_one_sentence(monkeypatch, tmp_path, key):
    monkeypatch.setenv("NO_KEY", key)
    with pytest.raises(BadInput, match="NO_KEY: the key has a line break or another") as caught:
        with_endpoint(Stub(), tmp_path, None)
    assert KEY not in str(caught.value)


def test_an_unreadable_reply_is_paid_for(stub, tmp_path):
    """With as many tokens as the request allows, so that a budget ends such calls, too."""
    stub.rule = lambda body, before: JSONResponse({"choices": [], "usage": {"prompt_tokens": -(10**6)}})

    async def use(endpoint):
        with pytest.raises(CallFailed, match="unreadable reply"):
            await endpoint.ask(request(max_tokens=50))

    _, calls = with_endpoint(stub, tmp_path, use)
    assert (calls.took["calls"], calls.took["reply tokens"]) == (1, 50)
    assert calls.spent == calls.took["dollars"] == calls.took["prompt tokens"] + 50 >= 60
    again = Calls(tmp_path / "calls.sqlite")
    assert (again.spent, again.usage()["calls"]) == (calls.spent, 1)
    again.close()


def test_prices():
    assert all(0 < x < 100 for x in price_of("gpt-4o-mini"))
    assert all(map(math.isnan, price_of("my-own-model")))
