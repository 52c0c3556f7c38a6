"""Requests and replies by which an answer could pass undecided, or be decided again: none does."""

import json
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from starlette.responses import JSONResponse

from tests.models.stub import completion
from tests.serving.http.apps import ABSTAIN, KEY, QUESTION, SECRET, error, events

ABUSES = [  # a request beside the question, and the field that a refusal names
    ({"n": 2}, "n"),
    ({"n": True}, "n"),
    ({"logprobs": 1}, "logprobs"),
    ({"stream": "true"}, "stream"),
    ({"model": "m,m"}, "model"),
    ({"model": ["m", "m"]}, "model"),
    ({"api_base": "http://h"}, "api_base"),
    ({"additional_drop_params": ["logprobs"]}, "additional_drop_params"),
    ({"metadata": []}, "metadata"),
    ({"messages": [{}] * 5000}, "messages"),
    ({"a\n\ud800": 1}, "a\\n\\ud800"),
    ({"metadata": {"exaul_ref": 3}}, "exaul_ref"),
    ({"metadata": {"exaul_ref": "\ud800"}}, "exaul_ref"),
    ({"x_exaul_ref": b""}, "exaul_ref"),
    ({"x_exaul_ref": b"a" * 257}, "exaul_ref"),
    ({"x_exaul_ref": b"\xff"}, "x-exaul-ref"),
    ({"x_exaul_withheld": "json"}, "x-exaul-withheld"),  # without --withheld-json
]


def test_no_request_gets_an_undecided_text(undecided):
    endpoint, client = undecided
    for given, param in ABUSES:
        headers = {name: value for name, value in given.items() if name.startswith("x_exaul")}
        fields = {} if headers else given
        assert client.refusal(QUESTION | fields, **headers) == (400, param)
    for body in b"", b"[]", b"{}", b'{"model": "m"}':
        assert client.ask(body)[0] == 400
    assert "the body: [] found; it must be an object" in client.ask(b"[]")[2]
    for name in "embeddings", "completions", "responses":
        status, _, raw = client.ask(path=f"/v1/{name}")
        assert (status, f"/v1/{name} is not gated" in raw) == (404, True)
    assert not endpoint.asked


def test_fields_and_models_that_are_allowed(town, gate):
    with gate(pass_fields="any", models=("m", "k")) as client:
        client.json(top_k=3, model="k")
        assert town.asked == [QUESTION | {"top_k": 3, "model": "k", "logprobs": True}]
        assert client.refusal(QUESTION | {"model": "other"}) == (400, "model")


def test_a_ref_names_one_answer(town, gate):
    """Of many requests with one ref, one is asked and decided, also after a restart; feedback finds it."""
    ref, town.delay = "mój-id", 0.05
    body, headers = QUESTION | {"metadata": {"exaul_ref": ref, "more": "x"}}, {"x_exaul_ref": ref.encode()}
    with gate() as client, ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda _: client.ask(body), range(20)))
        assert sorted(status for status, _, _ in replies) == [200] + [409] * 19
        assert {head.get("x-should-retry") for status, head, _ in replies if status == 409} == {"false"}
        assert len(town.asked) == client.questions() == 1
        assert town.asked[0]["metadata"] == {"more": "x"}
        (reply,) = [json.loads(raw) for status, _, raw in replies if status == 200]
        assert (reply["exaul"]["ref"], reply["id"]) == (ref, reply["exaul"]["id"])
    with gate() as client:
        assert (client.ask(body)[0], client.ask(**headers)[0]) == (409, 409)
        assert len(town.asked) == 1
        assert client.service.feedback(ref, "down") == "counted"
        assert client.service.feedback(reply["id"], "down") == "repeated"
        assert client.service.feedback("another", "down") == "unknown"


