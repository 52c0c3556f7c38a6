"""What a model answers to a question, what the answer scores, and whether it is wrong."""

import asyncio
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from exaul.engine.checks import BadInput
from exaul.llm.asking import EndpointFlags
from exaul.llm.calls import Calls, Reply, likelihood
from exaul.llm.client import CallFailed, CallRefused
from exaul.llm.endpoint import Budget, Endpoint, price_of
from exaul.llm.matching import matches
from exaul.llm.prompts import filled, prompts

Messages = Sequence[dict[str, str]]
_VERDICT = re.compile(r"\W*(yes|no)\b", re.IGNORECASE)
_YES_OR_NO = {"type": "string", "enum": ["yes", "no"]}  # of the second try of a verdict
ROOM = 64  # tokens of a verdict, at the least
LIKELIEST = 20  # first tokens of a verdict that are asked for


class Answer(NamedTuple):
    """An answer and its scores."""

    reply: Reply
    samples: list[str]  # of the same question
    agree: list[float]  # of each sample whether the answer follows from it, in [0, 1]; NaN where it is not known
    score_std: float  # in [0, 1]; NaN where it is not known or not asked for
    score_con: float


class Verdict(NamedTuple):
    """Whether an answer is wrong: 1 is wrong, NaN where it is not known or not asked for."""

    error: float  # the judge's verdict, where one is asked; else that of the match
    exact: float
    judge: float
    judge_reply: str  # by the judge


