"""Questions with right answers, from files or from datasets of the Hugging Face hub."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from exaul.engine.checks import BadInput, check_legible, quote
from exaul.engine.logs.log import cell_text, file_hash, is_missing, number_repeats
from exaul.llm.tables import read_file, unpack

HUB = "hf:"
SHORT_NAMES = {  # short names of datasets
    "triviaqa": "mandarjoshi/trivia_qa:rc.nocontext:validation",
    "nq": "google-research-datasets/nq_open::validation",
    "squad": "rajpurkar/squad::validation",
    "simpleqa": "basicv8vc/SimpleQA::test",
}
QUESTION, ANSWERS = ("question", "problem"), ("answers", "answer")  # default columns; the first that exists is used
ANSWER_KEYS = "text", "value", "aliases"  # keys of an answer that is an object, as in SQuAD and TriviaQA

SourceRow = tuple[int, Mapping[str, Any]]  # number of a row, and its cells by column
Sources = list[dict[str, Any]]  # name, digest and number of rows of each


class Question(NamedTuple):
    """A question with its right answers."""

    id: str
    question: str
    answers: tuple[str, ...]  # right answers, each sufficient
    group: str  # group in tables; often empty
    context: str  # text that the model reads first; often empty


def read_questions(
    names: Sequence[str], question_column: str | None, answer_column: str | None, limit: int | None = None
) -> tuple[list[Question], Sources]:
    """Read the questions of some sources in order; and name, digest and number of rows of each source.

    A source is a file of JSON lines, CSV or Parquet, ``hf:NAME`` or ``hf:OWNER/NAME:CONFIG:SPLIT``. The columns of
    questions and right answers are by default one of QUESTION and of ANSWERS. ``limit`` is the maximum per source.

    Raises:
        BadInput: a source is unreadable or lacks a column, a question or an answer, or an id occurs twice.
    """
    by_id, sources = dict[str, Question](), Sources()
    for label, columns, rows, sha256 in _read_sources(names):
        question_field = chosen_column(label, columns, question_column, QUESTION, "--question-column")
        answer_field = chosen_column(label, columns, answer_column, ANSWERS, "--answer-column")
        offset = len(by_id)
        for number, row in islice(rows, limit):
            question = _question(label, number, row, question_field, answer_field)
            if question.id in by_id:
                raise BadInput(
                    f"{label}, row {number}: the id {quote(question.id)} occurs twice; ids must be unique"
                )
            by_id[question.id] = question
        sources.append({"name": label, "sha256": sha256, "rows": len(by_id) - offset})
    if not by_id:
        raise BadInput(f"{', '.join(names)}: no question; at least one is needed")
    return list(by_id.values()), sources


def _read_sources(names: Sequence[str]) -> Iterator[tuple[str, list[str], Iterable[SourceRow], str]]:
    """Yield the label of each source in tables (numbered if used before), its columns, rows and digest."""
    labels = [name if name.startswith(HUB) else Path(name).name for name in names]
    for name, label in zip(names, number_repeats(labels, range(len(names))), strict=True):
        path = Path(name)
        yield label, *(_read_hub(name) if name.startswith(HUB) else (*read_file(path), file_hash(path)))


def read_contexts(names: Sequence[str], column: str | None) -> tuple[list[str], Sources]:
    """Read the distinct texts of some sources in order, and the sources, as ``read_questions`` does.

    Raises:
        BadInput: a source is unreadable, lacks the column or has no text.
    """
    texts, sources = dict[str, None](), Sources()
    for label, columns, rows, sha256 in _read_sources(names):
        offset = len(texts)
        text_field = chosen_column(label, columns, column, ("context",), "--question-column")
        texts |= dict.fromkeys(
            text
            for number, row in rows
            if (text := check_legible(f"{label}, row {number}", cell_text(row[text_field]).strip()))
        )
        sources.append({"name": label, "sha256": sha256, "rows": len(texts) - offset})
    if not texts:
        raise BadInput(f"{', '.join(names)}: no text; at least one is needed")
    return list(texts), sources


def chosen_column(label: str, header: Sequence[str], column: str | None, defaults: Sequence[str], flag: str) -> str:
    """Return ``column``, or if it is None the first of ``defaults`` in ``header``; raise BadInput without one."""
    candidates = defaults if column is None else (column,)
    for name in candidates:
        if name in header:
            return name
    raise BadInput(f"{label}: no column {' or '.join(candidates)}; it has {', '.join(header)} ({flag} names one)")


def _question(label: str, number: int, row: Mapping[str, Any], question_field: str, answer_field: str) -> Question:
    question = cell_text(row[question_field]).strip()
    try:
        answers = tuple(dict.fromkeys(_texts_of(row[answer_field])))
    except RecursionError as error:
        raise BadInput(f"{label}, row {number}: {answer_field} is nested too deeply") from error
    for field, content in ((question_field, question), (answer_field, answers)):
        if not content:
            raise BadInput(f"{label}, row {number}: {field} is empty; each question needs one")
    id, group, context = (cell_text(row.get(name)) for name in ("id", "group", "context"))
    for text in (question, *answers, id, group, context):
        check_legible(f"{label}, row {number}", text)
    return Question(id or f"{label}-{number}", question, answers, group, context)


def _texts_of(cell: Any) -> Iterator[str]:
    """Yield all texts of a cell: a string, a list, the ANSWER_KEYS of an object, or any of these as JSON."""
    text, cell = cell, unpack(cell.strip() if isinstance(cell, str) else cell)
    if isinstance(text, str) and isinstance(cell, list) and not all(isinstance(x, (str, dict)) for x in cell):
        cell = text  # "[0, 1]" is one answer, not two
    if isinstance(cell, Mapping):
        for name in ANSWER_KEYS:
            yield from _texts_of(cell.get(name))
    elif isinstance(cell, (list, tuple)):
        for item in cell:
            yield from _texts_of(item)
    elif not is_missing(cell):
        yield str(cell).strip()


def _read_hub(name: str) -> tuple[list[str], Iterable[SourceRow], str]:
    """Load a split of a dataset."""
    address = name.removeprefix(HUB)
    dataset, config, split, *surplus = (*SHORT_NAMES.get(address, address).split(":"), "", "")[:4]
    if any(surplus) or "/" not in dataset:
        short_names = ", ".join(HUB + short for short in SHORT_NAMES)
        raise BadInput(f"{name}: unknown; it must be {HUB}OWNER/NAME:CONFIG:SPLIT, or one of {short_names}")
    try:
        from datasets import load_dataset
    except ImportError as error:
        need = "needs: uv run --extra hub exaul"
        raise BadInput(f"{name}: {need}; or pass the questions as a file") from error
    try:
        rows = load_dataset(dataset, config or None, split=split or "validation")
    except Exception as error:
        raise BadInput(f"{name}: cannot be loaded ({error}); pass the questions as a file") from error
    return rows.column_names, enumerate(rows, 1), str(getattr(rows, "_fingerprint", ""))
