"""The gateway before an endpoint that replies well, fails, or is slow: what clients get, and what is decided."""

import asyncio
import json
import math
import re
import threading
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import product
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse

from exaul.commands.main import main
from exaul.engine.checks import BadInput
from exaul.llm.replies import LARGEST_REPLY
from exaul.serving.http import completions
from exaul.serving.http import gateway as gateway_module
from exaul.serving.http import upstream as upstream_module
from exaul.serving.http.application import app
from exaul.serving.http.gateway import add_gateway, ask_model
from exaul.serving.http.guard import add_request_id
from exaul.serving.http.settings import GatewayFlags
from tests.models.stub import by_pattern, completion
from tests.models.test_endpoint import Broken
from tests.serving.http.apps import ABSTAIN, ANSWER, KEY, QUESTION, SECRET, Exchange, error, events, until

IDK = "I don't know."


@pytest.mark.parametrize("stream", [False, True])
def test_a_withheld_answer_is_nowhere(town, gate, stream, caplog, capfd):
    with gate(ABSTAIN, abstention="No idea.") as client:
        fields = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        status, headers, raw = client.ask(QUESTION | fields | {"logprobs": True})
        assert status == 200
        assert "No idea." in raw
        for text in (SECRET, "Secret", "ville", "It is", "so "):
            assert text not in raw
            assert text not in str(headers)
        first, *more = events(raw) if stream else [json.loads(raw)]
        decision = first.pop("exaul")
        assert {chunk["id"] for chunk in (first, *more)} == {decision["id"]}
        if not stream:
            message = {"role": "assistant", "content": "No idea.", "refusal": None}
            choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
            usage = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
            about = {"id": decision["id"], "object": "chat.completion", "created": 0, "model": "stub-1"}
            assert first == about | {"choices": [choice], "usage": usage}
        assert re.fullmatch("chatcmpl-[0-9a-f]{32}", decision["id"])
        assert decision.keys() == {"id", "ref", "answer", "score", "probability", "audit"}
        assert (decision["answer"], decision["probability"], decision["ref"]) == (False, 0.0, None)
        assert client.service.feedback(decision["id"], "down") == "withheld"
        assert client.questions() == 1
        (latest,) = client.service.overview()["latest"]
        assert (latest["question"], latest["text"]) == ("Which town?", f"It is {SECRET}")  # the page can show it
    assert SECRET not in caplog.text + str(capfd.readouterr())


@pytest.mark.parametrize("shadow", [False, True])
def test_a_shown_answer_passes_untouched(town, gate, shadow):
    """Except for what is no JSON, which becomes null. In shadow mode all are shown, and feedback is kept."""
    town.body |= {"numbers": [math.nan, math.inf, 1.5]}
    town.rule = lambda asked, before: Response(json.dumps(town.body).replace("Infinity", "1e999"))
    asked = QUESTION | {"top_k": 3, "nested": {"a": [1.5, None, "\ud800"]}, "temperature": 0.25}
    learner = ABSTAIN if shadow else ANSWER
    with gate(learner, shadow=shadow, pass_fields=("top_k", "nested"), audit=1.0) as client:
        for wanted in (True, False):
            reply = client.json(**asked, logprobs=wanted, top_logprobs=2)
            decision = reply.pop("exaul")
            expected = json.loads(json.dumps(town.body)) | {"id": decision["id"], "numbers": [None, None, 1.5]}
            if not wanted:
                expected["choices"][0]["logprobs"] = None
            assert reply == expected
            assert town.asked.pop() == asked | {"logprobs": True} | ({"top_logprobs": 2} if wanted else {})
            assert (decision["answer"], decision["probability"], decision["audit"]) == (True, 1.0, True)
            assert decision.get("shadow", False) == shadow
            assert client.service.feedback(decision["id"], "down") == "counted"
            score = client.service.overview()["latest"][0]["score"]  # of logprobs -.1, -.2, -.3
            assert score == decision["score"] == pytest.approx(math.exp(-0.2), abs=1e-12)
        figures = client.service.figures("")
        counts = [figures.get(name) for name in ("questions", "shadow_answers", "shadow_observed")]
        assert counts == ([0, 2, 2] if shadow else [2, None, None])


def test_a_shown_stream(town, gate):
    with gate() as client:
        for wanted, usage in product((False, True), repeat=2):
            fields = {"stream": True, "logprobs": wanted, "stream_options": {"include_usage": usage}}
            status, headers, raw = client.ask(QUESTION | fields)
            assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
            assert town.asked.pop() == QUESTION | {"logprobs": True}  # asked for the whole answer at once
            first, content, last, *more = events(raw)
            for chunk in (first, content, last):
                assert (chunk["object"], chunk["thoughts"]) == ("chat.completion.chunk", f"surely {SECRET}")
                assert ("usage" in chunk) == usage
            assert first["exaul"]["answer"] is True
            assert "exaul" not in content | last
            assert first["choices"][0]["delta"] == {"role": "assistant"}
            expected = {"content": f"It is {SECRET}", "reasoning_content": f"so {SECRET}"}
            assert content["choices"][0]["delta"] == expected
            assert (content["choices"][0]["logprobs"] is not None) == wanted
            ends = [chunk["choices"][0]["finish_reason"] for chunk in (first, content, last)]
            assert ends == [None, None, "stop"]
            assert more == ([content | {"choices": [], "usage": town.body["usage"]}] if usage else [])


