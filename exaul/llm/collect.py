"""``exaul collect``: questions go to a model, and a log of scored answers comes back."""

import json
import math
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass
from itertools import count as count_from
from pathlib import Path
from typing import Any, NamedTuple

from exaul.engine.checks import count, setting
from exaul.engine.data import settings, tables
from exaul.engine.machine.progress import Progress
from exaul.engine.results.folder import write_beside
from exaul.llm import expected
from exaul.llm.answering import Answer, Asker, Verdict, together
from exaul.llm.asking import Asking
from exaul.llm.client import Failed
from exaul.llm.endpoint import Absent, Spent, run_to_end
from exaul.llm.folder import CALLS, begun, manifest
from exaul.llm.questions import Question, questions

CUT = "length"  # how an answer ends that has no room


@dataclass(frozen=True, kw_only=True)
class Collect(Asking):
    """What to collect. Every field is a flag of ``exaul collect``.

    Raises:
        BadInput: a field is out of its range; the sentence names it.
    """

    questions: tuple[str, ...] = setting(
        MISSING, "JSON lines, CSV or Parquet with question and answers; or hf:NAME", "FILE"
    )
    question_column: str | None = setting(None, "column of the questions (default: question)", "COL")
    answer_column: str | None = setting(None, "column of the right answers (default: answers, or answer)", "COL")
    limit: int | None = setting(None, "ask the first so many of each file", "N")
    no_texts: bool = setting(False, "write no texts.jsonl")

    def __post_init__(self) -> None:
        super().__post_init__()
        count("limit", self.limit)
        self.check_endpoint()


class Row(NamedTuple):
    """A question, and what came of it."""

    question: Question
    answer: Answer
    verdict: Verdict


Outcome = Row | str | None  # of a question: what came of it, why nothing did, or None if it was not asked


class Collected(NamedTuple):
    """What was collected."""

    folder: Path
    rows: list[Outcome]
    about: dict[str, Any]  # the manifest

    @property
    def complete(self) -> list[Row]:
        """Those with all scores and an error."""
        wanted = self.about["configuration"]["scores"]
        each = [row for row in self.rows if isinstance(row, Row)]
        return [row for row in each if not any(map(math.isnan, (row.verdict.error, *_scores(row, wanted))))]


def collect(config: Collect) -> Collected:
    """Ask every question; write ``log.csv``, ``texts.jsonl`` and ``manifest.json``, also where it is interrupted.

    What was asked before in the same folder is not asked again.

    Raises:
        BadInput: the questions or the folder cannot be used, or the endpoint refuses what is asked.
    """
    found, sources = questions(config.questions, config.question_column, config.answer_column, config.limit)
    about = manifest("collect", config, (), questions=[source._asdict() for source in sources])
    rows: list[Outcome] = [None] * len(found)
    with begun(str(config.out), about, ("limit", "no_texts", "questions")) as folder:
        asker, collected = Asker(config, folder / CALLS), Collected(folder, rows, about)
        try:
            with Progress(config.progress, len(found), "questions") as progress:
                run_to_end(_all(asker, found, rows, progress))
        finally:
            if any(row is not None for row in rows):
                _write(collected, asker, config)
    return collected


def expect(config: Collect) -> str:
    """What it would take, as modelled; nobody is asked.

    Raises:
        BadInput: the questions cannot be used; or a budget is given, and a price is not known.
    """
    found, _ = questions(config.questions, config.question_column, config.answer_column, config.limit)
    needs = expected.answers(config, len(found), *expected.read_and_judged(found))
    return expected.told(config, f"{len(found):,} questions", needs)


async def _all(asker: Asker, found: list[Question], rows: list[Outcome], progress: Progress) -> None:
    """Take all rows whose replies are there, and ask for the others, some at once."""
    right = Counter[bool]()

    async def ask(n: int) -> None:
        try:
            rows[n] = row = await _row(asker, found[n])
            if not math.isnan(row.verdict.error):
                right[row.verdict.error < 0.5] += 1
        except Failed as error:
            rows[n] = str(error)
        shown: dict[str, Any] = {"right": f"{right[True] / max(1, right.total()):.0%}"}
        made = asker.purse.spent - before
        if made > 0:
            shown |= {"spent": f"${asker.purse.spent:.2f}", "left": f"${made / next(asked) * len(waiting):.2f}"}
        progress.update(1, **shown)

    async def work() -> None:
        while waiting:
            await ask(waiting.popleft())

    waiting, asked, before = deque[int](), count_from(1), asker.purse.spent
    async with asker:
        asker.only_stored(True)
        for n in range(len(found)):
            try:
                await ask(n)
            except Absent:
                waiting.append(n)
        asker.only_stored(False)
        with suppress(Spent):
            if waiting:
                await asker.probe()
            await together(*(work() for _ in range(asker.config.concurrent)))


async def _row(asker: Asker, question: Question) -> Row:
    answer = await asker.answer(question.question, question.context)
    verdict = await asker.judge(question.question, answer.reply.text, question.answers, question.context)
    return Row(question, answer, verdict)


def _write(collected: Collected, asker: Asker, config: Collect) -> None:
    folder, about = collected.folder, collected.about
    about["usage"] = asker.purse.about()
    about["systems"] = asker.purse.systems
    about["left out"] = left_out(collected, asker.troubles)
    about["end"] = settings.now()
    done = [row for row in collected.rows if isinstance(row, Row)]
    if done:
        table = tables.frame([_cells(row) for row in done]).dropna(axis="columns", how="all")
        write_beside(folder / "log.csv", lambda path: tables.save(table, path))
        if not config.no_texts:
            lines = [json.dumps(_texts(row), ensure_ascii=False) + "\n" for row in done]
            write_beside(folder / "texts.jsonl", lambda path: path.write_text("".join(lines), "utf-8"))
    write_beside(folder / "manifest.json", lambda path: settings.save_json(about, path))


def left_out(collected: Collected, troubles: Mapping[str, int]) -> dict[str, int]:
    """What is missing, or was not as it should be, and how often."""
    found = Counter(row for row in collected.rows if isinstance(row, str))
    found.update({"not asked": sum(row is None for row in collected.rows)})
    found.update(troubles)
    done = [row for row in collected.rows if isinstance(row, Row)]
    found.update({"answers cut at max_tokens": sum(row.answer.reply.finish == CUT for row in done)})
    found.update({"refusals": sum(row.answer.reply.finish == "refusal" for row in done)})
    found.update({"empty answers": sum(not row.answer.reply.text for row in done)})
    return {reason: number for reason, number in found.items() if number}


def _scores(row: Row, wanted: Any) -> list[float]:
    return [getattr(row.answer, f"score_{name}") for name in wanted]


def _cells(row: Row) -> dict[str, Any]:
    """A row of the log."""
    reply = row.answer.reply
    return {
        "id": row.question.id,
        "group": row.question.group,
        "score_std": row.answer.score_std,
        "score_con": row.answer.score_con,
        "error": row.verdict.error,
        "error_exact": row.verdict.exact,
        "error_judge": row.verdict.judge,
        "tokens": len(reply.logprobs) or reply.written,
        "finish": reply.finish,
        "model": reply.model,
    }


def _texts(row: Row) -> dict[str, Any]:
    """A line of the texts."""
    agree = [None if math.isnan(x) else x for x in row.answer.agree]
    return row.question._asdict() | {
        "answer": row.answer.reply.text,
        "logprobs": row.answer.reply.logprobs,
        "samples": row.answer.samples,
        "agree": agree,
        "judge": row.verdict.said,
    }
