"""Read spans and annotations of Arize Phoenix."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exaul.engine.checks import BadInput, quote
from exaul.engine.logs import files
from exaul.engine.logs.log import is_missing, listed
from exaul.llm.readers.rows import (
    LIKELIHOOD,
    Note,
    Row,
    field,
    holding,
    likelihood_of,
    read_rows,
    text_cell,
    time_cell,
    unpacked,
)

ANNOTATION = ("span_id", "trace_id", "annotation_name", "name", "annotator_kind", "result.label", "result.score")
TIMES = ("updated_at", "created_at")
OUTPUT = "attributes.output.value"


def phoenix(path: Path, score: str | None) -> Iterator[Note]:
    """Read a table of annotations, or of spans with or without annotations.

    The client's ``get_span_annotations_dataframe`` and ``get_spans_dataframe`` give such tables, ``px span list
    --include-annotations`` a file. The value of feedback is its label, or its score if it has no label. The score
    of an answer is that of an annotation or an attribute of its span; without a name, the likelihood of a chat
    completion that is the output. Feedback is what a HUMAN annotated.
    """
    present = files.columns(path)
    if "annotator_kind" in present:
        if not {"span_id", "trace_id"} & set(present):
            raise BadInput(f"{path}: no column span_id; call reset_index() before saving the annotations")
        for number, row in read_rows(path, holding(present, (*ANNOTATION, *TIMES, "source"))):
            yield _annotation(path, number, row, score)
        return
    if not holding(present, ["context.span_id"]):
        raise BadInput(
            f"{path}: no column annotator_kind or context.span_id, so it has neither annotations nor spans; "
            f"{listed(present)}"
        )
    wanted = OUTPUT if score is None else f"attributes.{score}"
    fields = ("context.span_id", "context.trace_id", "start_time", "annotations", wanted)
    for number, row in read_rows(path, holding(present, fields)):
        value = field(row, wanted)
        id, trace = (
            text_cell(path, number, name, field(row, f"context.{name}")) for name in ("span_id", "trace_id")
        )
        name, value = (LIKELIHOOD, likelihood_of(value)) if score is None else (score, value)
        time = time_cell(path, number, "start_time", field(row, "start_time"))
        yield Note(path, number, id, trace, name, value, time, "", human=False)
        annotations = unpacked(field(row, "annotations"))
        for annotation in (
            [] if is_missing(annotations) else annotations if isinstance(annotations, list) else [None]
        ):
            if not isinstance(annotation, dict):
                raise BadInput(
                    f"{path}, row {number}: annotations is {quote(annotations)}; it must be a list of objects"
                )
            yield _annotation(path, number, annotation | {"trace_id": trace}, score)


def _annotation(path: Path, number: int, row: Row, score: str | None) -> Note:
    def text(name: str) -> str:
        return text_cell(path, number, name, field(row, name))

    name, trace = text("annotation_name") or text("name"), text("trace_id")
    label: Any = None if name == score else field(row, "result.label")
    return Note(
        path,
        number,
        text("span_id") or trace,
        trace,
        name,
        field(row, "result.score") if is_missing(label) else label,
        next((time for each in TIMES if (time := time_cell(path, number, each, field(row, each)))), None),
        text("source"),
        text("annotator_kind") == "HUMAN",
    )