def test_a_client_makes_no_key(town, gate):
    """It would get a new budget of wrong answers with each (H5); only a named key can be chosen."""
    names = ["", "billing", "zażółć"]
    with gate("aci-rank") as client:
        assert client.refusal(x_exaul_key="another") == (400, "x-exaul-key")
        client.json()
        assert client.service.all_keys() == [""]
    with gate("aci-rank", key="header", keys={name: {} for name in names}) as client:
        for key in names:
            status, headers, _ = client.ask(x_exaul_key=key.encode())
            assert (status, headers["x-exaul-key"].encode("latin-1").decode()) == (200, key)
        for key in (b"another", b"a" * 257, b"\xff"):
            assert client.refusal(x_exaul_key=key) == (400, "x-exaul-key")
        assert client.service.all_keys() == names
    model = QUESTION["model"]
    with gate("aci-rank", key="model", models=(model,)) as client:
        assert client.ask()[1]["x-exaul-key"] == model
        assert client.service.all_keys() == [*names, model]


UNDECIDED = {  # the reason, and perhaps more words: the message of the reply
    "tool_calls": {"tool_calls": [{"id": "c", "type": "function", "function": {"name": SECRET}}]},
    "tool_calls with text": {"content": "let me see", "tool_calls": [{"id": "c"}, {"id": "d"}]},
    "tool_calls of old": {"function_call": {"name": "f"}},
    "audio": {"audio": {"id": "a", "data": "AAAA"}},
    "parts": {"content": [{"type": "text", "text": SECRET}]},
    "thoughts": {"reasoning_content": SECRET},
    "thoughts without an end": {"content": f"<think>It is {SECRET}, but"},
    "thoughts alone": {"content": f"It is {SECRET}</think>"},
    "no_text": {},
    "no_text but space": {"content": " \n"},
    "no_text but a refusal": {"refusal": "I cannot"},
}


@pytest.mark.parametrize("rules", [{}, {"undecided": "answer", "tools": "abstain"}, {"undecided": "abstain"}])
def test_what_is_no_text_is_not_decided(stub, gate, rules):
    body = completion("x")
    stub.rule = lambda asked, before: body
    with gate(ABSTAIN, key="header", keys={"agent": {}}, **rules) as client:
        for (name, fields), stream in product(UNDECIDED.items(), (False, True)):
            message = body["choices"][0]["message"] = {"role": "assistant", "content": None} | fields
            reason = name.split(" ")[0]
            metric = f'exaul_undecided_replies_total{{key="agent",reason="{reason}"}}'
            before = client.metric(metric) or 0
            status, _, raw = client.ask(QUESTION | {"stream": stream}, x_exaul_key="agent")
            assert client.metric(metric) == before + 1
            expected = {"undecided": "error", "tools": "answer"} | rules
            rule = expected["tools" if reason == "tool_calls" else "undecided"]
            assert status == (400 if rule == "error" else 200)
            reply = json.loads(raw) if not stream or rule == "error" else events(raw)[0]
            exaul = {"decided": False, "answer": rule == "answer", "reason": reason, "ref": None}
            assert reply["exaul"].items() >= exaul.items()
            if rule == "error":
                assert (reply["error"]["code"], f"({reason})" in reply["error"]["message"]) == ("undecided", True)
            if rule != "answer":
                assert SECRET not in raw
                assert (IDK in raw) == (rule == "abstain")
            elif not stream:
                assert reply["choices"][0]["message"] == message
            elif name == "tool_calls with text":
                calls = [{"index": 0, "id": "c"}, {"index": 1, "id": "d"}]
                assert events(raw)[1]["choices"][0]["delta"] == {"content": "let me see", "tool_calls": calls}
        assert client.questions() == 0
        _, _, raw = client.ask(b"", "/v1/overview", "GET")
        assert json.loads(raw)["unscored"] == 0  # what has no text needs no score


NONE, OTHER, ABOVE = "no valid log-probabilities", "not match its text", "of which one is above 0 or no number"
UNSCORED = {  # changes of a choice, and the reason in the line
    "none": (NONE, lambda choice: choice.pop("logprobs")),
    "another text": (OTHER, lambda choice: choice.update(logprobs=completion("Paris")["choices"][0]["logprobs"])),
    "NaN": (ABOVE, lambda choice: choice["logprobs"]["content"][1].update(logprob=math.nan)),
    "above 0": (ABOVE, lambda choice: choice["logprobs"]["content"][1].update(logprob=0.1)),
    "no bytes": (NONE, lambda choice: choice["logprobs"]["content"][1].update(bytes=[300])),
    "no token": (NONE, lambda choice: choice["logprobs"]["content"].append(3)),
    "a list": (NONE, lambda choice: choice.update(logprobs=[1])),
}


