"""What the guardrail does without LiteLLM: settings, scores, and what holds if the service does not decide."""

import asyncio
import math

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from exaul.engine.checks import BadInput
from exaul.serving.http.application import app
from exaul.serving.http.guardrail import GuardrailConfiguration, NoScore, answer_score, choices_of, decide, withdraw
from tests.models.stub import completion
from tests.serving.http.apps import running

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def configured(port=1, **settings):
    return GuardrailConfiguration(**{"api_base": f"http://127.0.0.1:{port}", "on_error": "abstain"} | settings)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"api_base": "127.0.0.1:8321"}, "api_base: '127.0.0.1:8321' found; it must be an address with http"),
        ({"on_error": ""}, "on_error: '' is unknown; one of answer, abstain"),
        ({"timeout": 0}, "timeout: 0.0 found; it must be"),
        ({"shadow": "no"}, "shadow: 'no' found; it must be true or false"),
        ({"key": "{user}"}, "key: 'user' is unknown; one of model, team"),
        ({"key": "{model.__class__}"}, "key: 'model.__class__' is unknown"),
        ({"key": "{}"}, "key: '' is unknown"),
        ({"key": "{model"}, "key: '{model' found; "),
    ],
)
def test_settings_are_checked(settings, sentence):
    with pytest.raises(BadInput) as error:
        configured(**settings)
    assert str(error.value).startswith(sentence)


def test_the_key_of_a_request():
    assert configured(key="{team}/{model}").key_of("gpt", "support") == "support/gpt"
    assert configured(key="fixed").key_of("{team}", "support") == "fixed"


def test_the_answer_score_an_answer():
    assert answer_score(completion("two words", [-0.1, -0.3])["choices"]) == pytest.approx(math.exp(-0.2))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"logprobs": None}, "no_score"),
        ({"message": {"content": "another text"}}, "no_score"),
        ({"message": {"content": None}}, "no_text"),
        ({"message": {"content": None, "audio": {"id": "a"}}}, "audio"),
        ({"message": {"content": "two words", "tool_calls": [CALL]}}, "tool_calls"),
        ({"message": {"content": "two words", "function_call": {"name": "f"}}}, "tool_calls"),
        ({"logprobs": {"content": [1]}}, "no_score"),
    ],
)
def test_completions_without_a_score(changes, reason):
    [choice] = completion("two words")["choices"]
    with pytest.raises(NoScore, match=reason):
        answer_score([choice | changes])


def test_several_choices_have_no_score():
    [choice] = completion("two words")["choices"]
    for choices in ([], [choice, choice]):
        with pytest.raises(NoScore, match=r"^n$"):
            answer_score(choices)


def test_a_stream_has_the_answer_score_its_completion():
    whole = completion("some more words")["choices"]
    tokens = whole[0]["logprobs"]["content"]
    parts = [
        {"index": 0, "delta": {"content": token["token"]}, "logprobs": {"content": [token]}} for token in tokens
    ]
    parts = [{"delta": {"role": "assistant", "content": None}}, *parts, {"index": 0, "delta": {}, "logprobs": None}]
    chunks = [*({"choices": [part]} for part in parts), {"choices": [], "usage": {}}]
    assert answer_score(choices_of(chunks)) == answer_score(whole)
    for more, reason in (
        ({"index": 1, "delta": {"content": "a"}}, "n"),
        ({"index": 0, "delta": {"tool_calls": [CALL]}}, "tool_calls"),
    ):
        with pytest.raises(NoScore, match=reason):
            answer_score(choices_of([*chunks, {"choices": [more]}]))


@pytest.mark.usefixtures("constant_learners")
def test_decisions_of_the_service(tmp_path):
    application = app(tmp_path / "state.sqlite", learner="answers", alpha=0.1)
    service = application.state.service
    service.decide(0.5, "compiled")  # the first decision of a process can take seconds
    with running(application) as port:
        config = configured(port, on_error="answer")
        assert asyncio.run(decide(config, 0.5, "key", "id")) == (True, 1.0, None, False)
        asyncio.run(withdraw(config, "id"))
        assert service.figures("key")["withdrawn"] == 1
        # An id that the service refuses: showing the answer would let clients choose one.
        for id, reason in (("id", "id: 'id' was decided with"), ("a" * 257, "id: ")):
            answer, probability, error, is_lost = asyncio.run(decide(config, 0.6, "key", id))
            assert (answer, probability, is_lost) == (False, None, False)
            assert error.startswith(f"the service refused the request: {reason}")


REPLIES = {
    "refuses": (JSONResponse({"error": {"message": "no"}}, 503), "the service replied with status 503"),
    "redirects": (
        Response(status_code=307, headers={"location": "/valid/v1/decide"}),
        "the service replied with status 307",
    ),
    "text": (Response("fine"), "the reply is not that of exaul"),
    "list": (JSONResponse([]), "the reply is not that of exaul"),
    "number": (JSONResponse({"answer": 1, "probability": 1.0}), "the reply is not that of exaul"),
    "conflict": (JSONResponse([], 409), "the reply is not that of exaul"),
}


@pytest.fixture(scope="module")
def faulty():
    """A port whose paths begin with the name of a fault."""

    async def reply(request):
        fault = request.path_params["fault"]
        if fault == "slow":
            await asyncio.sleep(1)
        return REPLIES[fault][0] if fault in REPLIES else JSONResponse({"answer": True, "probability": 1.0})

    with running(Starlette(routes=[Route("/{fault}/v1/decide", reply, methods=["POST"])])) as port:
        yield port


@pytest.mark.parametrize("on_error", ["answer", "abstain"])
@pytest.mark.parametrize("fault", [*REPLIES, "slow"])
def test_the_service_does_not_decide(faulty, fault, on_error):
    sentence = REPLIES[fault][1] if fault in REPLIES else "the service took more than 0.2 s"
    config = configured(api_base=f"http://127.0.0.1:{faulty}/{fault}/", on_error=on_error, timeout=0.2)
    assert asyncio.run(decide(config, 0.5, "", "id")) == (on_error == "answer", None, sentence, fault == "slow")


def test_the_service_is_down():
    config = configured(1, on_error="answer", api_key="secret-0123456789")
    answer, _, error, is_lost = asyncio.run(decide(config, 0.5, "", "id"))
    assert answer
    assert is_lost
    assert error == "the service cannot be reached (ClientConnectorError)"
    asyncio.run(withdraw(config, "id"))


def test_a_decision_without_the_journal(faulty, monkeypatch):
    """The service replies as its own --on-error says."""
    body = {"id": None, "answer": False, "probability": None, "error": "journal"}
    monkeypatch.setitem(REPLIES, "journal", (JSONResponse(body), None))
    config = configured(api_base=f"http://127.0.0.1:{faulty}/journal", on_error="answer")
    assert asyncio.run(decide(config, 0.5, "", "id")) == (False, None, "journal", False)
