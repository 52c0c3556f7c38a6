"""Scores of answers: how sure a model is of its answer in a chat completion.

A scorer is a function ``async (request, completion, ask) -> float``:

- ``request`` is the body that asked for the answer; it has ``model`` and ``messages``,
- ``completion`` is the checked reply: it has one choice, whose message has a text,
- ``ask`` sends another body to the same endpoint and returns its checked completion.

The score is in [0, 1], or NaN if the answer has none. A scorer may raise anything; then there is no score, too.
"""

import asyncio
import inspect
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple

from exaul.engine.checks import BadInput, quote
from exaul.engine.registry import resolve
from exaul.llm.endpoint_flags import as_address
from exaul.llm.matching import matches
from exaul.llm.prompts import filled
from exaul.llm.replies import check_size, content_text, first_tokens, score_of, text_of

SAMPLE_TEMPERATURE = 1.0  # of samples, as in ``exaul collect``
# with the same seed, or with these of a client, all samples could be the same
NOT_OF_SAMPLES = "seed", "top_p", "logit_bias", "frequency_penalty", "presence_penalty", "logprobs", "top_logprobs"
LIKELIEST = 20  # value of top_logprobs, the largest that endpoints allow
WEBHOOK_SECONDS = 60.0  # for the reply of a program that scores
NONE_SAME = re.compile(r"\W*none\b", re.IGNORECASE)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
PROBE = "What is the capital of France?"

Body = Mapping[str, Any]
Ask = Callable[[Body], Awaitable[Body]]
Score = Callable[[Body, Body, Ask], Awaitable[float]]

# The conversation is quoted as JSON, so that a text within it cannot look like the end of the quotation.
P_TRUE = """Here is a conversation, and a proposed answer to its last message.

Conversation: {conversation}
Proposed answer: {answer}

Is the proposed answer right? Reply with yes or no."""

VERBAL = """Here is a conversation, and a proposed answer to its last message.

Conversation: {conversation}
Proposed answer: {answer}

How likely is it, in percent, that the proposed answer is right? Reply with a number from 0 to 100 alone."""

AGREE = """Here is a conversation, a proposed answer to its last message, and a list of other answers.

Conversation: {conversation}
Proposed answer: {answer}

{samples}

Which of the other answers mean the same as the proposed answer? Reply with their numbers alone, such as 1, 3, or
none."""


class Scorer(NamedTuple):
    """A scorer, and what it needs of the request for the answer."""

    score: Score
    fields: dict[str, Any]  # of the request for the answer


async def logprob(request: Body, completion: Body, ask: Ask) -> float:
    """Return the length-normalised likelihood of the answer; NaN if it has no usable logprobs."""
    try:
        return score_of(completion["choices"][0])
    except (ValueError, LookupError, TypeError, AttributeError):  # of logprobs that are none
        return math.nan


async def p_true(request: Body, completion: Body, ask: Ask, *, model: str | None = None) -> float:
    """Return P(yes) of a model that is asked whether the answer is right; NaN if it returns no logprobs."""
    prompt = _filled(P_TRUE, request, completion)
    asked = _request(model, request, prompt) | {"logprobs": True, "top_logprobs": LIKELIEST}
    return yes_share(first_tokens((await ask(asked))["choices"][0]))


async def verbal(request: Body, completion: Body, ask: Ask, *, model: str | None = None) -> float:
    """Return the percentage that a model states for the answer, as a share; NaN if it states none.

    A number between 0 and 1 may be a share, and so it is none, too.
    """
    reply = await _text(ask, _request(model, request, _filled(VERBAL, request, completion)))
    number = NUMBER.search(reply)
    percent = float(number[0]) if number else math.nan
    return percent / 100 if percent == 0 or 1 <= percent <= 100 else math.nan


async def exact(request: Body, completion: Body, ask: Ask, *, samples: int) -> float:
    """Return the share of samples whose text is that of the answer, as ``matching.matches`` compares them."""
    answer = text_of(completion["choices"][0])
    texts = await _samples(request, ask, samples)
    return math.fsum(matches(text, [answer]) for text in texts) / samples


async def agree(request: Body, completion: Body, ask: Ask, *, samples: int, model: str | None = None) -> float:
    """Return the share of samples that mean the same as the answer, by one reply of a model; NaN if unclear."""
    texts = await _samples(request, ask, samples)
    others = "\n".join(f"{number}. {_quoted(text)}" for number, text in enumerate(texts, 1))
    reply = await _text(ask, _request(model, request, _filled(AGREE, request, completion, samples=others)))
    if NONE_SAME.match(reply):
        return 0.0
    numbers = set(NUMBER.findall(reply))
    known = numbers <= {str(number) for number in range(1, samples + 1)}
    return len(numbers) / samples if numbers and known else math.nan