@pytest.mark.parametrize(
    ("rule", "shadow"), [("abstain", False), ("answer", False), ("error", False), ("error", True)]
)
def test_what_is_done_without_a_score(stub, gate, rule, shadow, caplog):
    def unscored(asked, before):
        body = completion(f"It is {SECRET}")
        UNSCORED[asked["user"]][1](body["choices"][0])
        return Response(json.dumps(body), media_type="application/json")

    caplog.handler.addFilter(add_request_id)  # as that of exaul serve
    stub.rule, shown = unscored, shadow or rule == "answer"
    with gate(without_score=rule, shadow=shadow) as client:
        for name, (fault, _) in UNSCORED.items():
            status, headers, raw = client.ask(QUESTION | {"logprobs": True, "user": name})
            reply = json.loads(raw)
            known = {"reason": "no_score", "ref": None, "id": headers["x-exaul-id"]}
            line = caplog.messages[-1]
            assert line.startswith("an answer has no score: the reply has ")
            assert line.endswith(f" {fault} ({known['id']})")
            assert caplog.records[-1].request_id == headers["x-request-id"]
            assert reply["exaul"] == {"decided": False, "answer": shown} | known
            assert (headers["x-exaul-answer"], "x-exaul-score" in headers) == (json.dumps(shown), False)
            assert (SECRET in raw) == shown
            if rule == "error" and not shadow:
                assert (status, reply["error"]["code"], headers["x-should-retry"]) == (502, "undecided", "false")
            else:
                content = f"It is {SECRET}" if shown else IDK
                assert (status, reply["choices"][0]["message"]["content"]) == (200, content)
        assert client.questions() == 0
        metric = 'exaul_undecided_replies_total{key="",reason="no_score"}'
        assert client.metric(metric) == len(UNSCORED)
        _, headers, raw = client.ask(b"", "/v1/overview", "GET")
        counted = {"reason": "no_score", "replies": len(UNSCORED), "rule": "answer" if shown else rule}
        overview = json.loads(raw)
        assert overview["undecided"] == [counted]
        assert (overview["unscored"], overview["scored"]) == (len(UNSCORED), 0)
        assert overview["configuration"]["shadow"] == shadow
        client.ask(QUESTION | {"logprobs": True, "user": "none"})
        assert client.ask(b"", "/v1/overview", "GET", if_none_match=headers["etag"])[0] == 200  # it has changed


async def failing(request, reply, ask):
    match request.get("user"):
        case "slow":
            await asyncio.sleep(10)
        case "raises":
            raise ValueError(SECRET)
    return 1.5


async def scoreless(request, reply, ask):
    return math.nan


def test_a_scorer_that_fails(town, gate, caplog):
    with gate(score=f"{__name__}:failing", upstream_timeout=0.3) as client:
        reasons = [client.json(user=user)["exaul"]["reason"] for user in ("slow", "raises", "above")]
        assert reasons == ["score_timeout", "score_failed", "score_failed"]
        assert client.metric('exaul_undecided_replies_total{key="",reason="score_failed"}') == 2
        assert client.metric('exaul_upstream_failures_total{call="score",status="504"}') == 1
        assert "an answer has no score: it took 0.3 s (--upstream-timeout) (" in caplog.messages[0]
        assert client.questions() == 0
    assert SECRET not in caplog.text


@pytest.mark.parametrize("status", [400, 500])
def test_a_scoring_call_that_fails_is_told_counted_and_timed(stub, gate, caplog, status):
    stub.rule = by_pattern({"How likely is it": error(status)})
    with gate(score="verbal", score_model="judge") as client:
        assert client.json()["exaul"]["reason"] == "score_failed"
        assert client.metric(f'exaul_upstream_failures_total{{call="score",status="{status}"}}') == 1
        timed = (f'exaul_upstream_seconds_count{{call="{call}"}}' for call in ("answer", "score"))
        assert [*map(client.metric, timed)] == [1, 1]
    *calls, line = caplog.messages
    assert calls == [f"model judge: the upstream replied with status 500 ({stub.url})"] * (status == 500)
    assert f"no score: a call for it failed: the upstream replied with status {status} (chatcmpl-" in line
    caplog.clear()
    service = mock.Mock(log_scores=np.empty(0), shadow=False)
    asyncio.run(ask_model(GatewayFlags(score="verbal", upstream=stub.url), service))
    said = "--score verbal: stub-1 answered a first question, but its answer could not be scored (the upstream"
    assert f"{said} replied with status {status}); such answers are withheld" in caplog.text
    assert KEY not in caplog.text


UNCLEAR = {  # what the reply of the judge lacks, by score
    "verbal": "a number from 1 to 100, or 0",
    "p-true": "a yes or no with log-probabilities",
    "agree": "a plain list of numbers",
    "entail": "a yes or no",
}


def test_a_line_says_what_the_reply_of_a_judge_lacks(stub, gate, caplog):
    """Not the reply: it may quote the answer."""
    stub.rule = lambda asked, before: completion(f"Surely {SECRET}" if asked["model"] == "judge" else "Paris")
    for name, sought in UNCLEAR.items():
        with gate(score=name, score_model="judge", samples=2) as client:
            assert client.json()["exaul"]["reason"] == "no_score"
        line = f"an answer has no score: the reply of model judge, which --score asked, lacks {sought} (chatcmpl-"
        assert caplog.messages[-1].startswith(line)
    with gate(score=f"{__name__}:scoreless") as client:
        client.json()
    assert caplog.messages[-1].startswith("an answer has no score: the program of --score returned NaN (")
    assert SECRET not in caplog.text


def test_a_scorer_asks_the_endpoint(stub, gate):
    """The answer is as the client wants it; the further calls have the same credentials."""
    replies = {("m", 0): "Paris", ("m", 1.0): "Rome"}  # those of the judge are numbers of answers
    stub.rule = lambda asked, before: completion(replies.get((asked["model"], asked.get("temperature")), "1, 3"))
    with gate(score="agree", score_model="judge", samples=4) as client:
        fields = {"seed": 3, "temperature": 0, "top_logprobs": 2}
        status, headers, raw = client.ask(QUESTION | fields, authorization="Bearer \xe9")
    reply = json.loads(raw)
    assert reply["choices"][0]["message"]["content"] == "Paris"
    assert (status, reply["exaul"]["score"], headers["x-exaul-score"]) == (200, 0.5, "0.5")
    first, *samples, judged = stub.asked
    assert first == QUESTION | {"seed": 3, "temperature": 0}
    assert samples == [QUESTION | {"temperature": 1.0}] * 4
    assert re.search("means? the same", str(judged))
    assert set(stub.keys) == {"Bearer \xe9"}


