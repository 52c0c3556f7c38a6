"""``exaul collect``: send questions to a model and write a log of scored answers."""

import json
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from exaul.engine.checks import check_count, setting
from exaul.engine.folder import write_beside, write_manifest
from exaul.engine.logs import files
from exaul.engine.progress import Progress
from exaul.llm.asker import Answer, Asker, Verdict
from exaul.llm.endpoint import BudgetReached, CallFailed, run_to_end
from exaul.llm.flags import EndpointFlags
from exaul.llm.folder import CALLS, manifest_of, open_folder
from exaul.llm.questions import Question, questions
from exaul.llm.scores import column_of, together

CUT = "length"  # finish reason of an answer that is cut at max_tokens


@dataclass(frozen=True, kw_only=True)
class Collect(EndpointFlags):
    """Configuration of ``exaul collect``; every field is a flag.

    Raises:
        BadInput: a field is out of its range; the message names it.
    """

    questions: tuple[str, ...] = setting(
        MISSING, "JSON lines, CSV or Parquet with question and answers; or hf:NAME", "FILE"
    )
    question_column: str | None = setting(None, "column of the questions (default: question)", "COL")
    answer_column: str | None = setting(None, "column of the right answers (default: answers, or answer)", "COL")
    limit: int | None = setting(None, "maximum questions per file", "N")
    no_texts: bool = setting(False, "do not write texts.jsonl")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("limit", self.limit)


class CollectedAnswer(NamedTuple):
    """A question, its answer and its verdict."""

    question: Question
    answer: Answer
    verdict: Verdict


Outcome = CollectedAnswer | str | None  # row of a question, or why it failed, or None if not asked


class Collected(NamedTuple):
    """The result of a collection."""

    folder: Path
    rows: list[Outcome]
    manifest: dict[str, Any]

    @property
    def complete(self) -> list[CollectedAnswer]:
        """The rows with all scores and an error."""
        each = [row for row in self.rows if isinstance(row, CollectedAnswer) and not math.isnan(row.verdict.error)]
        return [row for row in each if not any(map(math.isnan, row.answer.scores.values()))]


@dataclass(frozen=True)
class CollectJob:
    """A collection. A run in the same folder continues and repeats no call."""

    config: Collect
    questions: list[Question]
    manifest: dict[str, Any]

    @classmethod
    def begin(cls, config: Collect) -> Self:
        """Read the questions; raise BadInput if they or a prompt are unusable."""
        asked, sources = questions(config.questions, config.question_column, config.answer_column, config.limit)
        source_entries = [source._asdict() for source in sources]
        return cls(config, asked, manifest_of("collect", config, (), questions=source_entries))

    def describe(self) -> str:
        """Return the number of calls, without any call."""
        return self.config.describe_calls(len(self.questions), "questions", 1 + (self.config.judge != "exact"))

    def run(self, *, progress: str = "quiet") -> Collected:
        """Ask every question. Write ``log.csv``, ``texts.jsonl`` and ``manifest.json``, also when interrupted.

        Raises:
            BadInput: the folder is unusable, or a model cannot be asked.
        """
        config, rows = self.config, list[Outcome]([None] * len(self.questions))
        with open_folder(str(config.out), self.manifest, ("limit", "no_texts", "questions")) as folder:
            asker = Asker(config, folder / CALLS)
            collected = Collected(folder, rows, dict(self.manifest))

            async def ask_row(n: int) -> CollectedAnswer:
                asked = self.questions[n]
                answer, verdict = await asker.answer(asked.question, asked.answers, asked.context, asked.context)
                return CollectedAnswer(asked, answer, verdict)

            bar = Progress(progress, len(rows), "questions")
            fill_rows(asker, ask_row, rows, bar, lambda: _write(collected, asker, config))
        return collected


def fill_rows(
    asker: Asker,
    ask_row: Callable[[int], Awaitable[Any]],
    rows: list[Any],
    bar: Progress,
    write: Callable[[], None],
) -> None:
    """Fill a list of rows, concurrently, and write what there is at the end, also when interrupted.

    A row is what ``ask_row`` returns for its number; a text if a call failed; or None if the budget was spent.
    """

    async def work() -> None:
        for n in numbers:
            # A spent budget ends no loop: other rows may have been paid for, and must be written.
            with suppress(BudgetReached):
                try:
                    rows[n] = await ask_row(n)
                except CallFailed as error:
                    rows[n] = str(error)
            spent = asker.budget.spent
            bar.update(1, **({"spent": f"${spent:.2f}"} if spent > 0 else {}))  # NaN: unknown

    async def ask() -> None:
        async with asker:
            with suppress(BudgetReached):
                await asker.probe()
            await together(*(work() for _ in range(min(asker.config.concurrent, len(rows)))))

    numbers = iter(range(len(rows)))
    try:
        with bar:
            run_to_end(ask())
    except BaseException:
        if any(row is not None for row in rows):
            write()
        raise
    write()


def _write(collected: Collected, asker: Asker, config: Collect) -> None:
    folder, manifest = collected.folder, collected.manifest
    asker.record(manifest, left_out(collected))
    done = [row for row in collected.rows if isinstance(row, CollectedAnswer)]
    if done:
        table = files.frame([_cells(row) for row in done]).dropna(axis="columns", how="all")
        write_beside(folder / "log.csv", lambda path: files.save(table, path))
        if not config.no_texts:
            lines = [json.dumps(_texts(row), ensure_ascii=False) + "\n" for row in done]
            write_beside(folder / "texts.jsonl", lambda path: path.write_text("".join(lines), "utf-8"))
    write_manifest(folder, manifest)


def left_out(collected: Collected) -> dict[str, int]:
    """Count the missing and irregular answers by reason."""
    counts = Counter(row for row in collected.rows if isinstance(row, str))
    replies = [row.answer.reply for row in collected.rows if isinstance(row, CollectedAnswer)]
    counts["not asked"] = collected.rows.count(None)
    counts["answers cut at max_tokens"] = sum(reply.finish == CUT for reply in replies)
    counts["refusals"] = sum(reply.finish == "refusal" for reply in replies)
    counts["empty answers"] = sum(not reply.text for reply in replies)
    return counts


def _cells(row: CollectedAnswer) -> dict[str, Any]:
    reply = row.answer.reply
    return {
        "id": row.question.id,
        "group": row.question.group,
        **{column_of(name): score for name, score in row.answer.scores.items()},
        "error": row.verdict.error,
        "error_exact": row.verdict.exact,
        "error_judge": row.verdict.judge,
        "tokens": len(reply.logprobs) or reply.reply_tokens,
        "finish": reply.finish,
        "model": reply.model,
    }


def _texts(row: CollectedAnswer) -> dict[str, Any]:
    return row.question._asdict() | {
        "answer": row.answer.reply.text,
        "logprobs": row.answer.reply.logprobs,
        "samples": row.answer.samples,
        "error": None if math.isnan(row.verdict.error) else row.verdict.error,
        "judge": row.verdict.judge_reply,
    }
