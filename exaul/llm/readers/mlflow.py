"""Read traces of MLflow with their assessments."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exaul.engine.checks import BadInput, quote
from exaul.engine.logs import files
from exaul.engine.logs.log import is_missing, require_columns
from exaul.llm.readers.rows import (
    LIKELIHOOD,
    Note,
    field,
    holding,
    likelihood_of,
    read_rows,
    text_cell,
    time_cell,
    unpacked,
)


def mlflow(path: Path, score: str | None) -> Iterator[Note]:
    """Read a table of ``mlflow.search_traces()``, one row per trace.

    The score of an answer is the value of an assessment, or an entry of the trace's metadata or tags; without a
    name, the likelihood of a chat completion that is the response. Feedback is what a HUMAN gave. Assessments that
    are not valid (overridden by another) and expectations are left out.
    """
    present = files.columns(path)
    require_columns(path, present, ("trace_id", "assessments"))
    wanted = ("response",) if score is None else (f"trace_metadata.{score}", f"tags.{score}")
    for number, row in read_rows(path, holding(present, ("trace_id", "assessments", "request_time", *wanted))):
        trace = text_cell(path, number, "trace_id", row["trace_id"])
        values = [field(row, each) for each in wanted]
        value = next((each for each in values if not is_missing(each)), None)
        name, value = (LIKELIHOOD, likelihood_of(value)) if score is None else (score, value)
        time = time_cell(path, number, "request_time", row.get("request_time"))
        yield Note(path, number, trace, trace, name, value, time, "", human=False)
        for assessment in _assessments(path, number, row["assessments"]):
            if str(assessment.get("valid")).lower() != "false":
                yield _assessment(path, number, trace, assessment)


def _assessments(path: Path, number: int, cell: Any) -> list[dict[str, Any]]:
    several = [] if is_missing(cell) else unpacked(cell)
    if not isinstance(several, list) or not all(isinstance(each, dict) for each in several):
        raise BadInput(f"{path}, row {number}: assessments is {quote(cell)}; it must be a list of objects")
    return several


def _assessment(path: Path, number: int, trace: str, assessment: dict[str, Any]) -> Note:
    name = text_cell(path, number, "assessment_name", assessment.get("assessment_name"))
    time = time_cell(path, number, "last_update_time", assessment.get("last_update_time"))
    source = text_cell(path, number, "source_type", field(assessment, "source.source_type"))
    value = field(assessment, "feedback.value")
    return Note(path, number, trace, trace, name, value, time, source, source == "HUMAN")