FIRST_QUESTIONS = [  # flags, the reply, and a part of the line
    ({}, completion("Paris"), "to stub-1: answered, with a score of 0.9048 (25% of the log's scores are"),
    ({"score": f"{__name__}:failing"}, completion("Paris"), "could not be scored (score: 1.5 found; it must be"),
    ({"models": ("other",)}, completion("Paris", [9]), "other has none: the reply has log-probabilities of which"),
    ({"score": "verbal"}, completion("Very"), "stub-1 has none: asked for it, a model replied 'Very'; such"),
    ({"score": "p-true"}, completion("yes"), "has none: asked for it, a model replied 'yes' without log-prob"),
    ({"score": f"{__name__}:scoreless"}, completion("Paris"), "an answer of stub-1 has none; such answers are"),
    ({"upstream": "http://127.0.0.1:9/v1"}, None, "http://127.0.0.1:9/v1/models named no model (the"),
    ({"upstream": "http://127.0.0.1:9/v1", "models": ("m",)}, None, "9/v1 failed (the upstream did not reply"),
    ({}, error(401), "gateway's key); is the model running, are --upstream"),
    ({"upstream": "URL/x"}, None, "GET URL/x/models named no model (the upstream replied with status 404), so no"),
    ({"models": ("m",)}, None, "a first question to URL failed ("),  # in time
]


@pytest.mark.parametrize(("flags", "reply", "line"), FIRST_QUESTIONS)
def test_a_model_is_asked_at_the_start(stub, monkeypatch, caplog, flags, reply, line):
    """One line says the score of its answer, or why there is none."""
    monkeypatch.setattr(gateway_module, "PROBE_SECONDS", 0.3 if reply is None else 20)
    stub.rule = lambda asked, before: reply or StreamingResponse(drip())
    upstream = flags.get("upstream", "URL").replace("URL", stub.url)
    service = mock.Mock(log_scores=np.array([0.5, 1, 1, 1]), shadow=False)
    asyncio.run(ask_model(GatewayFlags(**flags | {"upstream": upstream}), service))
    (said,) = caplog.messages
    assert line.replace("URL", stub.url) in said


def test_a_server_that_listens_asks_its_model_and_says_if_the_score_is_another(
    stub, gate, tmp_path, monkeypatch, caplog, capsys
):
    """Another than that of earlier decisions: a start alone notes none."""

    async def serve(server):
        assert stub.asked == []
        server._on_started()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
        server.started = stub.asked != []
        stub.asked.clear()

    run = "exaul.serving.http.server.BoundedServer.run"
    monkeypatch.setattr(run, lambda server, sockets: asyncio.run(serve(server)))
    log = tmp_path / "log.csv"
    log.write_text("score_p_true,error\n0.9,0\n")
    argv = ["serve", "--state", str(tmp_path / "state.sqlite"), "--port", "0", "--shadow", "--upstream", stub.url]
    with gate(learner="aci-rank") as client:
        client.json()
    stub.asked.clear()
    assert main([*argv, "--score", "verbal"]) == 0
    assert "such answers are shown (shadow mode); another --score may" in caplog.messages[-2]
    assert main([*argv, "--score", "p-true"]) == 0
    assert main([*argv, "--score", "exact", "--warm-start", str(log), "--log-score", "score_p_true"]) == 0
    assert f"upstream = {stub.url}, score = exact at http" in capsys.readouterr().out
    assert "--score was logprob so far, and is exact now: go back" in caplog.text
    assert "the scores of the log are score_p_true, and those of the gateway exact: if" in caplog.text
    warned, of_log = "the scores of the log are", ["--log-score", "score_p_true", "--warm-start", str(log)]
    caplog.clear()
    assert main([*argv, "--score", "logprob", *of_log]) == 0  # the score of its decisions
    assert warned not in caplog.text
    begun = ["--score", "score_p_true", "--warm-start", str(log)]
    assert main(["journal", "start", argv[2], "--key", "", *begun]) == 0
    said = "the scores of this log are score_p_true, and those of the gateway so far logprob: start"
    assert said in capsys.readouterr().out
    assert main([*argv, *of_log]) == 0  # the key has decided nothing since it began anew
    assert warned in caplog.text
    caplog.clear()
    with gate(learner="aci-rank") as client:
        client.json()
    stub.asked.clear()
    assert main([*argv, *of_log]) == 0
    assert warned not in caplog.text
    argv[2] = str(tmp_path / "new.sqlite")
    assert main([*argv, *of_log]) == 0
    assert warned in caplog.text
    assert caplog.messages[-2].endswith(": answered, with a score of 0.9048 (100% of the log's scores are lower)")


async def drip():
    while True:
        yield b" "
        await asyncio.sleep(0.02)


