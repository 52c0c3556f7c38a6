"""``exaul collect`` and ``exaul score``: ask a language model questions, or score answers that exist."""

import math
from collections.abc import Mapping
from typing import Any

from exaul.commands.flags import Command
from exaul.engine.checks import typed
from exaul.llm.collect import Collect, Collected, CollectedAnswer, CollectJob
from exaul.llm.folder import describe_usage
from exaul.llm.prompts import SHORT
from exaul.llm.replies import contains
from exaul.llm.score_rows import ScoreRows, ScoreRowsJob
from exaul.llm.scores import column_of

MISSING = 3  # exit status if more than ALLOWED of the rows are incomplete
ALLOWED = 0.01
FEW = 1000  # with fewer rows, a warning is printed


def main(given: Mapping[str, Any]) -> int:
    """Collect answers, and print a summary and what to run next. Return 3 if over 1% of the rows are incomplete."""
    config = Collect(**given)
    job = CollectJob.begin(config)
    if config.dry_run:
        print(job.describe())
        return 0
    collected = job.run(progress=config.progress)
    print(summary(config, collected))
    return MISSING if 1 - len(collected.complete) / len(collected.rows) > ALLOWED else 0


def score(given: Mapping[str, Any]) -> int:
    """Score rows, and print how many have all scores. Return 3 if over 1% of the rows are incomplete."""
    job = ScoreRowsJob.begin(ScoreRows(**given))
    if job.config.dry_run:
        print(job.describe())
        return 0
    text, missing = job.run(progress=job.config.progress)
    print(text)
    return MISSING if missing > ALLOWED else 0


def summary(config: Collect, collected: Collected) -> str:
    """Return the summary: numbers of answers and calls, reasons for missing rows, and what to run next."""
    rows, complete = [row for row in collected.rows if isinstance(row, CollectedAnswer)], collected.complete
    lines = [
        f"{len(rows):,} of {len(collected.rows):,} questions answered, "
        f"{len(complete):,} with all scores and an error",
        describe_usage(collected.manifest["usage"]),
    ]
    lines += [f"  {reason}: {number:,}" for reason, number in collected.manifest["left out"].items()]
    for model, systems in collected.manifest["systems"].items():
        if len(systems) > 1:
            lines.append(f"{model} changed its system fingerprint: {', '.join(systems)}")
    if complete:
        wrong = sum(row.verdict.error for row in complete) / len(complete)
        lines.append(f"wrong: {wrong:.1%}")
        longer = [x for x in rows if x.verdict.exact == 1 and contains(x.answer.reply.text, x.question.answers)]
        if longer and config.judge == "exact":
            shorter = "" if "answer" in config.files else f", or short answers by --prompt answer={SHORT}"
            lines.append(
                f"{len(longer):,} answers that count as wrong contain a right answer: with another --out, try "
                f"--judge llm{shorter}"
            )
        both = [row.verdict for row in rows if not math.isnan(row.verdict.exact + row.verdict.judge)]
        if both:
            apart = sum(verdict.exact != verdict.judge for verdict in both)
            lines.append(f"exact match and judge differ on {apart / len(both):.1%} of {len(both):,}")
        certain = [x for row in rows for x in row.answer.reply.logprobs]
        if certain and sum(x >= 0 for x in certain) > len(certain) / 10:
            lines.append(
                "over 10% of the tokens have a log-probability of exactly 0, and many scores tie at 1: it seems to "
                "be computed after top-p or top-k truncation"
            )
    if config.budget is not None and any(row is None for row in collected.rows):
        lines.append("the budget is reached; to continue, repeat the command with a larger one")
    drop = ["--drop-missing"] if len(complete) < len(rows) else []
    columns, log = [column_of(name) for name in config.score], str(collected.folder / "log.csv")
    if len(complete) < FEW:
        lines.append(f"fewer than {FEW:,} rows: results of a sweep are inaccurate, as it repeats rows")
    if complete:
        score = ["--score", *columns] if len(columns) == 1 else []  # inspect compares several
        lines += ["", f"inspect the log: {typed('inspect', log, *score, *drop)}"]
        if score:
            command = typed("sweep", "--logs", log, *score, "--grid", "logit", *drop)
            lines.append(f"run the learners on it: {command}")
    return "\n".join(lines)


COMMANDS = {"collect": Command((Collect,), main), "score": Command((ScoreRows,), score)}
