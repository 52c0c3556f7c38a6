"""``exaul collect`` and ``exaul score``: a log of scored answers, from questions or from rows that exist."""

import json
import math
from collections import Counter
from contextlib import suppress
from dataclasses import MISSING
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from exaul.engine.checks import BadInput, check_count, check_legible, setting
from exaul.engine.folder import write_beside, write_manifest, write_table
from exaul.engine.logs import files
from exaul.engine.logs.log import cell_text, file_hash
from exaul.engine.progress import Progress
from exaul.llm.asker import Answer, Asker
from exaul.llm.calls import BudgetReached, CallFailed
from exaul.llm.endpoint import run_to_end
from exaul.llm.flags import EndpointFlags
from exaul.llm.folder import CALLS_FILE, LOG_FILE, manifest_of, open_folder
from exaul.llm.questions import Question, chosen_column, read_questions
from exaul.llm.replies import Reply
from exaul.llm.scores import column_of, gather
from exaul.llm.tables import read_file, writable


class Collect(EndpointFlags):
    """Configuration of ``exaul collect``; every field is a flag."""

    questions: tuple[str, ...] = setting(
        MISSING, "JSON lines, CSV or Parquet with question and answers; or hf:NAME", "FILE"
    )
    limit: int | None = setting(None, "maximum questions per file", "N")
    no_texts: bool = setting(False, "do not write texts.jsonl")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("limit", self.limit)