DEEP = json.dumps(completion("a"))[:-1] + ',"a":' + "[" * 3000 + "]" * 3000 + "}"
ONE = completion(f"It is {SECRET}")
FAILURES = {  # name: reply, status, part of the message
    **{str(status): (error(status), status, "no: [key]") for status in (400, 500)},
    "403": (error(403), 502, "refused the gateway's key"),
    "429": (error(429, **{"retry-after": "7"}), 429, "no: [key]"),
    "a time that no header has": (error(429, **{"retry-after": "\xe2\x86\x92"}), 429, "no: [key]"),
    "503": (error(503, **{"retry-after": "2"}), 503, "no: [key]"),
    "html": (Response(f"<html>{KEY}</html>", 500, media_type="text/html"), 500, "status 500"),
    "another form": (JSONResponse({"error": f"no: {KEY}"}, 400), 400, "no: [key]"),
    "a list": (JSONResponse([KEY], 400), 400, "status 400"),
    "redirect": (RedirectResponse(f"http://127.0.0.1:1/?{KEY}", 307), 502, "status 307"),
    "no JSON": (Response("{", media_type="application/json"), 502, "not JSON"),
    "deep and right": (Response(DEEP), 502, "not JSON"),
    "error with 200": (JSONResponse({"error": {"message": f"no: {KEY}"}}), 502, "no: [key]"),
    "two choices": (JSONResponse(ONE | {"choices": ONE["choices"] * 2}), 502, "not a chat completion"),
    "no message": (JSONResponse({"choices": [{"text": "a"}]}), 502, "not a chat completion"),
    "content 3": (JSONResponse({"choices": [{"message": {"content": 3}}]}), 502, "not a chat completion"),
    "null": (Response("null"), 502, "not a chat completion"),
    "huge": (Response(b" " * (LARGEST_REPLY + 1)), 502, "more than 16 MiB"),
    "broken": (Broken(), 502, "no connection"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_of_the_endpoint(undecided, name, caplog, capfd):
    reply, expected, sentence = FAILURES[name]
    endpoint, client = undecided
    endpoint.rule = lambda asked, before: reply
    status, headers, raw = client.ask(QUESTION | {"stream": True}, authorization="Bearer client")
    assert (status, headers["content-type"]) == (expected, "application/json")
    body = json.loads(raw)["error"]
    assert set(body) == {"message", "type", "param", "code"}
    assert sentence in body["message"]
    if "no: [key]" in sentence and name.isdigit():
        assert (body["type"], body["param"], body["code"]) == ("some_error", "model", "some_code")
    assert headers.get("retry-after") == {"429": "7", "503": "2"}.get(name)
    own = expected == 502  # no status of the endpoint
    assert headers.get("x-should-retry") == ("false" if own else None)
    assert len(body["message"]) <= 200
    assert f"({endpoint.url})" in caplog.text or not own  # for the operator alone
    assert [word for word in (KEY, SECRET, endpoint.url) if word in raw] == []
    assert len(endpoint.asked) == 1  # no retries
    assert endpoint.keys == [f"Bearer {KEY}"]
    assert KEY not in caplog.text + str(capfd.readouterr())


def test_a_key_that_an_endpoint_repeats_with_escapes(stub, gate, monkeypatch):
    monkeypatch.setenv("UPSTREAM_KEY", "sk-a/b+c&d9")
    bodies = {200: completion("no KEY"), 400: {"error": {"message": "no KEY"}}}
    with gate(upstream_key_variable="UPSTREAM_KEY", without_score="answer") as client:
        for status, spelling in product(bodies, (r"sk-a/b+c&d9", r"sk-a\/b\u002Bc\u0026d9")):
            text = json.dumps(bodies[status]).replace("KEY", spelling)
            stub.rule = lambda asked, before, reply=(text, status): Response(*reply)
            replied, _, raw = client.ask(QUESTION)
            assert replied == status
            assert "no [key]" in str(json.loads(raw))
            assert "sk-a" not in str(json.loads(raw))


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats() | st.text(max_size=3) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(data=st.data())
@settings(max_examples=20)
def test_any_reply(endpoints, withholder, data):
    """Anywhere in a completion is anything: the reply is valid or an error, and leaks nothing that is withheld."""
    body = part = completion(f"It is {SECRET}")
    while True:
        name = data.draw(st.sampled_from(list(part) if isinstance(part, dict) else list(range(len(part)))))
        if not isinstance(part[name], (dict, list)) or not part[name] or data.draw(st.integers(0, 3)) == 0:
            break
        part = part[name]
    part[name] = data.draw(ANY)
    endpoints[0].renew().rule = lambda asked, before: Response(json.dumps(body), media_type="application/json")
    stream = data.draw(st.booleans())
    status, _, raw = withholder.ask(QUESTION | {"stream": stream, "stream_options": {"include_usage": True}})
    assert status in (200, 400, 502)
    if status != 200:
        assert json.loads(raw)["error"]["message"]
        assert SECRET not in raw
        return
    replies = events(raw) if stream else [json.loads(raw, parse_constant=pytest.fail)]
    decision = replies[0]["exaul"]
    assert decision["answer"] == (IDK not in raw)
    if not decision["answer"]:
        assert SECRET not in raw


def test_an_endpoint_that_drips(stub, gate):
    stub.rule = lambda asked, before: StreamingResponse(drip())
    with gate(upstream_timeout=0.3) as client:
        status, _, raw = client.ask()
        assert (status, "the upstream did not reply: no reply in time" in raw) == (504, True)
        assert client.questions() == 0


OF_CLIENTS = {"cookie": "a=b", "te": "trailers", "proxy_authorization": "p", "x_forwarded_for": "h", "expect": ""}
OF_CLIENTS |= {"x_api_key": "k", "range": "bytes=0-1", "openai_organization": "org"}
OF_HTTP = {"host", "connection", "accept", "accept-encoding", "user-agent", "content-length", "content-type"}


def test_credentials(stub, gate, monkeypatch):
    """Neither cookies nor other headers pass; the client's credentials pass only where they are the endpoint's."""
    token, other = "decide-token-0123456789", "other-token-0123456789"
    monkeypatch.setenv("TOKENS", f"decide {token}\nread,feedback {other}")
    monkeypatch.setenv("UPSTREAM_KEY", KEY)
    of_client = {"authorization": f"Bearer {token}", "openai-organization": "org"}
    of_gateway = {"authorization": f"Bearer {KEY}"}
    for tokens, variable, passed in (
        (None, None, of_client),
        (None, "UPSTREAM_KEY", of_gateway),
        ("env:TOKENS", None, {}),
        ("env:TOKENS", "UPSTREAM_KEY", of_gateway),
    ):
        with gate(tokens=tokens, upstream_key_variable=variable) as client:
            for asked in ((QUESTION, "/v1/chat/completions", "POST"), (b"", "/v1/models", "GET")):
                assert client.ask(*asked, authorization=f"Bearer {token}", **OF_CLIENTS)[0] == 200
                sent = stub.headers.pop()
                assert {name: value for name, value in sent.items() if name not in OF_HTTP} == passed
                assert token not in str(sent) or passed == of_client
                if tokens:
                    assert client.ask(*asked)[0] == 401
                    assert client.ask(*asked, authorization=f"Bearer {other}")[0] == 403
                    assert not stub.headers


def test_models(stub, gate):
    with gate() as client:
        status, _, raw = client.ask(b"", "/v1/models", "GET")
        assert (status, json.loads(raw)["data"]) == (200, [{"id": "stub-1", "object": "model"}])
        for name in ("a/b c", "stub%2F1"):
            status, _, raw = client.ask(b"", f"/v1/models/{urllib.parse.quote(name)}", "GET")
            assert (status, json.loads(raw)) == (200, {"id": name, "object": "model"})
        for name in ("..", "a/../../chat", "%2e%2e/x"):  # other paths of the endpoint
            assert client.ask(b"", f"/v1/models/{name}", "GET")[0] == 404
    for models, listed in ((["stub-1", "other"], ["stub-1"]), (["other"], [])):  # those that may be asked
        with gate(models=models) as client:
            reply = json.loads(client.ask(b"", "/v1/models", "GET")[2])
            assert (reply["object"], [model["id"] for model in reply["data"]]) == ("list", listed)


def test_the_page_gets_the_conversation(town, gate):
    """Or no text, if it has an odd form, which is the endpoint's business."""
    user = {"role": "user"}
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]
    parts.append({"type": "text", "text": "b" * 5000})
    odd = None, [], 3, [None], [{}], [user], [user | {"content": 3}], [user | {"content": ""}]
    with gate() as client:
        for messages in (*odd, [user | {"content": "first"}, user | {"content": parts}]):
            client.json(messages=messages)
        latest, *others = [row["question"] for row in client.service.overview()["latest"]]
        assert latest == "user: first\n\nuser: a\n" + "b" * 3979
        assert others == [""] * len(odd)


@pytest.mark.parametrize(("on_error", "shadow"), [("refuse", False), ("abstain", False), ("refuse", True)])
def test_the_journal_cannot_be_written(town, gate, monkeypatch, on_error, shadow):
    with gate(on_error=on_error, shadow=shadow) as client:
        full = mock.Mock(side_effect=OSError(28, "no space left on device"))
        monkeypatch.setattr(client.service, "decide", full)
        status, headers, raw = client.ask()
        reply = "answer" if shadow else on_error
        assert client.metric(f'exaul_journal_failures_total{{reply="{reply}"}}') == 1
        assert (SECRET in raw) == (reply == "answer")
        if reply == "refuse":
            assert (status, headers["retry-after"], headers["x-should-retry"]) == (503, "1", "false")
        else:
            exaul = {"decided": False, "answer": reply == "answer", "reason": "journal", "ref": None}
            assert json.loads(raw)["exaul"].items() >= exaul.items()


def test_no_more_calls_than_allowed(stub, gate, monkeypatch):
    """A request beyond the limit is refused at once; others are served while the endpoint is slow."""
    monkeypatch.setattr(upstream_module, "MOST_CALLS", 2)
    stub.delay = 0.3
    with gate(score="exact", samples=2) as client:
        with ThreadPoolExecutor() as pool:
            for _ in range(2):
                pool.submit(client.ask)
            until(lambda: len(stub.asked) == 2)
            status, headers, _ = client.ask()
            assert (status, headers["retry-after"], headers["x-should-retry"]) == (503, "1", "false")
            assert client.ask({"score": 0.5}, "/v1/decide")[0] == 200
        assert (len(stub.asked), stub.most) == (6, 2)  # samples wait for a place
        assert client.questions() == 3


def test_long_replies_are_read_in_turn_and_short_ones_at_once(stub, gate, monkeypatch):
    """Six threads that read replies of 8 MiB delayed a decision by 16 s."""
    reading, most, release = [], [], threading.Event()
    parsed = upstream_module.Upstream._parsed

    def slow_parsed(self, body):
        if len(body) <= upstream_module.SHORT_REPLY:
            return parsed(self, body)
        reading.append(1)
        most.append(len(reading))
        release.wait(10)
        reading.pop()
        return parsed(self, body)

    monkeypatch.setattr(upstream_module.Upstream, "_parsed", slow_parsed)
    stub.rule = lambda asked, before: completion("long " * 2_000 if asked["model"] == "long" else "short")
    with gate() as client:
        with ThreadPoolExecutor() as pool:
            for _ in range(3):
                pool.submit(client.ask, QUESTION | {"model": "long"})
            until(lambda: len(stub.asked) == 3 and most)
            assert client.ask()[0] == 200
            release.set()
        assert most == [1, 1, 1]


def test_a_stream_that_waits_gets_comments(town, gate, monkeypatch):
    monkeypatch.setattr(gateway_module, "COMMENT_SECONDS", 0.05)
    town.delay = 0.3
    with gate(ABSTAIN) as client:
        _, _, raw = client.ask(QUESTION | {"stream": True})
        comments = raw.split("\n\n").count(": waiting")
        assert 2 <= comments <= 30  # on a busy machine it waits longer
        assert SECRET not in raw
        assert events(raw)[1]["choices"][0]["delta"]["content"] == IDK
        town.rule = lambda asked, before: error(429)
        status, _, raw = client.ask(QUESTION | {"stream": True})
        assert status == 200  # of the comments
        last = raw.strip().split("\n\n")[-1]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "some_code"
        assert "[DONE]" not in raw
        town.delay = 0
        assert client.ask(QUESTION | {"stream": True})[0] == 429


POINTS = {  # when the client leaves: the outcome of feedback, None if nothing is decided
    "before the call": None,
    "during the call": None,
    "during the decision": "withdrawn",
    "cancelled": "withdrawn",
    "first byte": "counted",
    "last byte": "counted",
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("point", "outcome"), POINTS.items())
def test_disconnects(town, tmp_path, monkeypatch, point, outcome, stream):
    """Before the answer is sent: nothing is sent, the endpoint need not go on, and a decision is withdrawn."""
    monkeypatch.setattr(gateway_module, "COMMENT_SECONDS", 0.02)
    application = app(tmp_path / "state.sqlite", learner=ANSWER)
    add_gateway(application, GatewayFlags(upstream=town.url))
    service = application.state.service
    decide, ids, deciding, cancelled = service.decide, [], threading.Event(), threading.Event()
    town.delay = 10 if point.endswith("the call") else 0.05

    def slow_decide(*given, **named):
        deciding.set()
        if point == "during the decision":
            exchange.leave()
        cancelled.wait(10 if point == "cancelled" else 0.05)
        decision = decide(*given, **named)
        ids.append(decision.id)
        return decision

    def on_send(message):
        first, last = message.get("body", b": ")[:1] != b":", not message.get("more_body", True)
        if {"first byte": first, "last byte": last}.get(point):
            exchange.leave()

    monkeypatch.setattr(service, "decide", slow_decide)
    exchange = Exchange(json.dumps(QUESTION | {"stream": stream}).encode(), on_send)

    async def run():
        task = asyncio.ensure_future(exchange.run(application, "POST", "/v1/chat/completions"))
        await asyncio.sleep(0)
        while point == "during the call" and not town.asked:
            await asyncio.sleep(0.05)  # a stream has comments then
        if point.endswith("the call"):
            exchange.leave()
        if point == "cancelled":
            await asyncio.to_thread(deciding.wait, 10)
            task.cancel()
            cancelled.set()
        await asyncio.gather(task, return_exceptions=point == "cancelled")
        for close in application.state.closing:
            await close()

    asyncio.run(run())
    assert (SECRET.encode() in exchange.body) == (b"exaul" in exchange.body) == (outcome == "counted")
    if outcome is None:
        assert ids == []
        until(lambda: len(town.asked) == town.cancelled)
        assert exchange.body.replace(b": waiting\n\n", b"") == b""
    else:
        assert service.feedback(ids[0], "up") == outcome
    service.close()


@pytest.mark.parametrize("exaul", [{"answer": True}, {"answer": True, "decided": False}])
def test_a_client_leaves_when_its_answer_is_ready(exaul):
    """Nothing is sent, and a decision is withdrawn."""
    withdrawn = []

    class Ready:
        async def complete(self, chat):
            return {"id": chat.id, "exaul": exaul}

        async def withdraw(self, id):
            withdrawn.append(id)

    async def receive():
        return {"type": "http.disconnect"}

    chat = gateway_module.checked_request(QUESTION, {}, GatewayFlags(upstream="http://h"), ())
    asyncio.run(gateway_module.GatedReply(Ready(), chat)({}, receive, None))
    assert withdrawn == ([] if "decided" in exaul else [chat.id])


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"upstream": ""}, "upstream: missing"),
        ({"upstream": f"http://me:{KEY}@h/v1"}, "upstream: an address with a user name"),
        ({"upstream_key_variable": KEY}, "upstream_key_variable: it must be the name"),
        ({"upstream_key_variable": "BROKEN"}, "BROKEN: the key has a line break"),  # which no header can hold
        ({"upstream_timeout": 0.0}, "upstream_timeout: 0.0 found"),
        ({"abstention": " "}, "abstention: ' ' found; it must be a text"),
        ({"samples": 65}, "samples: 65 found"),
        ({"samples": 0}, "samples: 0 found"),
        ({"withheld": "json"}, "withheld_json: missing"),
        ({"withheld_json": "{"}, "withheld_json: '{' found; it must be JSON"),
        ({"tools": "error"}, "tools: 'error' is unknown"),
        ({"fallback": "@http://h/v1"}, "^fallback: "),
        ({"fallback": "large@http://"}, "^fallback: "),
        ({"fallback": "large", "fallback_key_variable": "HOME"}, "^fallback: "),
        ({"fallback": "large@http://h/v1", "fallback_key_variable": "NO_SUCH"}, "^fallback_key_variable: "),
        ({"key": "token"}, "^tokens: missing"),
        ({"key": "model"}, "^models: missing"),
        ({"models": ("m,k",)}, "^models: 'm,k' found; it must be names without a comma"),  # no client can name it
        ({"pass_fields": ("top_k", "min_p,x")}, "^pass_fields: 'top_k min_p,x' found"),
    ],
)
def test_bad_flags(gate, monkeypatch, flags, sentence):
    monkeypatch.setenv("BROKEN", f"{KEY}\n")
    with pytest.raises(BadInput, match=sentence) as refused, gate(**flags):
        pass
    assert KEY not in str(refused.value)


