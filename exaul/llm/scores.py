"""Scores of answers: how sure a model is of its answer.

A scorer is a function ``async (request, reply, ask) -> float``:

- ``request`` is the body that asked for the answer; it has ``model`` and ``messages``,
- ``reply`` is the answer, a ``Reply`` with a text,
- ``ask(body)`` asks the endpoint of the model in the body, that of the answer or of the judge: its ``Reply``.

The score is in [0, 1], or NaN if the answer has none. A scorer may raise anything; then there is no score either.
"""

import asyncio
import inspect
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from exaul.engine.checks import BadInput, quote
from exaul.engine.registry import resolve
from exaul.llm.calls import CallRefused
from exaul.llm.endpoint import as_address
from exaul.llm.prompts import fill
from exaul.llm.replies import Reply, content_text, likelihood, matches

SAMPLE_TEMPERATURE = 1.0  # of samples, unless ``ask`` sets another
# fields that samples do not have: with the same seed, or with these of a client, all could be equal
ONLY_OF_ANSWERS = "seed", "top_p", "logit_bias", "frequency_penalty", "presence_penalty", "logprobs", "top_logprobs"
LOGPROBS = {"logprobs": True}
TOP_LOGPROBS = LOGPROBS | {"top_logprobs": 20}  # the most that endpoints allow
WEBHOOK_SECONDS = 60.0  # for the reply of a program that scores
YES_OR_NO = {"type": "string", "enum": ["yes", "no"]}  # JSON schema for the second try of a verdict
VERDICT_PATTERN = re.compile(r"\W*(yes|no)\b", re.IGNORECASE)
NONE_AGREES = re.compile(r"\W*none\b", re.IGNORECASE)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
PROBE = "What is the capital of France?"

Body = Mapping[str, Any]  # of a request or a reply
Ask = Callable[..., Awaitable[Reply]]  # of a body; equal bodies with another ``sample`` are other calls
Score = Callable[[Body, Reply, Ask], Awaitable[float]]

# The conversation is quoted as JSON, so that a text within it cannot look like the end of the quotation.
VERDICT_PROMPT = """Here is a conversation, and a proposed answer to its last message.

Conversation: {conversation}
Proposed answer: {answer}

"""
P_TRUE = VERDICT_PROMPT + "Is the proposed answer right? Reply with yes or no."
VERBAL = VERDICT_PROMPT + (
    "How likely is it, in percent, that the proposed answer is right? Reply with a number from 0 to 100 alone."
)

AGREE = """Here is a conversation, a proposed answer to its last message, and a list of other answers.

Conversation: {conversation}
Proposed answer: {answer}

{samples}

Which of the other answers mean the same as the proposed answer? Reply with their numbers alone, such as 1, 3, or
none."""

ENTAIL = """Two people answered the same question. If the second answer is true, must the first one be true, too?

Question: {question}
First answer: {answer}
Second answer: {sample}

Reply with yes or no."""


class Scorer(NamedTuple):
    """A scorer, and the fields and calls that it needs."""

    score: Score
    fields: dict[str, Any]  # of the request for the answer
    samples: int = 0  # further answers that it asks for; scores of one answer can share them
    verdicts: int = 0  # other calls, of which the replies are about the answer
    sought: str = ""  # what these replies must have


async def logprob(request: Body, reply: Reply, ask: Ask) -> float:
    """Return the length-normalised likelihood of the answer; NaN if it has no usable logprobs."""
    return likelihood(reply.logprobs)


async def p_true(request: Body, reply: Reply, ask: Ask, *, model: str | None = None) -> float:
    """Return P(yes) / (P(yes) + P(no)) of the first token of a model that is asked whether the answer is right.

    NaN if the token can be neither, as without log-probabilities.
    """
    mass = {"yes": 0.0, "no": 0.0}
    for token, logprob in (await ask(_body(model, request, reply, P_TRUE) | TOP_LOGPROBS)).first:
        word = token.strip().lower()
        if word in mass:
            mass[word] += math.exp(logprob)
    total = sum(mass.values())
    return mass["yes"] / total if total > 0 else math.nan


async def verbal(request: Body, reply: Reply, ask: Ask, *, model: str | None = None) -> float:
    """Return the percentage that a model states for the answer, as a share; NaN if it states none.

    A number between 0 and 1 may be a share, and so it is not used.
    """
    number = NUMBER.search((await ask(_body(model, request, reply, VERBAL))).text)
    percent = float(number[0]) if number else math.nan
    return percent / 100 if percent == 0 or 1 <= percent <= 100 else math.nan


async def exact(request: Body, reply: Reply, ask: Ask, *, samples: int) -> float:
    """Return the share of samples whose text is that of the answer, as ``matches`` compares them."""
    texts = await _sample_texts(request, ask, samples)
    return math.fsum(matches(text, [reply.text]) for text in texts) / samples


async def agree(request: Body, reply: Reply, ask: Ask, *, samples: int, model: str | None = None) -> float:
    """Return the share of samples that mean the same as the answer, by one reply of a model; NaN if unclear."""
    texts = await _sample_texts(request, ask, samples)
    listing = "\n".join(f"{number}. {_quoted(text)}" for number, text in enumerate(texts, 1))
    text = (await ask(_body(model, request, reply, AGREE, samples=listing))).text
    if NONE_AGREES.match(text):
        return 0.0
    numbers = set(NUMBER.findall(text))
    is_valid = numbers <= {str(number) for number in range(1, samples + 1)}
    return len(numbers) / samples if numbers and is_valid else math.nan


