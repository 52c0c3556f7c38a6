"""Ask a model, score its answers and judge whether they are wrong."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from exaul.engine.checks import BadInput
from exaul.engine.manifest import timestamp
from exaul.llm.calls import BudgetReached, CallFailed, Calls
from exaul.llm.endpoint import Endpoint, price_of
from exaul.llm.flags import EndpointFlags
from exaul.llm.prompts import fill
from exaul.llm.questions import Question
from exaul.llm.replies import Reply, matches
from exaul.llm.scores import PROBE, TOP_LOGPROBS, Ask, Body, gather, scorer_of, verdict_of

Messages = Sequence[dict[str, str]]
MIN_VERDICT_TOKENS = 64  # minimum of max_tokens for a verdict


class Answer(NamedTuple):
    """An answer with its scores, and whether it is wrong: 1 means wrong, NaN unknown or not requested."""

    reply: Reply
    samples: list[str]  # further answers to the same question that a score asked for
    scores: dict[str, float]  # by name, in [0, 1]; NaN if unknown
    error: float = math.nan  # of the judging model if there is one, else of the text match
    error_exact: float = math.nan  # of the text match
    error_judge: float = math.nan  # of the judging model
    judge_reply: str = ""  # text of the judging model


class Asker:
    """Ask the models of a configuration and count what they cost.

    Every method that calls a model raises what ``Endpoint.ask`` raises.
    """

    def __init__(self, config: EndpointFlags, path: Path, is_dialogue: bool = False) -> None:
        """Open the file of replies; send nothing yet.

        In a dialogue the judging model asks, too, and a refused request is not sent again.

        Raises:
            BadInput: the file is unusable, or a budget is given and a price is unknown.
        """
        self.config, self._is_dialogue = config, is_dialogue
        self.judge_model, self.irregular = config.judge_model or config.model, Counter[str]()
        self.scorers = {name: scorer_of(name, self.judge_model, config.samples) for name in config.score}
        prices = {model: config.price or price_of(model) for model in (config.model, self.judge_model)}
        for model, price in prices.items():
            if config.budget is not None and any(map(math.isnan, price)):
                raise BadInput(f"budget: given, but the price of {model} is not known; pass --price")
        judge = config.judge_endpoint or config.endpoint, config.judge_key_variable or config.key_variable
        addresses = (config.endpoint, config.key_variable), judge
        self.calls = Calls(path, config.budget)
        try:
            endpoints = {x: Endpoint(*x, self.calls, config, prices, is_dialogue) for x in {*addresses}}
        except BadInput:
            self.calls.close()
            raise
        self._answerer, self._judge = (endpoints[address] for address in addresses)
        self._usage = self.calls.usage()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for endpoint in {self._answerer, self._judge}:
            await endpoint.close()
        self._usage = self.calls.usage()
        self.calls.close()

    def record(self, manifest: dict[str, Any], left_out: Mapping[str, int]) -> None:
        """Add the usage, the systems, and counts of missing or irregular answers by reason to a manifest."""
        manifest |= {"usage": self._usage, "systems": self.calls.systems}
        manifest["left out"] = dict(Counter(left_out) + self.irregular)
        manifest["end"] = timestamp()

    def _request(self, model: str, messages: Messages, **fields: Any) -> dict[str, Any]:
        common = {"max_tokens": self.config.max_tokens, "temperature": 0.0, "seed": self.config.seed}
        request = {"model": model, "messages": list(messages)} | common | fields | self.config.extra_fields
        return {name: value for name, value in request.items() if value is not None}

    def answer_request(self, messages: Messages) -> dict[str, Any]:
        """Return the body that asks for the greedy answer to messages, after the system message if there is one."""
        fields = {name: x for scorer in self.scorers.values() for name, x in scorer.fields.items()}
        system = self.config.prompts["system"]
        first = [{"role": "system", "content": system}] if system else []
        return self._request(self.config.model, [*first, *messages], **fields)

    def answer_prompt(self, question: str, context: str) -> dict[str, str]:
        """Return the message that asks a question."""
        prompt = fill(self.config.prompts["answer"], context=_context_prefix(context), question=question)
        return {"role": "user", "content": prompt}

    async def ask(self, body: Body, sample: int = 0) -> Reply:
        """Return a sample of an answer, or, if ``sample`` is 0, the reply to any other body.

        Raises:
            ValueError: a score asks a model that is not in the configuration, and so has no price.
        """
        config = self.config
        if sample:
            fields = {"temperature": config.temperature, "seed": config.seed + sample}
            return await self._answerer.ask(self._request(**{**body, **fields}), sample)
        if body["model"] not in (config.model, self.judge_model):
            raise ValueError(f"{body['model']}: it must be the model of the answer, or that of the judge")
        max_tokens = max(MIN_VERDICT_TOKENS, config.max_tokens)
        endpoint = self._judge if body["model"] == self.judge_model else self._answerer
        return await endpoint.ask(self._request(**{"max_tokens": max_tokens, **body}))

    async def probe(self) -> None:
        """Ask each model for one reply, so that an unusable model is reported before the run starts.

        Raises:
            BadInput: a model does not reply, or returns no log-probabilities although a score needs them.
        """
        config, question = self.config, [{"role": "user", "content": PROBE}]
        await self._check(config.endpoint, self._answerer.ask, self.answer_request(question), "logprob")
        if config.judge != "exact" or self._is_dialogue or any(scorer.verdicts for scorer in self.scorers.values()):
            likeliest = TOP_LOGPROBS if "p-true" in config.score else {}
            body = {"model": self.judge_model, "messages": question, **likeliest}
            await self._check(config.judge_endpoint or config.endpoint, self.ask, body, "p-true")

    async def _check(self, url: str, ask: Ask, body: Body, score: str) -> None:
        model = body["model"]
        try:
            reply = await ask(body)
        except CallFailed as error:
            reply_text = f": {error.reply_text}" if error.reply_text else ""
            reply_text += "; is a server listening there?" if "connection" in str(error) else ""
            raise BadInput(f"{url}: {model} cannot be asked ({error}{reply_text})") from error
        if score in self.config.score and not (reply.first if score == "p-true" else reply.logprobs):
            raise BadInput(
                f"{model}: returned no usable logprobs of its text, which {score} needs; "
                'reasoning models return none (try --extra \'{"reasoning_effort": "none"}\', or --score agree)'
            )

    async def answer(self, question: Question, messages: Messages = ()) -> Answer:
        """Answer a question that follows ``messages``, score the answer, and judge it.

        The judge reads the context, too. If there are no right answers, it decides, and the judge alone reads it.
        """
        text = question.context if question.answers else ""
        request = self.answer_request([*messages, self.answer_prompt(question.question, text)])
        reply = await self._answerer.ask(request)
        calls = self.scored(request, reply), self._verdict(question, reply.text)
        scored, verdict = await gather(*calls)
        answer: Answer = scored._replace(**verdict)
        self.irregular["unreadable verdicts"] += self.config.judge != "exact" and math.isnan(answer.error_judge)
        return answer

    async def scored(self, request: Body, reply: Reply) -> Answer:
        """Return an answer with its scores; an answer without text has no scores."""
        samples = dict[int, str]()

        async def ask(body: Body, sample: int = 0) -> Reply:
            result = await self.ask(body, sample)
            if sample:
                samples[sample] = result.text
            return result

        async def score(name: str) -> float:
            try:
                value = float(await self.scorers[name].score(request, reply, ask))
            except (CallFailed, BudgetReached):
                raise
            except Exception as error:  # of a user's scorer; its text may be long
                self.irregular[f"{name} failed ({type(error).__name__})"] += 1
                return math.nan
            if 0 <= value <= 1:
                return value
            self.irregular[f"answers without {name}" if math.isnan(value) else f"{name} outside of [0, 1]"] += 1
            return math.nan

        names = list(self.scorers) if reply.text else []
        values = dict.fromkeys(self.scorers, math.nan)
        values |= zip(names, await gather(*map(score, names)), strict=True)
        return Answer(reply, [samples[number] for number in sorted(samples)], values)

    async def _verdict(self, question: Question, answer: str) -> dict[str, float | str]:
        """Return the fields of ``Answer`` that say whether an answer is wrong."""
        answers, exact, judged, reply_text = question.answers, math.nan, math.nan, ""
        if answers and self.config.judge in ("exact", "both"):
            exact = float(not matches(answer, answers))
        if self.config.judge in ("llm", "both"):
            texts = "; ".join(answers) if answers else "(none; the text above says what is right)"
            values = {"context": _context_prefix(question.context), "question": question.question}
            prompt = fill(self.config.prompts["judge"], **values, answers=texts, answer=answer)
            messages = [{"role": "user", "content": prompt}]
            right, reply_text = await verdict_of(self.ask, {"model": self.judge_model, "messages": messages})
            judged = 1.0 - right
        error = exact if self.config.judge == "exact" else judged
        return {"error": error, "error_exact": exact, "error_judge": judged, "judge_reply": reply_text}


def _context_prefix(context: str) -> str:
    return f"Text: {context}\n\n" if context else ""