# How the gateway withholds an answer: as a text, a refusal, a fixed JSON or an error.

FORMS = {  # mode, response_format and type of the value in its schema: form of the abstention; None: it is refused
    ("auto", "", ""): "text",
    ("auto", "json_object", ""): "refusal",
    ("auto", "json_schema", "string"): "refusal",
    ("text", "json_schema", "string"): "text",
    ("refusal", "", ""): "refusal",
    ("json", "", ""): "json",
    ("json", "json_schema", "string"): "json",
    ("json", "json_schema", "integer"): "refusal",
    ("error", "json_schema", "string"): "error",
    ("show", "", ""): None,
}


@pytest.mark.parametrize("stream", [False, True])
def test_forms_of_a_withheld_answer(town, gate, stream):
    """A header overrides the flag."""
    with gate(ABSTAIN, withheld="error", withheld_json='{"a": "?"}', abstention="No idea.") as client:
        for (mode, kind, value), form in FORMS.items():
            schema = {"type": "object", "properties": {"a": {"type": value}}, "required": ["a"]}
            asked = {"type": kind, "json_schema": {"name": "n", "schema": schema}}
            body = QUESTION | {"stream": stream} | ({"response_format": asked} if kind else {})
            status, headers, raw = client.ask(body, **({} if mode == "error" else {"x_exaul_withheld": mode}))
            assert SECRET not in raw
            if form is None:
                assert (status, json.loads(raw)["error"]["param"]) == (400, "x-exaul-withheld")
            elif form == "error":  # it says what was decided
                reply, exaul = json.loads(raw)["error"], json.loads(raw)["exaul"]
                assert (status, reply["code"], reply["message"]) == (400, "content_policy_violation", "No idea.")
                assert (exaul["id"], exaul["answer"]) == (headers["x-exaul-id"], False)
                assert (headers["x-exaul-answer"], headers["x-exaul-score"]) == ("false", str(exaul["score"]))
            else:
                choices = [each["choices"][0] for each in (events(raw) if stream else [json.loads(raw)])]
                messages = [each["delta" if stream else "message"] for each in choices]
                said = [item for each in messages for item in each.items() if item[0] != "role" and item[1]]
                text = '{"a": "?"}' if form == "json" else "No idea."
                assert said == [("refusal" if form == "refusal" else "content", text)]
                assert (status, choices[-1]["finish_reason"]) == (200, "stop")