async def entail(request: Body, reply: Reply, ask: Ask, *, samples: int, model: str | None = None) -> float:
    """Return the share of samples from which the answer follows, by a verdict on each; NaN if one is unclear.

    It is the paper's f_con. Each verdict reads the last message alone, since a dialogue can be long.
    """
    texts = await _sample_texts(request, ask, samples)
    question = _quoted(content_text(request["messages"][-1].get("content")))
    requests = (_body(model, request, reply, ENTAIL, question=question, sample=_quoted(text)) for text in texts)
    verdicts = await gather(*(verdict_of(ask, body) for body in requests))
    return math.fsum(value for value, _ in verdicts) / samples


async def webhook(request: Body, reply: Reply, ask: Ask, *, url: str) -> float:
    """Return the score in the reply ``{"score": x}`` of a program that gets the request and the reply."""
    from exaul.llm.http import BoundedClient

    body = json.dumps({"request": request, "reply": reply._asdict()}).encode()  # httpx2 would refuse NaN
    # A client for each call: calls are rare beside the tokens of the model, and nothing stays open.
    async with BoundedClient(WEBHOOK_SECONDS) as client:
        response = await client.post(url, content=body, headers={"Content-Type": "application/json"})
    if response.status_code != 200:
        raise ValueError(f"status {response.status_code}")
    return json.loads(response.content)["score"]  # the caller checks it


def scorer_of(name: str, model: str | None = None, samples: int = 5) -> Scorer:
    """Return the scorer of a name.

    Args:
        name: ``logprob``, ``p-true``, ``verbal``, ``agree``, ``exact``, ``entail``, ``module:function`` of the
            working folder or an installed package, or the address of a webhook.
        model: asked by ``p-true``, ``verbal``, ``agree`` and ``entail``; None: the model of the request.
        samples: further answers that ``agree``, ``exact`` and ``entail`` ask for, at least 1.

    Raises:
        BadInput: the name is unknown, or the function cannot be imported or is not asynchronous.
    """
    scorers = {
        "logprob": Scorer(logprob, LOGPROBS),
        "p-true": Scorer(partial(p_true, model=model), {}, 0, 1, "a yes or no with log-probabilities"),
        "verbal": Scorer(partial(verbal, model=model), {}, 0, 1, "a number from 1 to 100, or 0"),
        "agree": Scorer(partial(agree, model=model, samples=samples), {}, samples, 1, "a plain list of numbers"),
        "exact": Scorer(partial(exact, samples=samples), {}, samples),
        "entail": Scorer(partial(entail, model=model, samples=samples), {}, samples, samples, "a yes or no"),
    }
    if name in scorers:
        return scorers[name]
    if "://" in name:
        return Scorer(partial(webhook, url=as_address("score", name)), {})
    if ":" not in name:
        raise BadInput(
            f"score: {quote(name)} is unknown; it must be {', '.join(scorers)}, module:function or https://…"
        )
    function = resolve("score", name)
    if not inspect.iscoroutinefunction(function):
        raise BadInput(f"score: {name} is no asynchronous function; it must be one: async def")
    return Scorer(function, {})


def column_of(name: str) -> str:
    """Return the column of a score in a log: ``score_p_true`` of ``p-true``."""
    return "score_" + re.sub(r"\W+", "_", name)


async def verdict_of(ask: Ask, request: Body) -> tuple[float, str]:
    """Return 1 for a yes, 0 for a no, or NaN if a second try fails, too; and the first reply's text."""
    text = (await ask(request)).text
    match = VERDICT_PATTERN.match(text)
    if match is None:
        # Small models often explain instead: ask once more, with a schema that allows only yes or no.
        second_text, _ = await by_schema(ask, request, "verdict", YES_OR_NO)
        match = VERDICT_PATTERN.match(second_text)
    return (math.nan if match is None else float(match[1].lower() == "yes")), text


async def error_of(ask: Ask, model: str, question: str, answer: str) -> float:
    """Return 1 if a model says that an answer is wrong, 0 if it is right; NaN if it does not say."""
    request: Body = {"model": model, "messages": [{"role": "user", "content": question}]}
    right, _ = await verdict_of(ask, _body(None, request, Reply(answer), P_TRUE))
    return 1.0 - right


async def by_schema(ask: Ask, request: Body, name: str, value: Body) -> tuple[str, str]:
    """Ask for a JSON value of the schema ``value`` under the key ``name``.

    Return the value as a text, "" if the reply does not follow the schema, and the whole reply.
    """
    schema = {"type": "object", "properties": {name: value}, "required": [name], "additionalProperties": False}
    response_format = {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}
    try:
        text = (await ask({**request, "response_format": response_format})).text
    except CallRefused:
        return "", ""
    try:
        return str(json.loads(text)[name]), text
    except (ValueError, KeyError, TypeError, RecursionError):
        return "", text


async def gather(*calls: Awaitable[Any]) -> list[Any]:
    """Run calls concurrently and return their results. An error is raised only after all calls have ended."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return list(results)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _body(model: str | None, request: Body, reply: Reply, prompt: str, **values: str) -> dict[str, Any]:
    """Return a body that asks about a reply, with few fields: some models refuse temperature or max_tokens."""
    conversation = [{"role": x["role"], "text": content_text(x.get("content"))} for x in request["messages"]]
    text = fill(prompt, conversation=_quoted(conversation), answer=_quoted(reply.text), **values)
    return {"model": model or request["model"], "messages": [{"role": "user", "content": text}]}


async def _sample_texts(request: Body, ask: Ask, count: int) -> list[str]:
    """Return the texts of further answers to a request."""
    sample = {name: value for name, value in request.items() if name not in ONLY_OF_ANSWERS}
    sample["temperature"] = SAMPLE_TEMPERATURE
    replies = await gather(*(ask(sample, number) for number in range(1, count + 1)))
    return [reply.text for reply in replies]
