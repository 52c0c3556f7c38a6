"""``exaul audits``: show the audited answers without a verdict, and judge them by hand or by a model."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from datetime import UTC, datetime
from typing import Any

from exaul.commands.flags import Command
from exaul.commands.terminal import INCOMPLETE_STATUS, show
from exaul.engine.checks import BadInput, Configuration, check_holds, join_lines, quote, setting
from exaul.llm.endpoint import as_address, check_variable

HOW_TO_JUDGE = (
    "Judge them by --right ID ... and --wrong ID ..., on the page of the running service, or by a model "
    "(--judge-model NAME --endpoint URL)."
)
EXAMPLES = "examples:\n  {exaul} audits http://127.0.0.1:8321 --right ID ID --wrong ID"


class AuditsFlags(Configuration):
    """The service with the audits, and their judge. Every field is a flag of ``exaul audits``."""

    where: str = setting(
        MISSING, "address of a running service, http://HOST:PORT, or the file of one that is stopped", "URL|FILE"
    )
    token_variable: str | None = setting(
        None, "environment variable that holds a token of the service with the scope audit", "NAME"
    )
    right: tuple[str, ...] = setting((), "ids of open audits whose answers are right; a verdict is final", "ID")
    wrong: tuple[str, ...] = setting((), "ids of open audits whose answers are wrong; a verdict is final", "ID")
    judge_model: str | None = setting(None, "model that judges (default: print the audits)", "NAME")
    endpoint: str = setting("", "OpenAI-compatible endpoint of the judge, such as http://127.0.0.1:8000/v1", "URL")
    key_variable: str | None = setting(None, "environment variable that holds the endpoint's key", "NAME")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.judge_model is None) != (self.endpoint == ""):
            raise BadInput("judge_model, endpoint: one of the two is missing; a judge needs both")
        if self.judge_model is not None and (self.right or self.wrong):
            raise BadInput("right, wrong, judge_model: either you judge or a model does")
        for id in self.right:
            check_holds("wrong", id, id not in self.wrong, "an id that is not in right")
        if self.endpoint:
            object.__setattr__(self, "endpoint", as_address("endpoint", self.endpoint))
        for name in ("token_variable", "key_variable"):
            check_variable(name, getattr(self, name), is_set=True)


def main(arguments: Mapping[str, Any]) -> int:
    """Print the open audits; or give verdicts, by hand or by a model, and print how many are right and wrong.

    Return INCOMPLETE_STATUS if a model gives a clear verdict on none, or if a verdict by hand does not count.
    """
    config = AuditsFlags(**arguments)
    from exaul.serving.http.audits import PAGE, errors_by_model, open_queue

    with open_queue(config.where, config.token_variable) as (read_page, give_verdict):
        total, rows = read_page(0)
        if verdicts := dict.fromkeys(config.right, 0.0) | dict.fromkeys(config.wrong, 1.0):
            ids = {row["id"] for row in rows}
            while rows and not verdicts.keys() <= ids:
                _, rows = read_page(len(ids))
                ids |= {row["id"] for row in rows}
            if (other := next((id for id in verdicts if id not in ids), None)) is not None:
                is_judged = any(row["error"] is not None for row in read_page(0, id=other)[1])
                rule = "the id of an open audit" + ", and this one was judged before" * is_judged
                raise BadInput(f"right, wrong: {quote(other)} found; it must be {rule}; no verdict was given")
            counts = Counter(_give(give_verdict, id, error) for id, error in verdicts.items())
            judged = _show_counts("", counts, total)
            return INCOMPLETE_STATUS if judged < len(verdicts) else 0
        if config.judge_model is None:
            above = f", the oldest {PAGE} above" if total > PAGE else ""
            count = f"{total} open audit{'s' * (total != 1)}{above}"
            show(*map(_describe, rows), f"{count}\n{HOW_TO_JUDGE}" if total else count)
            return 0
        counts, remaining = Counter[str](), 0  # audits that stay open; the next page begins after them
        while rows and counts.total() < total:  # stop although new audits arrive
            errors = errors_by_model(config.judge_model, config.endpoint, config.key_variable, rows)
            for row, error in zip(rows, asyncio.run(errors), strict=True):
                if math.isnan(error):
                    counts["no text is kept" if row["text"] is None else "no clear verdict"] += 1
                    remaining += 1
                else:
                    counts[_give(give_verdict, row["id"], error)] += 1
            _, rows = read_page(remaining)
    judged = _show_counts(f"{config.judge_model} ", counts, total)
    return INCOMPLETE_STATUS if judged == 0 < counts["no clear verdict"] else 0


def _give(give_verdict: Callable[[str, float], str], id: str, error: float) -> str:
    """Give a verdict, and return ``right`` or ``wrong`` if it counts, else its outcome."""
    outcome = give_verdict(id, error)
    return ("wrong" if error else "right") if outcome == "counted" else outcome


def _show_counts(judge: str, counts: Counter[str], total: int) -> int:
    """Print and return how many verdicts count, with the number of each outcome."""
    text = ", ".join(f"{outcome}: {count}" for outcome, count in sorted(counts.items()))
    judged = counts["right"] + counts["wrong"]
    show(f"{judge}judged {judged} of {total} open audit{'s' * (total != 1)}{f' ({text})' * bool(text)}")
    return judged


def _describe(row: Mapping[str, Any]) -> str:
    time = datetime.fromtimestamp(row["at"], UTC).isoformat(timespec="minutes")
    head = f"{join_lines(row['id'])}, {time}, key {quote(row['key'])}"  # without the score: it could sway a judge
    if row["text"] is None:
        return f"{head}\nno text is kept"
    return f"{head}\nquestion: {join_lines(row['question'])}\nanswer: {join_lines(row['text'])}"


COMMANDS = {"audits": Command((AuditsFlags,), main, EXAMPLES)}
