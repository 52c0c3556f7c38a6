"""Expected calls, tokens and dollars of a run, computed before any call."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from exaul.llm.asker import LEAST_TOKENS, price
from exaul.llm.endpoint import CHARACTERS
from exaul.llm.endpoint_flags import EndpointFlags
from exaul.llm.prompts import prompts
from exaul.llm.questions import Question


class ExpectedCalls(NamedTuple):
    """Expected calls of one kind."""

    model: str
    calls: int
    prompt: float  # mean characters of a prompt
    reply: int  # maximum tokens of a reply


def expected_readings(questions: Sequence[Question]) -> tuple[float, float]:
    """Return the mean characters of a question as the answering model reads it, and as the judge reads it."""
    read = fmean(len(question.question) + len(question.context) for question in questions)
    return read, read + fmean(sum(map(len, question.answers)) for question in questions)


def expected_answers(config: EndpointFlags, many: int, read: float, judged: float) -> dict[str, ExpectedCalls]:
    """Return the expected calls to answer and judge ``many`` questions.

    ``read`` and ``judged`` are the mean characters that the answering model and the judge read besides the prompts.
    """
    templates, judge = prompts(config.files), config.judge_model or config.model
    con = config.samples if "con" in config.scores else 0
    compared, verdicts = con * (config.entail != "exact"), int(config.judge != "exact")
    answer, most_tokens = config.max_tokens * CHARACTERS, max(LEAST_TOKENS, config.max_tokens)
    return {
        "answers": ExpectedCalls(
            config.model, many * (1 + con), len(templates["answer"]) + read, config.max_tokens
        ),
        "comparisons": ExpectedCalls(
            judge, many * compared, len(templates["entail"]) + judged + 2 * answer, most_tokens
        ),
        "verdicts": ExpectedCalls(judge, many * verdicts, len(templates["judge"]) + judged + answer, most_tokens),
    }


def describe_expected(config: EndpointFlags, what: str, needs: Mapping[str, ExpectedCalls]) -> str:
    """Return a description of the expected calls and their cost; ``what`` names the run and its size.

    Raises:
        BadInput: a budget is given and a price is unknown.
    """
    total = sum(need.calls for need in needs.values())
    lines = [f"{what}, {total:,} calls, plus one test call of each model, and retries:"]
    cost = 0.0
    for kind, (model, calls, prompt, reply) in needs.items():
        if calls:
            asked, written = round(calls * prompt / CHARACTERS), calls * reply
            each = price(config, model)
            cost += (asked * each[0] + written * each[1]) / 1e6
            lines.append(f"  {calls:,} of {kind} by {model}: {asked:,} tokens of prompts, {written:,} of replies")
    lines.append("cost unknown: set it with --price" if math.isnan(cost) else f"${cost:.2f}, modelled")
    return "\n".join([*lines, "(modelled: four characters per token, replies of maximum length)"])