VALUE = {"answer": None, "sure": False, "steps": [{"text": "?"}], "n": 1}
STEPS = {"type": "array", "items": {"type": "object", "properties": {"text": {"enum": ["?", "!"]}}}}


@pytest.mark.parametrize(
    ("schema", "does"),
    [
        ({}, True),
        ({"type": "object", "title": "Reply", "required": ["answer", "n"]}, True),
        ({"required": ["answer", "more"]}, False),
        ({"type": ["array", "object"]}, True),
        ({"type": "string"}, False),
        ({"properties": {"answer": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, True),
        ({"properties": {"answer": {"anyOf": [{"type": "string"}]}}}, False),
        ({"properties": {"steps": STEPS, "n": {"type": "number"}}}, True),
        ({"properties": {"steps": {"items": {"type": "string"}}}}, False),
        ({"properties": {"n": {"type": "boolean"}}}, False),
        ({"properties": {"n": {"enum": [True]}}}, False),
        ({"properties": {"sure": {"type": "integer"}}}, False),
        ({"additionalProperties": False, "properties": {name: {} for name in VALUE}}, True),
        ({"additionalProperties": False, "properties": {"answer": {}}}, False),
        ({"minProperties": 1}, False),  # a rule that is not known
        ({"$ref": "#/$defs/x"}, False),
        # what is no schema
        *((schema, False) for schema in (None, 3, {"type": {}}, {"anyOf": 1}, {"required": 1}, {"properties": []})),
        (reduce(lambda inner, _: {"anyOf": [inner]}, range(900), {}), False),
    ],
)
def test_a_value_is_sent_where_it_follows_the_schema(schema, does):
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    assert completions.form_of("json", {"response_format": form}, VALUE) == ("json" if does else "refusal")
    assert completions.form_of("auto", {"response_format": schema}, VALUE) == "text"  # it has no known type
