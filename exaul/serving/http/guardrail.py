"""The settings of the guardrail for LiteLLM, the score of an answer, and calls to the service."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any, NamedTuple

import aiohttp

from exaul.engine.checks import BadInput, Configuration, check_holds, check_known, check_positive, setting
from exaul.llm.replies import score_of
from exaul.serving.http.completions import undecided_reason

FIELDS_OF_KEY = "model", "team"
OTHERS = "tool_calls", "function_call", "audio"  # parts of a message for which it is not decided
REFUSED = 400, 409  # the service refuses the id, which the client may have chosen


class NoScore(Exception):
    """A completion that passes without a decision; the message says why."""


class GuardrailDecision(NamedTuple):
    """What the service decided, or what holds in its place."""

    answer: bool  # show the answer
    probability: float | None  # of answering before the draw; None if the service did not decide
    error: str | None = None  # why the service did not decide
    is_lost: bool = False  # the service may have decided, but its reply did not come


@dataclass(frozen=True, kw_only=True)
class GuardrailConfiguration(Configuration):
    """Settings of the guardrail, which stand in LiteLLM's ``litellm_params``."""

    api_base: str = setting("", "address of `exaul serve` (required)")
    api_key: str | None = setting(None, "its bearer token with the scope decide; write os.environ/NAME")
    on_error: str = setting("", "if the service does not decide: answer or abstain (required)")
    key: str = setting("", "selects the Abstainer; {model} and {team} stand for those of the request")
    abstention: str = setting("I don't know.", "text in place of a withheld answer")
    shadow: bool = setting(True, "decide and log, but show every answer")
    timeout: float = setting(2.0, "seconds to wait for a decision")

    def __post_init__(self) -> None:
        super().__post_init__()
        address = self.api_base.startswith(("http://", "https://"))
        check_holds("api_base", self.api_base, address, "an address with http:// or https://")
        check_known("on_error", (self.on_error,), ("answer", "abstain"))
        check_positive("timeout", self.timeout)
        try:
            names = [name for _, name, *_ in Formatter().parse(self.key) if name is not None]
        except ValueError as error:
            raise BadInput(f"key: {self.key!r} found; {error}") from error
        check_known("key", names, FIELDS_OF_KEY)

    def key_of(self, model: str, team: str) -> str:
        """Return the key of a request."""
        return self.key.format(model=model, team=team)


def answer_score(choices: Sequence[Mapping[str, Any]]) -> float:
    """Return the length-normalised likelihood, in [0, 1], of the answer in the choices of a chat completion.

    Raises:
        NoScore: with the reason that the gateway gives, too.
    """
    try:
        reason = undecided_reason({"choices": choices})
        score = math.nan if reason else score_of(choices[0])
    except (ValueError, LookupError, TypeError, AttributeError):  # of unusable logprobs
        score, reason = math.nan, None
    if math.isnan(score):
        raise NoScore(reason or "no_score")
    return score


def choices_of(chunks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the choices of a completion that was streamed in chunks."""
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for part in chunk.get("choices") or []:
            empty = {"message": {"content": ""}, "logprobs": {"content": []}}
            choice = choices.setdefault(part.get("index") or 0, empty)
            delta = part.get("delta") or {}
            choice["message"]["content"] += delta.get("content") or ""
            choice["message"] |= {name: delta[name] for name in OTHERS if delta.get(name)}
            choice["logprobs"]["content"] += (part.get("logprobs") or {}).get("content") or []
    return list(choices.values())


async def decide(config: GuardrailConfiguration, score: float, key: str, id: str) -> GuardrailDecision:
    """Ask the service for a decision. This never fails: ``on_error`` holds if the service does not decide."""
    is_lost = False
    try:
        status, body = await _post(config, "/v1/decide", {"score": score, "key": key, "id": id})
        if status in REFUSED:  # showing the answer would let clients choose an id that the service refuses
            return GuardrailDecision(False, None, f"the service refused the request: {_message_of(body)}")
        if status == 200:
            return GuardrailDecision(_checked_answer(body["answer"]), body["probability"], body.get("error"))
        error = f"the service replied with status {status}"
    except TimeoutError:
        error, is_lost = f"the service took more than {config.timeout:g} s", True
    except (aiohttp.ClientError, OSError) as failure:
        error, is_lost = f"the service cannot be reached ({type(failure).__name__})", True
    except (ValueError, LookupError, TypeError, AttributeError):
        error = "the reply is not that of exaul"
    return GuardrailDecision(config.on_error == "answer", None, error, is_lost)


async def withdraw(config: GuardrailConfiguration, id: str) -> None:
    """Report that an answer was not shown, if the service can be reached."""
    try:
        await _post(config, "/v1/withdraw", {"id": id})
    except (aiohttp.ClientError, OSError, ValueError):
        return  # the answer stays open, as one without feedback


async def _post(config: GuardrailConfiguration, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
    headers = {} if config.api_key is None else {"Authorization": f"Bearer {config.api_key}"}
    timeout = aiohttp.ClientTimeout(total=config.timeout)
    url = config.api_base.rstrip("/") + path
    # A session for each call: a decision is rare beside the model's tokens, and nothing is left open.
    async with (
        aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
        session.post(url, json=body, allow_redirects=False) as reply,
    ):
        return reply.status, await reply.json(content_type=None)


def _checked_answer(answer: Any) -> bool:
    if not isinstance(answer, bool):
        raise TypeError(answer)
    return answer


def _message_of(body: Mapping[str, Any]) -> str:
    return str(body["error"]["message"])