def test_a_ref_is_free_again_after_a_failure_and_refused_if_somebody_uses_it_meanwhile(town, gate):
    with gate() as client:
        town.rule = lambda asked, before: completion("Paris") if before else error(500)
        assert [client.ask(x_exaul_ref="r")[0] for _ in range(2)] == [500, 200]
        town.rule = lambda asked, before: client.service.decide(0.5, id="taken") and None
        status, _, raw = client.ask(QUESTION | {"stream": True}, x_exaul_ref="taken")
        assert (status, SECRET in raw) == (409, False)


def test_the_head_of_a_reply_says_what_was_decided(town, gate):
    with gate(key="header", keys={"k": {}, "": {}}) as client:
        _, headers, raw = client.ask(x_exaul_key="k")
        exaul = json.loads(raw)["exaul"]
        named = {name: headers[f"x-exaul-{name}"] for name in ("id", "answer", "score", "key")}
        assert named == {"id": exaul["id"], "answer": "true", "score": str(exaul["score"]), "key": "k"}
        _, headers, raw = client.ask(QUESTION | {"stream": True})
        assert [name for name in headers if name.startswith("x-exaul")] == ["x-exaul-id"]
        assert headers["x-exaul-id"] == events(raw)[0]["exaul"]["id"]
        town.rule = lambda asked, before: error(429)
        _, headers, _ = client.ask(x_exaul_key="k")
        assert headers["x-exaul-id"].startswith("chatcmpl-")
        assert (headers["x-exaul-key"], "x-exaul-answer" in headers) == ("k", False)


NEVER, ALWAYS = ({"warm_start": ([0.5] * 99, [wrong] * 99)} for wrong in (1, 0))


@pytest.mark.parametrize(("second", "shown"), [(ALWAYS, True), (NEVER, False), (None, False)])
def test_a_withheld_answer_goes_to_a_second_model_that_is_gated_as_well(town, gate, caplog, second, shown):
    """The client has the id of the answer that it sees; each model has a key and a bound of its own."""
    if second is None:
        town.rule = lambda asked, before: error(500) if asked["model"] == "large" else None
    keys = {"": NEVER} | ({} if second is None else {"/fallback": second})
    with gate(learner="aci-rank", keys=keys, fallback="large") as client:
        status, headers, raw = client.ask(x_exaul_ref="theirs")
        reply = json.loads(raw)
        assert status == 200
        assert [asked["model"] for asked in town.asked] == ["m", "large"]
        assert (SECRET in raw) == shown
        exaul = reply["exaul"]
        assert (exaul["answer"], exaul.get("fallback")) == (shown, "large" if shown else None)
        assert ("model large: the upstream replied" in caplog.text) == (second is None)
        assert reply["id"] == exaul["id"] == headers["x-exaul-id"]
        outcome = client.service.feedback("theirs" if shown else exaul["id"], "up")
        assert outcome == ("counted" if shown else "withheld")
        figures = {key: client.service.figures(key) for key in client.service.all_keys()}
        assert figures[""]["answers"] == 0
        assert second is None or figures["/fallback"]["answers"] == shown
        if shown:  # the head of a stream goes out before it is known which answer is shown
            _, headers, raw = client.ask(QUESTION | {"stream": True})
            assert SECRET in raw
            assert not [name for name in headers if name.startswith("x-exaul")]


def test_the_form_error_comes_after_the_second_model(town, gate):
    with gate(learner="aci-rank", keys={"": NEVER, "/fallback": NEVER}, fallback="large") as client:
        assert client.ask(x_exaul_withheld="error")[0] == 400
        assert [asked["model"] for asked in town.asked] == ["m", "large"]


