"""Read exports of tools that store users' feedback: Langfuse, Arize Phoenix, MLflow and Open WebUI.

A function for each tool yields the scores and feedback of a file. The score is a named one, or without a name the
likelihood of a chat completion that is the output. Each raises BadInput, which names file and row.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exaul.engine.checks import BadInput
from exaul.llm.joining import LIKELIHOOD, Note
from exaul.llm.replies import Unreadable, likelihood, reply_of
from exaul.llm.rows import Row, read_rows, require_fields, unpacked


def langfuse(path: Path, score: str | None) -> Iterator[Note]:
    """Read a file of ``scores`` or ``observations``, of a blob storage export or of the button Export.

    A score of an observation or trace is its value, or an entry of the observation's metadata. Scores of evaluators
    (source EVAL) are no feedback.
    """
    present, rows = read_rows(path, _snake)  # the button writes traceId for trace_id
    observations = {"id", "trace_id", "start_time"} <= set(present)
    if not observations:
        fields = "trace_id", "observation_id", "name", "value", "string_value", "data_type", "source", "timestamp"
        require_fields(path, present, fields, ", so it has neither scores nor observations")
    for row in rows:
        trace = row.text("trace_id")
        if observations:
            name, value = _score(row, score, "output", f"metadata.{score}")
            yield Note(row.where, row.text("id"), trace, name, value, row.time("start_time"))
            continue
        # the ``value`` of a text is an index, or nothing
        value = row.get("string_value" if row.text("data_type") in ("CATEGORICAL", "TEXT") else "value")
        time = row.time("updated_at", "timestamp")  # an edited score keeps its timestamp
        id, source = row.text("observation_id") or trace, row.text("source")
        yield Note(row.where, id, trace, row.text("name"), value, time, source, source != "EVAL")


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


def phoenix(path: Path, score: str | None) -> Iterator[Note]:
    """Read a table of annotations, or of spans with or without annotations.

    The client's ``get_span_annotations_dataframe`` and ``get_spans_dataframe`` give such tables, ``px span list
    --include-annotations`` a file. The value of feedback is its label, or its score if it has no label. The score
    of an answer is that of an annotation or an attribute of its span. Feedback is what a HUMAN annotated.
    """
    present, rows = read_rows(path)
    if "annotator_kind" in present:
        if not {"span_id", "trace_id"} & set(present):
            raise BadInput(f"{path}: no column span_id; call reset_index() before saving the annotations")
        yield from (_annotation(row, row.text("trace_id"), score) for row in rows)
        return
    require_fields(path, present, ["context.span_id"], " or annotator_kind: no spans or annotations")
    output = "attributes.output.value" if score is None else f"attributes.{score}"
    for row in rows:
        id, trace = row.text("context.span_id"), row.text("context.trace_id")
        name, value = _score(row, score, output, output)
        yield Note(row.where, id, trace, name, value, row.time("start_time"))
        for annotation in row.rows("annotations"):
            yield _annotation(annotation, trace, score)


def _annotation(row: Row, trace: str, score: str | None) -> Note:
    name = row.text("annotation_name") or row.text("name")
    value = row.get("result.score") if name == score else row.get("result.label", "result.score")
    id, time, human = row.text("span_id") or trace, row.time("updated_at", "created_at"), row.text("annotator_kind")
    return Note(row.where, id, trace, name, value, time, row.text("source"), human == "HUMAN")


def mlflow(path: Path, score: str | None) -> Iterator[Note]:
    """Read a table of ``mlflow.search_traces()``, one row per trace.

    The score of an answer is the value of an assessment, or an entry of the trace's metadata or tags; without a
    name, the likelihood of the response, else of the output of the last span that has one, as those that autolog
    records of a model. Feedback is what a HUMAN gave. Assessments that are not valid (overridden by another) and
    expectations are left out.
    """
    present, rows = read_rows(path)
    require_fields(path, present, ["trace_id", "assessments"], ", so it has no traces of MLflow")
    for row in rows:
        trace = row.text("trace_id")
        name, value = _score(row, score, "response", f"trace_metadata.{score}", f"tags.{score}")
        if score is None and value is None:
            spans = sorted(row.rows("spans"), key=lambda span: span.time("end_time_unix_nano"))
            each = [_likelihood(span.get("attributes.mlflow.spanOutputs")) for span in spans]
            value = next((number for number in reversed(each) if number is not None), None)
        yield Note(row.where, trace, trace, name, value, row.time("request_time"))
        for assessment in row.rows("assessments"):
            if str(assessment.get("valid")).lower() != "false":
                name, source = assessment.text("assessment_name"), assessment.text("source.source_type")
                value, time = assessment.get("feedback.value"), assessment.time("last_update_time")
                yield Note(row.where, trace, trace, name, value, time, source, source == "HUMAN")


def open_webui(path: Path, score: str | None) -> Iterator[Note]:
    """Read the array of the page Evaluations, button Export.

    Open WebUI stores no score: it is an entry that a filter added to the message, or a program to ``meta`` or
    ``data`` of the feedback. The id is that of the chat and of the message, since the ids of messages repeat in
    copies of a chat. The source is the model.
    """
    present, rows = read_rows(path)
    require_fields(path, present, ["data", "meta"], ", so it has no feedback of Open WebUI")
    for row in rows:
        if row.get("type") not in (None, "rating"):
            continue
        chat, id, model = row.text("meta.chat_id"), row.text("meta.message_id"), row.text("data.model_id")
        time, key = row.time("updated_at", "created_at"), f"{chat}/{id}" if id else ""
        yield Note(row.where, key, key, "rating", row.get("data.rating"), time, model, True)
        if score is not None:
            every = unpacked(row.get("snapshot.chat.chat.history.messages"))
            message = unpacked(every.get(id)) if isinstance(every, dict) else None  # an id is no path: it has dots
            value = Row(row.where, message).get(score) if isinstance(message, dict) else None
            value = row.get(f"meta.{score}", f"data.{score}") if value is None else value
            yield Note(row.where, key, key, score, value, time, model)


def _score(row: Row, score: str | None, output: str, *named: str) -> tuple[str, Any]:
    """Return the name and value of a score: of the named fields, else the likelihood of the output."""
    return (LIKELIHOOD, _likelihood(row.get(output))) if score is None else (score, row.get(*named))


def _likelihood(output: Any) -> float | None:
    """Return the likelihood of the answer in a chat completion, by its logprobs; None if there are none."""
    body = unpacked(output)
    if not isinstance(body, dict) or "choices" not in body:
        return None
    try:
        raw = json.dumps(body, default=lambda array: array.tolist()).encode()
        logprobs = reply_of(raw, str).logprobs
    except (Unreadable, ValueError, TypeError, AttributeError, RecursionError):
        return None
    return likelihood(logprobs) if logprobs else None
