"""What it would take to ask: calls, tokens and dollars, as modelled before anything is asked."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from exaul.llm.answering import ROOM, price
from exaul.llm.asking import EndpointFlags
from exaul.llm.endpoint import CHARACTERS
from exaul.llm.prompts import prompts
from exaul.llm.questions import Question


class ExpectedCalls(NamedTuple):
    """Calls of one kind."""

    model: str
    calls: int
    prompt: float  # characters of a prompt, in the mean
    reply: int  # tokens of a reply, at most


def expected_readings(questions: Sequence[Question]) -> tuple[float, float]:
    """Characters of a question that are read by who answers it, and by who judges the answer, in the mean."""
    read = fmean(len(one.question) + len(one.context) for one in questions)
    return read, read + fmean(sum(map(len, one.answers)) for one in questions)


def expected_answers(config: EndpointFlags, many: int, read: float, judged: float) -> dict[str, ExpectedCalls]:
    """What it takes to answer and to judge.

    Args:
        config: whom to ask, and for what.
        many: questions.
        read: characters that who answers reads beside the prompt, in the mean.
        judged: likewise, who judges.
    """
    own, judge = prompts(config.files), config.judge_model or config.model
    con = config.samples if "con" in config.scores else 0
    compared, verdicts = con * (config.entail != "exact"), int(config.judge != "exact")
    answer, room = config.max_tokens * CHARACTERS, max(ROOM, config.max_tokens)
    return {
        "answers": ExpectedCalls(config.model, many * (1 + con), len(own["answer"]) + read, config.max_tokens),
        "comparisons": ExpectedCalls(judge, many * compared, len(own["entail"]) + judged + 2 * answer, room),
        "verdicts": ExpectedCalls(judge, many * verdicts, len(own["judge"]) + judged + answer, room),
    }


def describe_expected(config: EndpointFlags, what: str, needs: Mapping[str, ExpectedCalls]) -> str:
    """Say what it takes.

    Args:
        config: whom to ask.
        what: is done, and how often.
        needs: by kind of call.

    Raises:
        BadInput: a budget is given, and a price is not known.
    """
    total = sum(need.calls for need in needs.values())
    lines = [f"{what}, {total:,} calls; one of each model at first, and retries, on top:"]
    cost = 0.0
    for kind, (model, calls, prompt, reply) in needs.items():
        if calls:
            asked, written = round(calls * prompt / CHARACTERS), calls * reply
            each = price(config, model)
            cost += (asked * each[0] + written * each[1]) / 1e6
            lines.append(f"  {calls:,} of {kind} by {model}: {asked:,} tokens of prompts, {written:,} of replies")
    lines.append("cost unknown: --price says it" if math.isnan(cost) else f"${cost:.2f}, as modelled")
    return "\n".join([*lines, "(modelled: four characters a token, and replies as long as they may be)"])