def test_the_second_model_is_of_another_endpoint(town, other, gate, monkeypatch):
    """It gets a key of its own, never that of clients; a model that scores is one of the first endpoint."""
    monkeypatch.setenv("SECOND_KEY", "sk-second-0123456789")
    town.rule = lambda asked, before: completion("95") if asked["model"] == "judge" else town.body
    keys, judge = {"": NEVER, "/fallback": ALWAYS}, {"score": "verbal", "score_model": "judge"}
    second = {"fallback": f"large@{other.url}", "fallback_key_variable": "SECOND_KEY"}
    with gate(learner="aci-rank", keys=keys, **judge, **second) as client:
        _, _, raw = client.ask(authorization="Bearer of-the-client")
    assert json.loads(raw)["exaul"]["fallback"] == "large"
    assert [asked["model"] for asked in town.asked] == ["m", "judge", "judge"]
    assert [asked["model"] for asked in other.asked] == ["large"]
    assert (other.keys, set(town.keys)) == (["Bearer sk-second-0123456789"], {"Bearer of-the-client"})


@pytest.mark.parametrize("failures", [2, 3])
def test_a_withheld_answer_is_handed_over_to_a_program(town, other, gate, monkeypatch, caplog, failures):
    """Three times at most, with its own key; the client reads the abstention, and a verdict is kept."""
    monkeypatch.setenv("HOOK_KEY", "a-key-of-the-program")
    monkeypatch.setattr("exaul.serving.http.handover.PAUSES", (0.0, 0.01, 0.01))
    other.rule = lambda asked, before: error(503) if before < failures else {"ok": True}
    flags = {"fallback": f"{other.url}/chat/completions", "fallback_key_variable": "HOOK_KEY"}
    with gate(ABSTAIN, **flags) as client:
        _, _, raw = client.ask(x_exaul_ref="theirs")
        exaul = json.loads(raw)["exaul"]
        assert (exaul["answer"], exaul["fallback"], SECRET in raw) == (False, "queued", False)
        assert client.service.feedback("theirs", "down") == "withheld"
        town.rule = lambda asked, before: completion("unscored", [9])
        assert "fallback" not in client.json()["exaul"]  # it was not decided
    assert len(other.asked) == min(failures + 1, 3)  # the end waits for them
    handed = {"id": exaul["id"], "ref": "theirs", "key": "", "question": "Which town?", "score": exaul["score"]}
    assert other.asked[-1] == handed | {"answer": f"It is {SECRET}"}
    assert set(other.keys) == {"Bearer a-key-of-the-program"}
    assert ("was not handed over" in caplog.text) == (failures == 3)
    assert SECRET not in caplog.text


def test_a_shown_answer_goes_to_no_other_model_or_program(town, other, gate):
    """The ref is its own."""
    for ref, second in (("a", f"large@{other.url}"), ("b", f"{other.url}/chat/completions")):
        with gate(fallback=second) as client:
            assert "fallback" not in client.json(metadata={"exaul_ref": ref})["exaul"]
            assert client.service.feedback(ref, "up") == "counted"
    assert not other.asked


@pytest.mark.parametrize(("limit", "most"), [("MOST_WAITING", 1), ("MOST_BYTES", 250)])
def test_of_too_many_answers_some_are_not_handed_over(town, other, gate, monkeypatch, limit, most):
    monkeypatch.setattr(f"exaul.serving.http.handover.{limit}", most)
    monkeypatch.setattr("exaul.serving.http.handover.CLOSE_SECONDS", 0.1)
    other.delay = 5
    with gate(ABSTAIN, fallback=f"{other.url}/chat/completions") as client:
        assert [client.json()["exaul"]["fallback"] for _ in range(2)] == ["queued", "full"]


