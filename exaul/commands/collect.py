"""``exaul collect`` and ``exaul score``: ask a language model questions, or score answers that exist."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from exaul.commands.flags import Command
from exaul.commands.terminal import INCOMPLETE_STATUS
from exaul.engine.checks import as_typed
from exaul.llm.asker import Answer
from exaul.llm.collect import Collect, CollectJob, ScoreRows, ScoreRowsJob
from exaul.llm.folder import LOG_FILE, describe_usage
from exaul.llm.prompts import SHORT_ANSWERS
from exaul.llm.replies import contains

ALLOWED_SHARE = 0.01  # of incomplete rows, in a run that succeeds (chosen: a few requests always fail)


def main(arguments: Mapping[str, Any]) -> int:
    """Collect answers, and print a summary and what to run next. Return 3 if over 1% of the rows are incomplete."""
    return _run(CollectJob(Collect(**arguments)), collection_summary)


def score(arguments: Mapping[str, Any]) -> int:
    """Score rows, and print how many have all scores. Return 3 if over 1% of the rows are incomplete."""
    return _run(ScoreRowsJob(ScoreRows(**arguments)), scores_summary)


def _run(job: CollectJob, summary: Callable[[CollectJob, Sequence[Answer]], list[str]]) -> int:
    if job.config.dry_run:
        print(job.config.describe_calls(len(job.questions), job.noun, int(job.is_judged)))
        return 0
    job.run()
    complete = [answer for _, answer in job.answered if job.is_complete(answer)]
    print("\n".join(summary(job, complete)))
    return INCOMPLETE_STATUS if 1 - len(complete) / len(job.results) > ALLOWED_SHARE else 0


def scores_summary(job: CollectJob, complete: Sequence[Answer]) -> list[str]:
    """Return the lines of a summary: the number of rows with all scores, and what is missing."""
    log = Path(job.config.out) / LOG_FILE
    return [f"{len(complete):,} of {len(job.results):,} rows have all scores: {log}", *describe_usage(job.manifest)]


def collection_summary(job: CollectJob, complete: Sequence[Answer]) -> list[str]:
    """Return the lines of a summary: numbers of answers and calls, what is missing, and what to run next."""
    config, answered = job.config, job.answered
    lines = [
        f"{len(answered):,} of {len(job.results):,} questions answered, "
        f"{len(complete):,} with all scores and an error",
        *describe_usage(job.manifest),
    ]
    for model, systems in job.manifest["systems"].items():
        if len(systems) > 1:
            lines.append(f"{model} changed its system fingerprint: {', '.join(systems)}")
    if complete:
        lines.append(f"wrong: {sum(answer.error for answer in complete) / len(complete):.1%}")
        longer = sum(x.error_exact == 1 and contains(x.reply.text, question.answers) for question, x in answered)
        if longer and config.judge == "exact":
            has_prompt = any(choice.startswith("answer=") for choice in config.prompt)
            option = "" if has_prompt else f", or short answers by --prompt answer={SHORT_ANSWERS}"
            lines.append(
                f"{longer:,} answers that count as wrong contain a right answer: with another --out, try "
                f"--judge llm{option}"
            )
        compared = [x for _, x in answered if not math.isnan(x.error_exact + x.error_judge)]
        if compared:
            differing = sum(x.error_exact != x.error_judge for x in compared)
            lines.append(f"exact match and judge differ on {differing / len(compared):.1%} of {len(compared):,}")
        zeros = [x >= 0 for _, answer in answered for x in answer.reply.logprobs]
        if sum(zeros) > len(zeros) / 10:
            lines.append(
                "over 10% of the tokens have a log-probability of exactly 0, and many scores tie at 1: it seems to "
                "be computed after top-p or top-k truncation"
            )
    if config.budget is not None and None in job.results:
        lines.append("the budget is reached; to continue, repeat the command with a larger one")
    if complete:
        drop = ["--drop-missing"] if len(complete) < len(answered) else []
        lines += ["", f"inspect the log: {as_typed('inspect', str(Path(config.out) / LOG_FILE), *drop)}"]
    return lines


COMMANDS = {"collect": Command((Collect,), main), "score": Command((ScoreRows,), score)}
