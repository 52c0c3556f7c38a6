"""Ask a model, score its answers and judge whether they are wrong."""

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
from exaul.llm.calls import Calls
from exaul.llm.endpoint import Budget, CallFailed, CallRefused, Endpoint, price_of
from exaul.llm.endpoint_flags import EndpointFlags
from exaul.llm.matching import matches
from exaul.llm.prompts import filled, prompts
from exaul.llm.replies import Reply, likelihood
from exaul.llm.scores import yes_share

Messages = Sequence[dict[str, str]]
_VERDICT = re.compile(r"\W*(yes|no)\b", re.IGNORECASE)
_YES_OR_NO = {"type": "string", "enum": ["yes", "no"]}  # JSON schema for the second try of a verdict
LEAST_TOKENS = 64  # minimum of max_tokens for a verdict
LIKELIEST = 20  # value of top_logprobs for a verdict


class Answer(NamedTuple):
    """An answer and its scores."""

    reply: Reply
    samples: list[str]  # further answers to the same question
    agree: list[float]  # per sample: whether it agrees with the answer, in [0, 1]; NaN if unknown
    score_std: float  # in [0, 1]; NaN if unknown or not requested
    score_con: float  # likewise


class Verdict(NamedTuple):
    """Whether an answer is wrong: 1 means wrong, NaN unknown or not requested."""

    error: float  # of the judging model if there is one, else of the text match
    exact: float  # of the text match
    judge: float  # of the judging model
    judge_reply: str  # text of the judging model