def test_other_routes_pass_for_clients_that_are_trusted(town, gate, monkeypatch):
    """Without the flag they are refused, and with it they are counted."""
    tokens = "client-token-01234567", "trusted-token-0123456"
    monkeypatch.setenv("TOKENS", f"ask {tokens[0]}\npass,metrics {tokens[1]}")
    monkeypatch.setenv("UPSTREAM_KEY", KEY)
    client_of, trusted = ({"authorization": f"Bearer {token}"} for token in tokens)
    town.rule = lambda asked, before: {"data": [1.5], "key": KEY}
    for passes in (False, True):
        with gate(pass_routes=passes, tokens="env:TOKENS", upstream_key_variable="UPSTREAM_KEY") as client:
            assert client.ask(path="/v1/embeddings", **client_of)[0] == (403 if passes else 404)
            assert client.ask(path="/v1/embeddings", **trusted)[0] == (200 if passes else 403)
            if passes:
                _, headers, raw = client.ask({"input": "a"}, "/v1/embeddings?of=a%20b", **trusted)
                assert headers["content-type"] == "application/json"
                assert json.loads(raw) == {"data": [1.5], "key": "[key]"}
                assert (town.asked[-1], town.queries[-1]) == ({"input": "a"}, "of=a%20b")
                assert client.ask(path="/v1/decide", **trusted)[0] == 403
                assert client.ask(path="/v1/%2e%2e/secret", **trusted)[0] == 404
                assert client.ask(b"", "/v1/nothing", "GET", **trusted)[0] == 404  # of the endpoint
                counted = client.ask(b"", "/metrics", "GET", **trusted)[2]
                assert 'exaul_undecided_replies_total{key="",reason="passed"} 4.0' in counted
                assert town.keys[-1] == f"Bearer {KEY}"


@pytest.mark.parametrize(("status", "kind"), [(600, None), (200, "text/\u2192")])
def test_a_reply_that_no_server_may_send_does_not_pass(status, kind, gate, monkeypatch):
    async def request(self, *given, **named):
        return httpx2.Response(status, headers={"content-type": kind.encode()} if kind else {})

    monkeypatch.setattr("exaul.serving.http.upstream.BoundedClient.request", request)
    with gate(pass_routes=True) as client:
        code, _, raw = client.ask(path="/v1/embeddings")
        assert (code, "invalid status or Content-Type" in raw) == (502, True)


def test_a_token_chooses_the_key(town, gate, monkeypatch):
    """Whoever has a token can choose, rate or withdraw no other key, and a token without one is refused."""
    lines = "ask,feedback billing-token-012345 billing\nask,keys nameless-token-01234\n"
    lines += "decide,feedback,keys program-token-01234 b"
    monkeypatch.setenv("TOKENS", lines)
    second = {"keys": {"billing": NEVER, "billing/fallback": ALWAYS}, "fallback": "large"}  # of the same client
    with gate(learner="aci-rank", tokens="env:TOKENS", key="token", **second) as client:
        billing, nameless, other = ({"authorization": f"Bearer {line.split()[1]}"} for line in lines.split("\n"))
        _, headers, _ = client.ask(**billing)
        assert headers["x-exaul-key"] == "billing"
        feedback = {"id": headers["x-exaul-id"], "thumb": "down"}
        rated = [json.loads(client.ask(feedback, "/v1/feedback", **rater)[2]) for rater in (other, billing)]
        assert [reply["reason"] for reply in rated] == ["unknown", "counted"]
        assert client.refusal(**billing, x_exaul_key="other") == (400, "x-exaul-key")
        assert client.refusal(**nameless) == (400, "key")
        assert '"unknown"' in client.ask({"id": headers["x-exaul-id"]}, "/v1/withdraw", **other)[2]
        decided = {key: client.ask({"score": 1, "key": key}, "/v1/decide", **other) for key in ("", "billing", "b")}
        assert [status for status, *_ in decided.values()] == [403, 403, 200]
        assert "key: 'billing' found; the token is for 'b'" in decided["billing"][2]
        assert client.service.all_keys() == ["billing", "billing/fallback", "b"]
    with gate(
        learner="aci-rank", tokens="env:TOKENS"
    ) as client:  # of one key, whose answers this token could not rate
        assert client.refusal(**billing)[0] == 403


def test_what_is_shown_is_what_was_scored(town, gate):
    """A text before the end of a thought has no part in the score, and nobody would audit it."""
    town.rule = lambda asked, before: JSONResponse(completion("The answer is 5</think>4"))
    with gate() as client:
        assert client.json()["choices"][0]["message"]["content"] == "4"
        assert client.service.overview()["latest"][0]["text"] == "4"