async def webhook(request: Body, completion: Body, ask: Ask, *, url: str) -> float:
    """Return the score in the reply ``{"score": x}`` of a program that gets the request and the completion."""
    from exaul.llm.http import BoundedClient

    # A client for each call: it is rare beside the tokens of the model, and nothing is left open.
    async with BoundedClient(WEBHOOK_SECONDS) as client:
        body = json.dumps({"request": request, "completion": completion}).encode()  # httpx2 would refuse NaN
        response = await client.post(url, content=body, headers={"Content-Type": "application/json"})
    if response.status_code != 200:
        raise ValueError(f"status {response.status_code}")
    return json.loads(check_size(response.content))["score"]  # the caller checks it


def scorer_of(name: str, model: str | None = None, samples: int = 5) -> Scorer:
    """Return the scorer of a name.

    Args:
        name: ``logprob``, ``p-true``, ``verbal``, ``agree``, ``exact``, ``module:function`` of the working folder
            or an installed package, or the address of a webhook.
        model: asked by ``p-true``, ``verbal`` and ``agree``; None: the model of the request.
        samples: further answers that ``agree`` and ``exact`` ask for, at least 1.

    Raises:
        BadInput: the name is unknown, or the function cannot be imported or is not asynchronous.
    """
    known: dict[str, Score] = {
        "logprob": logprob,
        "p-true": partial(p_true, model=model),
        "verbal": partial(verbal, model=model),
        "agree": partial(agree, model=model, samples=samples),
        "exact": partial(exact, samples=samples),
    }
    if name in known:
        return Scorer(known[name], {"logprobs": True} if name == "logprob" else {})
    if "://" in name:
        return Scorer(partial(webhook, url=as_address("score", name)), {})
    if ":" not in name:
        raise BadInput(
            f"score: {quote(name)} is unknown; it must be {', '.join(known)}, module:function or https://…"
        )
    function = resolve("score", name, {}, (FunctionType,))
    if not inspect.iscoroutinefunction(function):
        raise BadInput(f"score: {name} is no asynchronous function; it must be one: async def")
    return Scorer(function, {})


async def probe(scorer: Scorer, model: str, ask: Ask) -> bool:
    """Return whether the answer of a model to a simple question has a score.

    Raises:
        Exception: anything that the scorer or ``ask`` raises.
    """
    request = {"model": model, "messages": [{"role": "user", "content": PROBE}], **scorer.fields}
    return not math.isnan(await scorer.score(request, await ask(request), ask))


def yes_share(first: Iterable[tuple[str, float]]) -> float:
    """Return P(yes) / (P(yes) + P(no)) of a first token, of tokens and their logprobs; NaN if it can be neither."""
    chance = {"yes": 0.0, "no": 0.0}
    for token, logprob in first:
        word = token.strip().lower()
        if word in chance:
            chance[word] += math.exp(logprob)
    both = sum(chance.values())
    return chance["yes"] / both if both > 0 else math.nan


def _filled(prompt: str, request: Body, completion: Body, **values: str) -> str:
    conversation = [
        {"role": each["role"], "text": content_text(each.get("content"))} for each in request["messages"]
    ]
    answer = text_of(completion["choices"][0])
    return filled(prompt, conversation=_quoted(conversation), answer=_quoted(answer), **values)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _request(model: str | None, request: Body, prompt: str) -> dict[str, Any]:
    """Return a body with as few fields as there can be: some models refuse temperature or max_tokens."""
    return {"model": model or request["model"], "messages": [{"role": "user", "content": prompt}]}


async def _samples(request: Body, ask: Ask, count: int) -> list[str]:
    """Return the texts of further answers to a request."""
    sample = {name: value for name, value in request.items() if name not in NOT_OF_SAMPLES}
    sample["temperature"] = SAMPLE_TEMPERATURE
    async with asyncio.TaskGroup() as group:  # the first failure ends all
        tasks = [group.create_task(_text(ask, sample)) for _ in range(count)]
    return [task.result() for task in tasks]


async def _text(ask: Ask, request: Body) -> str:
    return text_of((await ask(request))["choices"][0])