class Asker:
    """Ask the models of a configuration and count what they cost.

    Every method that calls a model raises what ``Endpoint.ask`` raises.
    """

    def __init__(self, config: EndpointFlags, calls: Path, remembers: bool = False) -> None:
        """Open the file of replies; send nothing yet.

        Args:
            config: endpoints, models and scores.
            calls: SQLite file of the stored replies.
            remembers: whether refusals are stored, so that a refused request is not sent again.

        Raises:
            BadInput: the file or a prompt is unusable, or a budget is given and a price is unknown.
        """
        self.config, self.prompts, self.more = config, prompts(config.files), config.more
        self.judge_model, self.troubles = config.judge_model or config.model, Counter[str]()
        addresses = (
            (config.endpoint, config.key_variable),
            (
                config.judge_endpoint or config.endpoint,
                config.judge_key_variable or config.key_variable,
            ),
        )
        prices = {model: price(config, model) for model in (config.model, self.judge_model)}
        self._calls = Calls(calls)
        more = {name: getattr(config, name) for name in ("concurrent", "per_minute", "retries", "timeout")}
        try:
            self.budget = Budget(config.budget, self._calls.totals())
            if config.budget is not None and math.isnan(self.budget.spent):
                raise BadInput(f"budget: given, but {calls} has calls of unknown price; a new folder is needed")
            made = {
                (url, key): Endpoint(
                    url, self._calls, self.budget, key=key, prices=prices, remembers=remembers, **more
                )
                for url, key in dict.fromkeys(addresses)
            }
        except BadInput:
            self._calls.close()
            raise
        self._answers, self._verdicts = (made[address] for address in addresses)
        self._all = tuple(made.values())

    @property
    def judged(self) -> bool:
        """Whether any verdict is requested from the judging model."""
        return self.config.judge != "exact" or ("con" in self.config.scores and self.config.entail != "exact")

    def only_stored(self, stored: bool) -> None:
        """Use only stored replies from now on (True), or allow new calls again (False)."""
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
        """Return a reply of the answering model: the greedy one if ``sample`` is 0, else sample ``sample``."""
        config, fields = self.config, dict[str, Any]()
        if sample:
            fields = {"temperature": config.temperature, "seed": config.seed + sample}
        elif "std" in config.scores:
            fields = {"logprobs": True}
        return await self._answers.ask(self._request(config.model, messages, **fields), sample)

    async def say(self, messages: Messages, **fields: Any) -> Reply:
        """Return a reply of the judging model; fields are those of a chat completion."""
        most_tokens = max(LEAST_TOKENS, self.config.max_tokens)
        return await self._verdicts.ask(self._request(self.judge_model, messages, max_tokens=most_tokens, **fields))

    async def by_schema(self, messages: Messages, name: str, kind: Mapping[str, Any]) -> tuple[str | None, str]:
        """Ask the judging model for a JSON value of schema ``kind`` under the key ``name``.

        Return the value, None if the reply does not follow the schema, and the whole reply.
        """
        schema = {"type": "object", "properties": {name: kind}, "required": [name], "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}
        try:
            reply_text = (await self.say(messages, response_format=form)).text
        except CallRefused:
            return None, ""
        try:
            return str(json.loads(reply_text)[name]), reply_text
        except (ValueError, KeyError, TypeError, RecursionError):
            return None, reply_text

    async def probe(self, other_role: bool = False) -> None:
        """Ask each model for one reply, so that an unusable model is reported before the run starts.

        Args:
            other_role: whether the judging model also has another role, such as the user.

        Raises:
            BadInput: a model does not reply, or returns no log-probabilities although a score needs them.
        """
        config, question = self.config, [{"role": "user", "content": "What is the capital of France?"}]
        soft = config.entail == "llm-p" and "con" in config.scores
        fields = {"logprobs": True, "top_logprobs": LIKELIEST} if soft else {}
        calls = [
            (config.endpoint, config.model, partial(self.reply, question), "std" in config.scores, "std", "con")
        ]
        if self.judged or other_role:
            url = config.judge_endpoint or config.endpoint
            calls.append((url, self.judge_model, partial(self.say, question, **fields), soft, "llm-p", "std"))
        for url, model, call, wanted, what, instead in calls:
            try:
                reply = await call()
            except CallFailed as error:
                reply_text = f": {error.reply_text}" if error.reply_text else ""
                reply_text += "; is a server listening there?" if "connection" in str(error) else ""
                raise BadInput(f"{url}: {model} cannot be asked ({error}{reply_text})") from error
            if wanted and not reply.logprobs:
                other = f"--scores {instead}" if what == "std" else "--entail llm"
                raise BadInput(
                    f"{model}: returned no usable logprobs of its text, which {what} needs; "
                    f'reasoning models return none (try --extra \'{{"reasoning_effort": "none"}}\', or {other})'
                )

    async def answer(self, question: str, context: str = "", before: Messages = ()) -> Answer:
        """Answer a question after the messages ``before``, and score the answer."""
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
        """Judge an answer. If no right answers are known, the context decides."""
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
        """Return whether an answer follows from a sample, in [0, 1]."""
        if self.config.entail == "exact":
            return float(matches(sample, [answer]))
        prompt = filled(self.prompts["entail"], question=question, sample=sample, answer=answer)
        return (await self._verdict("entail", prompt, self.config.entail == "llm-p"))[0]

    async def _verdict(self, role: str, prompt: str, soft: bool) -> tuple[float, str]:
        """Return 1 for yes, 0 for no, or P(yes) if ``soft``; NaN if the second try fails, too."""
        asked = [{"role": "user", "content": prompt}]
        if soft:
            reply = await self.say(asked, logprobs=True, top_logprobs=LIKELIEST)
            likely = yes_share(reply.first)
            if not math.isnan(likely):
                return likely, reply.text
            self.troubles[f"verdicts without a likely yes or no, taken as words ({role})"] += 1
        reply = await self.say(asked)
        match = _VERDICT.match(reply.text)
        if match is None:
            again, _ = await self.by_schema(asked, "verdict", _YES_OR_NO)
            # Small models often explain instead: ask once more, with a schema that allows only yes or no.
            match = None if again is None else _VERDICT.match(again)
        if match is None:
            self.troubles[f"unreadable verdicts ({role})"] += 1
            return math.nan, reply.text
        return float(match[1].lower() == "yes"), reply.text


def _context_prefix(context: str) -> str:
    return f"Text: {context}\n\n" if context else ""


def price(config: EndpointFlags, model: str) -> tuple[float, float]:
    """Return dollars per million tokens of prompts and of replies.

    Raises:
        BadInput: a budget is given and the price is unknown.
    """
    each = (config.price[0], config.price[1]) if config.price else price_of(model)
    if config.budget is not None and any(map(math.isnan, each)):
        raise BadInput(f"budget: given, but the price of {model} is not known; pass --price")
    return each


async def together(*calls: Any) -> list[Any]:
    """Run calls concurrently and return their results. An error is raised only after all calls have ended."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return list(results)
