"""``exaul score``: add scores to rows of questions and answers that exist."""

import math
from collections import Counter
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from exaul.engine import settings
from exaul.engine.checks import BadInput, check_legible, setting
from exaul.engine.folder import write_beside, write_manifest
from exaul.engine.logs import files
from exaul.engine.logs.log import file_hash, text_of
from exaul.engine.progress import Progress
from exaul.llm.asker import Answer, Asker
from exaul.llm.collect import ask_rows
from exaul.llm.endpoint import run_to_end
from exaul.llm.flags import EndpointFlags
from exaul.llm.folder import CALLS, manifest_of, open_folder
from exaul.llm.questions import QuestionSource, chosen_column
from exaul.llm.replies import Reply
from exaul.llm.scores import column_of

LOG = "log.csv"


@dataclass(frozen=True, kw_only=True)
class ScoreRows(EndpointFlags):
    """Configuration of ``exaul score``; every field is a flag.

    Raises:
        BadInput: a field is out of its range; the message names it.
    """

    rows: str = setting(MISSING, "JSON lines, CSV or Parquet with a question and an answer in each row", "FILE")
    question_column: str = setting("question", "column of the questions", "COL")
    answer_column: str = setting("answer", "column of the answers", "COL")
    score: tuple[str, ...] = setting(
        (), "scores (required): p-true, verbal, agree, exact, entail, module:function, https://...", "NAME"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if "logprob" in self.score:
            raise BadInput("score: logprob needs a reply with log-probabilities, and rows have texts alone")
        if self.judge != "exact":
            raise BadInput(f"judge: {self.judge!r} found; rows are scored, and not judged")
        self.check_endpoint()


class SourceText(NamedTuple):
    """A question with its answer."""

    question: str
    context: str  # text that the model reads before the question; often empty
    answer: str


class ScoredRows(NamedTuple):
    """The result of scoring rows."""

    folder: Path
    answers: list[Answer | str | None]  # of each row; a text says why a call failed; None: not asked
    columns: list[str]  # of the log
    manifest: dict[str, Any]

    @property
    def complete(self) -> int:
        """The number of rows with all scores."""
        rows = [row for row in self.answers if isinstance(row, Answer)]
        return sum(not any(map(math.isnan, row.scores.values())) for row in rows)


@dataclass(frozen=True)
class ScoreRowsJob:
    """Scores to add to rows. A run in the same folder continues and repeats no call."""

    config: ScoreRows
    texts: list[SourceText]
    kept: dict[str, list[Any]]  # columns of the rows
    manifest: dict[str, Any]

    @classmethod
    def begin(cls, config: ScoreRows) -> Self:
        """Read the rows; raise BadInput if a column is missing, or a row has no question."""
        path = Path(config.rows)
        present = files.columns(path)
        names = [
            chosen_column(path.name, present, getattr(config, field), (), f"--{field.replace('_', '-')}")
            for field in ("question_column", "answer_column")
        ]
        for name in config.score:
            if column_of(name) in present:
                raise BadInput(f"{path.name}: there is a column {column_of(name)}; it must be new")
        cells = files.read(path, present)
        empty = [""] * len(cells.rows)
        columns = (cells.columns.get(name, empty) for name in (names[0], "context", names[1]))
        texts = []
        for number, row in zip(cells.rows, zip(*columns, strict=True), strict=True):
            text = SourceText(*(check_legible(f"{path.name}, row {number}", text_of(x).strip()) for x in row))
            if not text.question:
                raise BadInput(f"{path.name}, row {number}: {names[0]} is empty; each row needs a question")
            texts.append(text)
        if not texts:
            raise BadInput(f"{path.name}: no row; at least one is needed")
        kept = {
            name: column
            for name, column in cells.columns.items()
            if not any(hasattr(cell, "__len__") and not isinstance(cell, str) for cell in column)
        }
        source = QuestionSource(path.name, file_hash(path), len(texts))._asdict()
        return cls(config, texts, kept, manifest_of("score", config, (), rows=source))

    def describe(self) -> str:
        """Return the number of calls, without any call."""
        return f"{len(self.texts):,} rows, {self.config.describe_calls(len(self.texts), 0)}"

    def run(self, *, progress: str = "quiet") -> ScoredRows:
        """Score every row. Write ``log.csv`` and ``manifest.json``, also when interrupted.

        Raises:
            BadInput: the folder is unusable, or a model cannot be asked.
        """
        config, answers = self.config, list[Answer | str | None]([None] * len(self.texts))
        with open_folder(str(config.out), self.manifest, ("rows",)) as folder:
            asker = Asker(config, folder / CALLS)
            columns = [*self.kept, *map(column_of, config.score)]
            scored = ScoredRows(folder, answers, columns, dict(self.manifest))

            async def ask_row(n: int) -> Answer:
                question, context, answer = self.texts[n]
                request = asker.answer_request([asker.answer_prompt(question, context)])
                return await asker.scored(request, Reply(answer, [], [], "", "", "", 0, 0))

            try:
                with Progress(progress, len(answers), "rows") as bar:
                    run_to_end(ask_rows(asker, ask_row, answers, bar))
            finally:
                if any(row is not None for row in answers):
                    self._write(scored, asker)
        return scored

    def _write(self, scored: ScoredRows, asker: Asker) -> None:
        rows = [row.scores if isinstance(row, Answer) else {} for row in scored.answers]
        counts = Counter(row for row in scored.answers if isinstance(row, str)) + asker.troubles
        counts["not asked"] = sum(row is None for row in scored.answers)
        counts["empty answers"] = sum(not text.answer for text in self.texts)
        scored.manifest.update(
            {
                "usage": asker.budget.usage(),
                "systems": asker.budget.systems,
                "left out": {reason: number for reason, number in counts.items() if number},
                "end": settings.timestamp(),
            }
        )
        added = {column_of(name): [row.get(name, math.nan) for row in rows] for name in self.config.score}
        table = files.frame(self.kept | added)
        write_beside(scored.folder / LOG, lambda path: files.save(table, path))
        write_manifest(scored.folder, scored.manifest)
