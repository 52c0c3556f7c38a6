"""Endpoints, models and scores: the flags that the commands which call models share."""

import json
import math
import os
from functools import cached_property
from typing import Any

from exaul.engine.checks import (
    BadInput,
    Configuration,
    check_count,
    check_holds,
    check_installed,
    check_known,
    check_not_negative,
    check_positive,
    setting,
)
from exaul.engine.progress import MODES
from exaul.llm.endpoint import MIN_KEY, as_address, check_variable
from exaul.llm.prompts import read_prompts
from exaul.llm.scores import column_of, scorer_of

JUDGES = "exact", "llm", "both"
PACKAGES = "openai", "aiolimiter", "genai_prices"

RESERVED_FIELDS = (  # fields of a request that ``extra`` may not set
    *("model", "messages", "temperature", "seed", "n", "stream", "logprobs", "top_logprobs", "response_format"),
    *("extra_headers", "extra_query", "extra_body"),
)


class EndpointFlags(Configuration):
    """Endpoints, models and scores."""

    out: str = setting("", "folder of the results (required); the same command continues an interrupted run", "DIR")
    endpoint: str = setting("", "OpenAI-compatible endpoint, such as http://127.0.0.1:8000/v1 (required)", "URL")
    model: str = setting("", "model that answers, as the endpoint names it (required)", "NAME")
    question_column: str | None = setting(
        None, "column of the questions (default: question), or of live user's texts (context)", "COL"
    )
    answer_column: str | None = setting(
        None, "column of the right answers (default: answers, or answer), or of those to score (answer)", "COL"
    )
    key_variable: str = setting("OPENAI_API_KEY", "environment variable that holds the endpoint's key", "NAME")
    score: tuple[str, ...] = setting(
        ("logprob",),
        "scores of an answer: logprob, p-true, verbal, agree, exact, entail, module:function, https://...",
        "NAME",
    )
    samples: int = setting(5, "sampled answers per question, for agree, exact and entail", "N")
    judge: str = setting(
        "exact", "test whether an answer is right: exact (match of texts), llm (verdict), both", "NAME"
    )
    judge_endpoint: str | None = setting(None, "endpoint of the judge (default: --endpoint)", "URL")
    judge_model: str | None = setting(
        None, "model that judges, and that p-true, verbal, agree and entail ask (default: --model)", "NAME"
    )
    judge_key_variable: str | None = setting(None, "environment variable that holds the judge's key", "NAME")
    temperature: float = setting(1.0, "temperature of the samples; answers and verdicts have 0", "X")
    max_tokens: int = setting(64, "maximum tokens of an answer", "N")
    seed: int = setting(0, "seed of the samples and of all random choices", "N")
    extra: str = setting("{}", "further fields of each request, as JSON; null removes a field", "JSON")
    prompt: tuple[str, ...] = setting((), "prompt files by role, such as judge=my-judge.txt", "ROLE=FILE")
    concurrent: int = setting(16, "concurrent calls", "N")
    per_minute: int | None = setting(None, "maximum calls per minute", "N")
    retries: int = setting(6, "retries of a call that is throttled, disconnected or timed out", "N")
    timeout: float = setting(60.0, "timeout of one try, in seconds", "X")
    price: tuple[float, ...] = setting(
        (), "dollars per million tokens of prompts, and of replies (default: list prices)", "X"
    )
    budget: float | None = setting(None, "maximum dollars spent on the folder; then no more calls are made", "X")
    dry_run: bool = setting(False, "print the number of calls, and make none")
    progress: str = setting("bar", f"what to report on stderr: {', '.join(MODES)}", "MODE")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_installed(PACKAGES, "language models need: uv run --extra llm exaul")
        check_holds("score", self.score, bool(self.score), "one name or more")
        for name in self.score:
            scorer_of(name)
        if len(set(map(column_of, self.score))) < len(self.score):
            raise BadInput(f"score: {', '.join(self.score)} found; each needs a column of its own")
        check_known("judge", (self.judge,), JUDGES)
        check_known("progress", (self.progress,), MODES)
        for name in ("samples", "max_tokens", "concurrent", "per_minute"):
            check_count(name, getattr(self, name))
        check_count("retries", self.retries, 0)
        check_not_negative("temperature", self.temperature)
        for name in ("timeout", "budget"):
            check_positive(name, getattr(self, name))
        check_holds("seed", self.seed, 0 <= self.seed < 2**31, "an integer from 0 to 2**31 - 1")
        is_pair = len(self.price) in (0, 2) and all(0 <= x < math.inf for x in self.price)
        check_holds("price", self.price, is_pair, "two finite numbers >= 0")
        for name in ("endpoint", "judge_endpoint"):
            if getattr(self, name):
                object.__setattr__(self, name, as_address(name, getattr(self, name)))
        for flag in ("key_variable", "judge_key_variable"):
            variable = getattr(self, flag) or None  # local servers need no key
            check_variable(flag, variable, is_set=variable not in (None, EndpointFlags.key_variable))
            key = os.environ.get(variable or "", "")
            for name in ("endpoint", "judge_endpoint", "extra"):
                if len(key) >= MIN_KEY and key in (getattr(self, name) or ""):
                    raise BadInput(f"{name}: it contains the key, which would be saved in the results")
        self.extra_fields, self.prompts  # noqa: B018  # the properties check both fields
        for name in ("out", "endpoint", "model"):
            if not getattr(self, name):
                raise BadInput(f"{name}: missing; --{name} is required")

    @cached_property
    def extra_fields(self) -> dict[str, Any]:
        """The further fields of each request.

        Raises:
            BadInput: ``extra`` is not a JSON object, or sets a reserved field.
        """
        try:
            fields = json.loads(self.extra)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"extra: {self.extra!r} found; it must be a JSON object ({error})") from error
        check_holds("extra", self.extra, isinstance(fields, dict), "a JSON object")
        for name in fields:
            if name in RESERVED_FIELDS and not (name == "seed" and fields[name] is None):
                raise BadInput(f"extra: {name} found; it is set here, and cannot be changed")
        return dict(fields)

    @cached_property
    def prompts(self) -> dict[str, str]:
        """The prompts by role; BadInput if one cannot be used."""
        return read_prompts(self.prompt)

    def describe_calls(self, answers: int, noun: str, per_answer: int) -> str:
        """Return a text: the calls for scores and verdicts of ``answers``, and ``per_answer`` more for each."""
        scorers = [scorer_of(name, samples=self.samples) for name in self.score]
        score_calls = max(scorer.samples for scorer in scorers) + sum(scorer.verdicts for scorer in scorers)
        calls = f"{answers:,} {noun}, {answers * (per_answer + (self.judge != 'exact') + score_calls):,} calls"
        return f"{calls}, plus one test call of each model, retries, and what scores of yours ask"