class ScoreRows(EndpointFlags):
    """Configuration of ``exaul score``; every field is a flag."""

    rows: str = setting(MISSING, "JSON lines, CSV or Parquet with a question and an answer in each row", "FILE")
    score: tuple[str, ...] = setting(
        (), "scores (required): p-true, verbal, agree, exact, entail, module:function, https://...", "NAME"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if "logprob" in self.score:
            raise BadInput("score: logprob needs a reply with log-probabilities, and rows have texts alone")
        if self.judge != "exact":
            raise BadInput(f"judge: {self.judge!r} found; rows are scored, and not judged")


class CollectJob:
    """A log of a model's answers to questions. A run in the same folder continues and repeats no call."""

    noun: ClassVar = "questions"
    is_judged: ClassVar = True  # whether a complete answer has an error
    # fields that may change when a run is continued
    changeable: ClassVar[tuple[str, ...]] = "limit", "no_texts", "questions"
    config: EndpointFlags
    questions: list[Question]
    manifest: dict[str, Any]  # complete after ``run``
    results: list[Answer | str | None]  # by question, after ``run``; a text: why a call failed; None: not asked

    def __init__(self, config: Collect) -> None:
        """Read the questions; raise BadInput if they are unusable."""
        self.config, self._writes_texts = config, not config.no_texts
        columns = config.question_column, config.answer_column
        self.questions, sources = read_questions(config.questions, *columns, config.limit)
        self.manifest = manifest_of("collect", config, questions=sources)

    def run(self) -> None:
        """Ask about every question. Write the log and ``manifest.json`` at the end, also when interrupted.

        Raises:
            BadInput: the folder is unusable, or a model cannot be asked.
        """
        self.results = [None] * len(self.questions)
        with open_folder(self.config.out, self.manifest, self.changeable) as folder:
            asker = Asker(self.config, folder / CALLS_FILE)
            try:
                run_to_end(self._ask_all(asker))
            except BaseException:
                if any(result is not None for result in self.results):
                    self._write(folder, asker)
                raise
            self._write(folder, asker)

    @property
    def answered(self) -> list[tuple[Question, Answer]]:
        """The questions with an answer."""
        pairs = zip(self.questions, self.results, strict=True)
        return [(question, result) for question, result in pairs if isinstance(result, Answer)]

    def is_complete(self, answer: Answer) -> bool:
        """Return whether an answer has all scores and, if it is judged, an error."""
        return not any(map(math.isnan, (*answer.scores.values(), answer.error if self.is_judged else 0.0)))

    async def _ask_all(self, asker: Asker) -> None:
        numbers = iter(range(len(self.results)))

        async def work() -> None:
            for n in numbers:
                # A spent budget ends no loop: other rows may have been paid for, and must be written.
                with suppress(BudgetReached):
                    try:
                        self.results[n] = await self._ask(asker, n)
                    except CallFailed as error:
                        self.results[n] = str(error)
                spent = asker.calls.spent
                bar.update(1, **({"spent": f"${spent:.2f}"} if spent > 0 else {}))  # NaN: unknown

        with Progress(self.config.progress, len(self.results), self.noun) as bar:
            async with asker:
                with suppress(BudgetReached):
                    await asker.probe()
                await gather(*(work() for _ in range(min(self.config.concurrent, len(self.results)))))

    async def _ask(self, asker: Asker, number: int) -> Answer:
        return await asker.answer(self.questions[number])

    def _write(self, folder: Path, asker: Asker) -> None:
        counts = Counter(result for result in self.results if isinstance(result, str))
        counts["not asked"] = self.results.count(None)
        for _, answer in self.answered:
            counts["answers cut at max_tokens"] += answer.reply.finish == "length"
            counts["refusals"] += answer.reply.finish == "refusal"
            counts["empty answers"] += not answer.reply.text
        asker.record(self.manifest, counts)
        self._save(folder)
        write_manifest(folder, self.manifest)

    def _save(self, folder: Path) -> None:
        if not self.answered:
            return
        table = files.Table([_log_row(*row) for row in self.answered]).dropna(axis="columns", how="all")
        write_table(folder / LOG_FILE, table)
        if self._writes_texts:
            lines = [json.dumps(_text_row(*row), ensure_ascii=False) + "\n" for row in self.answered]
            write_beside(folder / "texts.jsonl", lambda path: path.write_text("".join(lines), "utf-8"))


class ScoreRowsJob(CollectJob):
    """Scores to add to rows of questions and answers."""

    noun, is_judged = "rows", False
    changeable = ("rows",)

    def __init__(self, config: ScoreRows) -> None:
        """Read the rows; raise BadInput if a column is missing, or a row has no question."""
        path, self.config, self.questions, self._answers = Path(config.rows), config, [], list[str]()
        names, row_iterator = read_file(path)
        rows = list(row_iterator)
        question_field = chosen_column(path.name, names, config.question_column, ("question",), "--question-column")
        answer_field = chosen_column(path.name, names, config.answer_column, ("answer",), "--answer-column")
        for name in config.score:
            if column_of(name) in names:
                raise BadInput(f"{path.name}: there is a column {column_of(name)}; it must be new")
        for number, row in rows:
            where, cells = f"{path.name}, row {number}", map(row.get, (question_field, "context", answer_field))
            question, context, answer = (check_legible(where, cell_text(cell).strip()) for cell in cells)
            if not question:
                raise BadInput(f"{where}: {question_field} is empty; each row needs a question")
            self.questions.append(Question("", question, (), "", context))
            self._answers.append(answer)
        if not rows:
            raise BadInput(f"{path.name}: no row; at least one is needed")
        columns = ((name, [writable(row[name]) for _, row in rows]) for name in names)
        kinds = list, dict, np.ndarray  # Parquet has arrays
        self._columns = {name: cells for name, cells in columns if not any(isinstance(x, kinds) for x in cells)}
        source = {"name": path.name, "sha256": file_hash(path), "rows": len(rows)}
        self.manifest = manifest_of("score", config, rows=source)

    async def _ask(self, asker: Asker, number: int) -> Answer:
        question = self.questions[number]
        request = asker.answer_request([asker.answer_prompt(question.question, question.context)])
        return await asker.scored(request, Reply(self._answers[number]))

    def _save(self, folder: Path) -> None:
        scores = [row.scores if isinstance(row, Answer) else {} for row in self.results]
        added = {column_of(name): [row.get(name, math.nan) for row in scores] for name in self.config.score}
        table = files.Table(self._columns | added)
        write_table(folder / LOG_FILE, table)


def _log_row(question: Question, answer: Answer) -> dict[str, Any]:
    return {
        "id": question.id,
        "group": question.group,
        **{column_of(name): score for name, score in answer.scores.items()},
        "error": answer.error,
        "error_exact": answer.error_exact,
        "error_judge": answer.error_judge,
        "tokens": len(answer.reply.logprobs) or answer.reply.reply_tokens,
        "finish": answer.reply.finish,
        "model": answer.reply.model,
    }


def _text_row(question: Question, answer: Answer) -> dict[str, Any]:
    return question._asdict() | {
        "answer": answer.reply.text,
        "logprobs": answer.reply.logprobs,
        "samples": answer.samples,
        "error": None if math.isnan(answer.error) else answer.error,
        "judge": answer.judge_reply,
    }
