"""``exaul score``: add scores to rows of questions and answers that exist."""

import math
from collections import Counter
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Self

from exaul.engine.checks import BadInput, check_legible, setting
from exaul.engine.folder import write_beside, write_manifest
from exaul.engine.logs import files
from exaul.engine.logs.log import file_hash, text_of
from exaul.engine.progress import Progress
from exaul.llm.asker import Answer, Asker
from exaul.llm.collect import fill_rows
from exaul.llm.flags import EndpointFlags
from exaul.llm.folder import CALLS, describe_usage, manifest_of, open_folder
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


@dataclass(frozen=True)
class ScoreRowsJob:
    """Scores to add to rows. A run in the same folder continues and repeats no call."""

    config: ScoreRows
    texts: list[tuple[str, str, str]]  # question, text before it (often empty) and answer of each row
    kept: dict[str, list[Any]]  # columns of the rows
    manifest: dict[str, Any]

    @classmethod
    def begin(cls, config: ScoreRows) -> Self:
        """Read the rows; raise BadInput if a column is missing, or a row has no question."""
        path, texts = Path(config.rows), list[tuple[str, str, str]]()
        present = files.columns(path)
        asked = chosen_column(path.name, present, config.question_column, (), "--question-column")
        answered = chosen_column(path.name, present, config.answer_column, (), "--answer-column")
        for name in config.score:
            if column_of(name) in present:
                raise BadInput(f"{path.name}: there is a column {column_of(name)}; it must be new")
        cells = files.read(path, present)
        empty = [""] * len(cells.rows)
        columns = (cells.columns.get(name, empty) for name in (asked, "context", answered))
        for number, row in zip(cells.rows, zip(*columns, strict=True), strict=True):
            where = f"{path.name}, row {number}"
            question, context, answer = (check_legible(where, text_of(cell).strip()) for cell in row)
            if not question:
                raise BadInput(f"{where}: {asked} is empty; each row needs a question")
            texts.append((question, context, answer))
        if not texts:
            raise BadInput(f"{path.name}: no row; at least one is needed")
        table = cells.columns.items()
        kept = {name: cells for name, cells in table if not any(isinstance(cell, list | dict) for cell in cells)}
        source = QuestionSource(path.name, file_hash(path), len(texts))._asdict()
        return cls(config, texts, kept, manifest_of("score", config, (), rows=source))

    def describe(self) -> str:
        """Return the number of calls, without any call."""
        return self.config.describe_calls(len(self.texts), "rows", 0)

    def run(self, *, progress: str = "quiet") -> tuple[str, float]:
        """Score every row. Write ``log.csv`` and ``manifest.json``, also when interrupted.

        Return a summary, and the share of the rows that lack a score.

        Raises:
            BadInput: the folder is unusable, or a model cannot be asked.
        """
        rows = list[Answer | str | None]([None] * len(self.texts))  # None: not asked; a text: why a call failed
        with open_folder(str(self.config.out), self.manifest, ("rows",)) as folder:
            asker = Asker(self.config, folder / CALLS)

            async def ask_row(n: int) -> Answer:
                question, context, answer = self.texts[n]
                request = asker.answer_request([asker.answer_prompt(question, context)])
                return await asker.scored(request, Reply(answer, [], [], "", "", "", 0, 0))

            bar = Progress(progress, len(rows), "rows")
            fill_rows(asker, ask_row, rows, bar, lambda: self._write(folder, rows, asker))
        complete = sum(isinstance(row, Answer) and not any(map(math.isnan, row.scores.values())) for row in rows)
        lines = [f"{complete:,} of {len(rows):,} rows have all scores: {folder / LOG}"]
        lines.append(describe_usage(self.manifest["usage"]))
        lines += [f"  {reason}: {number:,}" for reason, number in self.manifest["left out"].items()]
        return "\n".join(lines), 1 - complete / len(rows)

    def _write(self, folder: Path, rows: list[Answer | str | None], asker: Asker) -> None:
        counts = Counter(row for row in rows if isinstance(row, str))
        counts["not asked"] = rows.count(None)
        counts["empty answers"] = sum(not answer for _, _, answer in self.texts)
        asker.record(self.manifest, counts)
        scores = [row.scores if isinstance(row, Answer) else {} for row in rows]
        added = {column_of(name): [row.get(name, math.nan) for row in scores] for name in self.config.score}
        table = files.frame(self.kept | added)
        write_beside(folder / LOG, lambda path: files.save(table, path))
        write_manifest(folder, self.manifest)
