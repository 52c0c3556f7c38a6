"""``exaul audits``: show the audited answers without a verdict, or let a model judge them."""

import asyncio
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING
from datetime import UTC, datetime
from typing import Any

from exaul.commands.flags import Command
from exaul.commands.terminal import INCOMPLETE_STATUS, show
from exaul.engine.checks import BadInput, Configuration, join_lines, quote, setting
from exaul.llm.endpoint import as_address, check_variable


class AuditsFlags(Configuration):
    """The service with the audits, and their judge. Every field is a flag of ``exaul audits``."""

    where: str = setting(
        MISSING, "address of a running service, http://HOST:PORT, or the file of one that is stopped", "URL|FILE"
    )
    token_variable: str | None = setting(
        None, "environment variable that holds a token of the service with the scope audit", "NAME"
    )
    judge_model: str | None = setting(None, "model that judges (default: print the audits)", "NAME")
    endpoint: str = setting("", "OpenAI-compatible endpoint of the judge, such as http://127.0.0.1:8000/v1", "URL")
    key_variable: str | None = setting(None, "environment variable that holds the endpoint's key", "NAME")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.judge_model is None) != (self.endpoint == ""):
            raise BadInput("judge_model, endpoint: one of the two is missing; a judge needs both")
        if self.endpoint:
            object.__setattr__(self, "endpoint", as_address("endpoint", self.endpoint))
        for name in ("token_variable", "key_variable"):
            check_variable(name, getattr(self, name), is_set=True)


def main(arguments: Mapping[str, Any]) -> int:
    """Print the open audits, or let a model judge them and print how many are right and wrong.

    Return INCOMPLETE_STATUS if it gives a clear verdict on none.
    """
    config = AuditsFlags(**arguments)
    from exaul.serving.http.audits import PAGE, errors_by_model, open_queue

    with open_queue(config.where, config.token_variable) as (read_page, give_verdict):
        total, rows = read_page(0)
        if config.judge_model is None:
            above = f", the oldest {PAGE} above" if total > PAGE else ""
            show(*map(_describe, rows), f"{total} open audit{'s' * (total != 1)}{above}")
            return 0
        counts, remaining = Counter[str](), 0  # audits that stay open; the next page begins after them
        while rows and counts.total() < total:  # stop although new audits arrive
            errors = errors_by_model(config.judge_model, config.endpoint, config.key_variable, rows)
            for row, error in zip(rows, asyncio.run(errors), strict=True):
                if math.isnan(error):
                    counts["no text is kept" if row["text"] is None else "no clear verdict"] += 1
                    remaining += 1
                elif (outcome := give_verdict(row["id"], error)) == "counted":
                    counts["wrong" if error else "right"] += 1
                else:
                    counts[outcome] += 1
            _, rows = read_page(remaining)
    text = ", ".join(f"{outcome}: {count}" for outcome, count in sorted(counts.items()))
    judged = counts["right"] + counts["wrong"]
    show(f"{config.judge_model} judged {judged} of {total} open audits{f' ({text})' * bool(text)}")
    return INCOMPLETE_STATUS if judged == 0 < counts["no clear verdict"] else 0


def _describe(row: Mapping[str, Any]) -> str:
    time = datetime.fromtimestamp(row["at"], UTC).isoformat(timespec="minutes")
    head = f"{join_lines(row['id'])}, {time}, key {quote(row['key'])}, score {row['score']:.4g}"
    if row["text"] is None:
        return f"{head}\nno text is kept"
    return f"{head}\nquestion: {join_lines(row['question'])}\nanswer: {join_lines(row['text'])}"


COMMANDS = {"audits": Command((AuditsFlags,), main)}