class Asker:
    """Asks models, each for what a configuration says, and keeps what it costs."""

    def __init__(self, config: EndpointFlags, calls: Path, remembers: bool = False) -> None:
        """Ask nobody yet.

        Args:
            config: whom to ask, and for what.
            calls: file of the replies that were paid for.
            remembers: whether a request that was refused is not made again.

        Raises:
            BadInput: the file or a prompt cannot be used, or a budget is given and a price is not known.
        """
        self.config, self.prompts, self.more = config, prompts(config.files), config.more
        self.judge_model, self.troubles = config.judge_model or config.model, Counter[str]()
        there = (
            (config.endpoint, config.key_variable),
            (
                config.judge_endpoint or config.endpoint,
                config.judge_key_variable or config.key_variable,
            ),
        )
        prices = {model: price(config, model) for model in (config.model, self.judge_model)}
        self._calls = Calls(calls)
        self.purse = Budget(config.budget, spent=self._calls.dollars())
        more = {name: getattr(config, name) for name in ("concurrent", "per_minute", "retries", "timeout")}
        try:
            made = {
                (url, key): Endpoint(
                    url, self._calls, self.purse, key=key, prices=prices, remembers=remembers, **more
                )
                for url, key in dict.fromkeys(there)
            }
        except BadInput:
            self._calls.close()
            raise
        self._answers, self._verdicts = (made[place] for place in there)
        self._all = tuple(made.values())

    @property
    def judged(self) -> bool:
        """Whether the model of the verdicts is asked for any."""
        return self.config.judge != "exact" or ("con" in self.config.scores and self.config.entail != "exact")

    def only_stored(self, stored: bool) -> None:
        """From now on ask for nothing that is not there, or ask again."""
        for endpoint in self._all:
            endpoint.stored = stored

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for endpoint in self._all:
            await endpoint.close()
        self._calls.close()

    def _request(self, model: str, messages: Messages, **fields: Any) -> dict[str, Any]:
        common = {"max_tokens": self.config.max_tokens, "temperature": 0.0, "seed": self.config.seed}
        request = {"model": model, "messages": list(messages)} | common | fields | self.more
        return {name: value for name, value in request.items() if value is not None}

    async def reply(self, messages: Messages, sample: int = 0) -> Reply:
        """What the answering model replies.

        Args:
            messages: what it is told.
            sample: which of several, from 1; 0 for the greedy one.

        Raises:
            Failed, Spent, Absent: as ``Endpoint.ask``.
        """
        config, fields = self.config, dict[str, Any]()
        if sample:
            fields = {"temperature": config.temperature, "seed": config.seed + sample}
        elif "std" in config.scores:
            fields = {"logprobs": True}
        return await self._answers.ask(self._request(config.model, messages, **fields), sample)

    async def say(self, messages: Messages, **fields: Any) -> Reply:
        """What the model of the verdicts replies, in this role or another; fields are those of a chat completion.

        Raises:
            Failed, Spent, Absent: as ``Endpoint.ask``.
        """
        room = max(ROOM, self.config.max_tokens)
        return await self._verdicts.ask(self._request(self.judge_model, messages, max_tokens=room, **fields))

    async def by_schema(self, messages: Messages, name: str, kind: Mapping[str, Any]) -> tuple[str | None, str]:
        """Ask for one value as JSON: None where the endpoint keeps to no schema; and all that it says.

        Args:
            messages: what it is told.
            name: of the value.
            kind: its JSON schema.

        Raises:
            Failed, Spent, Absent: as ``Endpoint.ask``.
        """
        schema = {"type": "object", "properties": {name: kind}, "required": [name], "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}
        try:
            reply_text = (await self.say(messages, response_format=form)).text
        except CallRefused:
            return None, ""
        try:
            return str(json.loads(reply_text)[name]), reply_text
        except (ValueError, KeyError, TypeError):
            return None, reply_text

    async def probe(self, other_role: bool = False) -> None:
        """Ask each model for one reply, so that what cannot be asked for is known before anything is begun.

        Args:
            other_role: whether the model of the verdicts has another role, too.

        Raises:
            BadInput: there is no reply, or one without log-probabilities although they are wanted.
            Spent: the budget does not allow it.
        """
        config, question = self.config, [{"role": "user", "content": "What is the capital of France?"}]
        soft = config.entail == "llm-p" and "con" in config.scores
        fields = {"logprobs": True, "top_logprobs": LIKELIEST} if soft else {}
        calls = [
            (config.endpoint, config.model, partial(self.reply, question), "std" in config.scores, "std", "con")
        ]
        if self.judged or other_role:
            place = config.judge_endpoint or config.endpoint
            calls.append((place, self.judge_model, partial(self.say, question, **fields), soft, "llm-p", "std"))
        for place, model, call, wanted, what, instead in calls:
            try:
                reply = await call()
            except CallFailed as error:
                reply_text = f": {error.said}" if error.said else ""
                reply_text += "; is a server listening there?" if "connection" in str(error) else ""
                raise BadInput(f"{place}: {model} cannot be asked ({error}{reply_text})") from error
            if wanted and not reply.logprobs:
                other = f"--scores {instead}" if what == "std" else "--entail llm"
                raise BadInput(
                    f"{model}: returned no logprobs of its text, which {what} needs; reasoning models have none "
                    f'(try --extra \'{{"reasoning_effort": "none"}}\', or {other})'
                )

    async def answer(self, question: str, context: str = "", before: Messages = ()) -> Answer:
        """Answer a question, and score the answer.

        Args:
            question: to be answered.
            context: what it is about, or nothing.
            before: what was said before.

        Raises:
            Failed, Spent, Absent: as ``Endpoint.ask``.
        """
        prompt = filled(self.prompts["answer"], context=_context_prefix(context), question=question)
        asked = [*before, {"role": "user", "content": prompt}]
        config = self.config
        count = config.samples if "con" in config.scores else 0
        reply, *others = await together(*(self.reply(asked, sample) for sample in range(count + 1)))
        samples = [other.text for other in others]
        agree = await together(*(self._follows(question, sample, reply.text) for sample in samples))
        con = math.fsum(agree) / count if count and reply.text else math.nan
        std = likelihood(reply.logprobs) if "std" in config.scores else math.nan
        return Answer(reply, samples, agree, std, con)

    async def judge(self, question: str, answer: str, answers: Sequence[str], context: str = "") -> Verdict:
        """Say whether an answer is wrong.

        Args:
            question: that was asked.
            answer: that was given.
            answers: right ones, of which any will do; none where the context is all that is known.
            context: what the question is about, or nothing.

        Raises:
            Failed, Spent, Absent: as ``Endpoint.ask``.
        """
        exact, judged, reply_text = math.nan, math.nan, ""
        if answers and self.config.judge in ("exact", "both"):
            exact = float(not matches(answer, answers))
        if self.config.judge in ("llm", "both"):
            known = "; ".join(answers) if answers else "(none; the text above says what is right)"
            values = {"context": _context_prefix(context), "question": question, "answers": known, "answer": answer}
            right, reply_text = await self._verdict("judge", filled(self.prompts["judge"], **values), False)
            judged = 1.0 - right
        return Verdict(exact if self.config.judge == "exact" else judged, exact, judged, reply_text)

    async def _follows(self, question: str, sample: str, answer: str) -> float:
        """Whether an answer follows from a sample, in [0, 1]."""
        if self.config.entail == "exact":
            return float(matches(sample, [answer]))
        prompt = filled(self.prompts["entail"], question=question, sample=sample, answer=answer)
        return (await self._verdict("entail", prompt, self.config.entail == "llm-p"))[0]

    async def _verdict(self, role: str, prompt: str, soft: bool) -> tuple[float, str]:
        """1 for a yes, 0 for a no, or how likely a yes is; NaN where it is neither, also if asked again."""
        asked = [{"role": "user", "content": prompt}]
        if soft:
            reply = await self.say(asked, logprobs=True, top_logprobs=LIKELIEST)
            likely = _likely(reply)
            if not math.isnan(likely):
                return likely, reply.text
            self.troubles[f"verdicts without a likely yes or no, taken as words ({role})"] += 1
        reply = await self.say(asked)
        found = _VERDICT.match(reply.text)
        if found is None:
            again, _ = await self.by_schema(asked, "verdict", _YES_OR_NO)
            found = None if again is None else _VERDICT.match(again)
        if found is None:
            self.troubles[f"unreadable verdicts ({role})"] += 1
            return math.nan, reply.text
        return float(found[1].lower() == "yes"), reply.text


def _context_prefix(context: str) -> str:
    """What a prompt begins with, where there is something to read."""
    return f"Text: {context}\n\n" if context else ""


def price(config: EndpointFlags, model: str) -> tuple[float, float]:
    """Dollars for a million tokens of prompts, and of replies.

    Raises:
        BadInput: a budget is given, and the price is not known.
    """
    each = (config.price[0], config.price[1]) if config.price else price_of(model)
    if config.budget is not None and any(map(math.isnan, each)):
        raise BadInput(f"budget: given, but the price of {model} is not known; --price says it")
    return each


def _likely(reply: Reply) -> float:
    """The probability of a yes among yes and no, of the first token; NaN where neither is likely."""
    chance = {"yes": 0.0, "no": 0.0}
    for token, logprob in reply.first:
        word = token.strip().lower()
        if word in chance:
            chance[word] += math.exp(logprob)
    both = sum(chance.values())
    return chance["yes"] / both if both > 0 else math.nan


async def together(*calls: Any) -> list[Any]:
    """The results of some calls that run at once; an error of one is raised when all have ended."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return list(results)
