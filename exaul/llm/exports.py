"""Read exports of tools that store users' feedback, and join the feedback on answers with their scores.

A function for each tool, Langfuse, Arize Phoenix, MLflow and Open WebUI, yields the scores and feedback of a file.
The score is a named one, or LIKELIHOOD: that of the output, a chat completion. Each function raises BadInput,
which names file and row; hence rows are objects of Python, since pandas would change cells.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from exaul.engine.checks import BadInput, check_holds, quote, shorten
from exaul.engine.logs.log import is_missing
from exaul.llm.replies import likelihood, reply_of
from exaul.llm.tables import EARLIEST, LogRows, Row, comparison_key, read_rows, require_fields, share_of, unpack

THUMBS = (("0", "1"), ("-1", "1"), ("false", "true"), ("down", "up"), ("thumbs-down", "thumbs-up"), ("👎", "👍"))
LIKELIHOOD = ""  # no name of a score: it is computed from the logprobs in an answer's output
NO_LOGPROBS = (
    "files: no output is a chat completion with logprobs; log whole completions with logprobs, or log a number in "
    "[0, 1] with each answer and name it with --score-name"
)


class Note(NamedTuple):
    """A score of an answer, or feedback on it, from one row of an export."""

    where: str  # file and number of the row, for messages
    id: str  # of the answer: an observation, span, trace or message; "": of no answer, such as a session
    trace: str  # id of the trace that the answer is part of; "" if unknown
    name: str  # of the score, perhaps LIKELIHOOD, or of the feedback
    value: Any  # as in the file; None or empty: there is none
    time: datetime  # of the last change, with time zone; EARLIEST if unknown
    source: str = ""  # where feedback comes from, in the tool's words
    is_human: bool = False  # whether it can be a user's feedback: not an evaluator's


def langfuse(path: Path, score: str) -> Iterator[Note]:
    """Read a file of ``scores`` or ``observations``, of a blob storage export or of the button Export.

    A score of an observation or trace is its value, or an entry of the observation's metadata. Scores of evaluators
    (source EVAL) are no feedback.
    """
    # the button writes traceId for trace_id
    columns, rows = read_rows(path, lambda name: re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower())
    has_observations = {"id", "trace_id", "start_time"} <= set(columns)
    if not has_observations:
        fields = "trace_id", "observation_id", "name", "value", "string_value", "data_type", "source", "timestamp"
        require_fields(path, columns, fields, ", so it has neither scores nor observations")
    for row in rows:
        trace = row.text("trace_id")
        if has_observations:
            value = _score_field(row, score, "output", f"metadata.{score}")
            yield Note(row.where, row.text("id"), trace, score, value, row.time("start_time"))
            continue
        # the ``value`` of a text is an index, or nothing
        value = row.get("string_value" if row.text("data_type") in ("CATEGORICAL", "TEXT") else "value")
        time = row.time("updated_at", "timestamp")  # an edited score keeps its timestamp
        id, source = row.text("observation_id") or trace, row.text("source")
        yield Note(row.where, id, trace, row.text("name"), value, time, source, source != "EVAL")


def phoenix(path: Path, score: str) -> Iterator[Note]:
    """Read a table of annotations, or of spans with or without annotations.

    The client's ``get_span_annotations_dataframe`` and ``get_spans_dataframe`` give such tables, ``px span list
    --include-annotations`` a file. The value of feedback is its label, or its score if it has no label. The score
    of an answer is the score of an annotation, or an attribute of its span. Feedback is what a HUMAN annotated.
    """
    columns, rows = read_rows(path)
    if "annotator_kind" in columns:
        if not {"span_id", "trace_id"} & set(columns):
            raise BadInput(f"{path}: no column span_id; call reset_index() before saving the annotations")
        yield from (_annotation(row, row.text("trace_id"), score) for row in rows)
        return
    require_fields(path, columns, ["context.span_id"], " or annotator_kind: no spans or annotations")
    output = f"attributes.{score or 'output.value'}"
    for row in rows:
        id, trace = row.text("context.span_id"), row.text("context.trace_id")
        value = _score_field(row, score, output, output)
        yield Note(row.where, id, trace, score, value, row.time("start_time"))
        for annotation in row.rows("annotations"):
            yield _annotation(annotation, trace, score)


def _annotation(row: Row, trace: str, score: str) -> Note:
    name = row.text("annotation_name") or row.text("name")
    value = row.get("result.score") if name == score else row.get("result.label", "result.score")
    id, time, kind = row.text("span_id") or trace, row.time("updated_at", "created_at"), row.text("annotator_kind")
    return Note(row.where, id, trace, name, value, time, row.text("source"), kind == "HUMAN")


def mlflow(path: Path, score: str) -> Iterator[Note]:
    """Read a table of ``mlflow.search_traces()``, one row per trace.

    The score of an answer is the value of an assessment, or an entry of the trace's metadata or tags; without a
    name, the likelihood of the response, else of the output of the last span that has one, as autolog
    records it of a model. Feedback is what a HUMAN gave. Assessments that are not valid (overridden by another) and
    expectations are left out.
    """
    columns, rows = read_rows(path)
    require_fields(path, columns, ["trace_id", "assessments"], ", so it has no traces of MLflow")
    for row in rows:
        trace = row.text("trace_id")
        value = _score_field(row, score, "response", f"trace_metadata.{score}", f"tags.{score}")
        if not score and value is None:
            spans = sorted(row.rows("spans"), key=lambda span: span.time("end_time_unix_nano"))
            likelihoods = [_output_likelihood(span.get("attributes.mlflow.spanOutputs")) for span in spans]
            value = next((number for number in reversed(likelihoods) if number is not None), None)
        yield Note(row.where, trace, trace, score, value, row.time("request_time"))
        for assessment in row.rows("assessments"):
            if str(assessment.get("valid")).lower() != "false":
                name, source = assessment.text("assessment_name"), assessment.text("source.source_type")
                value, time = assessment.get("feedback.value"), assessment.time("last_update_time")
                yield Note(row.where, trace, trace, name, value, time, source, source == "HUMAN")


def open_webui(path: Path, score: str) -> Iterator[Note]:
    """Read the array of the page Evaluations, button Export.

    Open WebUI stores no score: it is an entry that a filter added to the message, or a program to ``meta`` or
    ``data`` of the feedback. The id joins those of the chat and of the message, since the ids of messages repeat
    in copies of a chat. The source is the model.
    """
    columns, rows = read_rows(path)
    require_fields(path, columns, ["data", "meta"], ", so it has no feedback of Open WebUI")
    for row in rows:
        if row.get("type") not in (None, "rating"):
            continue
        chat, id, model = row.text("meta.chat_id"), row.text("meta.message_id"), row.text("data.model_id")
        time, key = row.time("updated_at", "created_at"), f"{chat}/{id}" if id else ""
        yield Note(row.where, key, key, "rating", row.get("data.rating"), time, model, True)
        if score:
            by_id = unpack(row.get("snapshot.chat.chat.history.messages"))
            message = unpack(by_id.get(id)) if isinstance(by_id, dict) else None  # an id is no path: it has dots
            value = Row(row.where, message).get(score) if isinstance(message, dict) else None
            value = row.get(f"meta.{score}", f"data.{score}") if value is None else value
            yield Note(row.where, key, key, score, value, time, model)


def _score_field(row: Row, score: str, output: str, *fields: str) -> Any:
    """Return the value of a score: of the named fields, or the likelihood of the output."""
    return row.get(*fields) if score else _output_likelihood(row.get(output))


def _output_likelihood(output: Any) -> float | None:
    """Return the likelihood of the answer in a chat completion, by its logprobs; None if there are none."""
    body = unpack(output)
    if not isinstance(body, dict) or "choices" not in body:
        return None
    try:
        raw = json.dumps(body, default=lambda array: array.tolist()).encode()
        logprobs = reply_of(raw, str).logprobs
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return likelihood(logprobs) if logprobs else None


def join_notes(
    notes: Iterable[Note], score: str, feedback: str | None, down: Sequence[str]
) -> tuple[LogRows, list[str]]:
    """Join feedback with the score of the same answer, else with the last score of its trace.

    Return the rows of a log by time (id, time, score, error, source), and lines that say what was joined.
    Of several values of one name for an answer the last by time counts; of equal times, the last in the files.

    Args:
        notes: of all files.
        score: name of the score, or LIKELIHOOD.
        feedback: name of the feedback; required if there are several.
        down: values of the feedback that mean wrong; the others mean right. Required if they are no known pair.

    Raises:
        BadInput: there is no score, no feedback or no pair of both; feedback has several names, or values of
            unknown meaning; a value is invalid.
    """
    if score and score == feedback:
        raise BadInput(f"score-name: {quote(score)} is also the thumb; they must differ")
    by_time = sorted(notes, key=lambda note: note.time)
    traces = {note.id: note.trace for note in by_time if note.trace}
    value_notes = [note for note in by_time if not is_missing(note.value)]
    score_notes = [note for note in value_notes if note.id and note.name == score]
    user_notes = [note for note in value_notes if note.is_human and note.name not in (LIKELIHOOD, score)]
    name = _feedback_name({note.name for note in user_notes}, feedback)
    if not score_notes:
        raise BadInput(f"score-name: no answer has a score {quote(score)}" if score else NO_LOGPROBS)
    feedback_notes = [note for note in user_notes if note.name == name]
    # a later value replaces an earlier one
    scores = {note.id: note for note in score_notes}
    trace_scores = {traces.get(note.id, note.id): note for note in score_notes}
    ratings = {note.id: note for note in feedback_notes if note.id}
    counts = Counter(map(_thumb_of, ratings.values()))
    wrong = _wrong_thumbs(counts.keys(), down)
    latest_notes = [note for note in feedback_notes if ratings.get(note.id) is note]  # by time
    matches = [scores.get(note.id) or trace_scores.get(traces.get(note.id, note.id)) for note in latest_notes]
    pairs = [(rating, match) for rating, match in zip(latest_notes, matches, strict=True) if match is not None]
    if not pairs:
        raise BadInput(
            f"files: {len(ratings)} answers have feedback {quote(name)}, {len(scores)} a score, and none has both; "
            "give all files of the same days"
        )
    values = {id: share_of(f"{x.where}: the score {quote(x.name)}", x.value) for id, x in scores.items()}
    rows = [
        {
            "id": rating.id,
            "time": None if rating.time == EARLIEST else rating.time.isoformat(timespec="milliseconds"),
            "score": values[match.id],
            "error": int(_thumb_of(rating) in wrong),
            "source": rating.source,
        }
        for rating, match in pairs
    ]
    parts = (f"{quote(value)} {'down' if value in wrong else 'up'}: {n}" for value, n in counts.most_common())
    unattached = sum(not note.id for note in feedback_notes)
    share = len({match.id for _, match in pairs}) / len(scores)
    return rows, [
        f"feedback {quote(name)}: {len(ratings)} answers ({shorten(', '.join(parts))})",
        f"joined with a score: {len(rows)}; not joined: {len(ratings) - len(rows) + unattached}; "
        f"replaced by later ones: {len(feedback_notes) - unattached - len(ratings)}",
        f"rated share: {share:.2%} of {len(scores)} answers with a score"
        if share < 1
        else "rated share: unknown, since all scores in the files are of rated answers",
        "this log has only answers that were shown and rated; it says nothing of the others",
    ]


def _feedback_name(names: Collection[str], feedback: str | None) -> str:
    if feedback is not None and feedback not in names:
        raise BadInput(
            f"thumb-name: no user's feedback {quote(feedback)} in the files; omit the flag to see its names"
        )
    if not names:
        raise BadInput("files: no user's feedback besides the score; evaluators' scores are not feedback")
    if feedback is None and len(names) > 1:
        raise BadInput(f"thumb-name: missing; it must be one of {shorten(', '.join(sorted(names)))}")
    return feedback or next(iter(names))


def _thumb_of(note: Note) -> str:
    """Return the value of feedback as a text that is equal for equal values."""
    if not isinstance(note.value, (int, float, str)):
        raise BadInput(
            f"{note.where}: the feedback {quote(note.name)} is {quote(note.value)}; "
            "it must be a text, a number or a truth value"
        )
    return _thumb_key(note.value)


def _thumb_key(value: Any) -> str:
    return comparison_key(value).replace("_", "-").replace(" ", "-")


def _wrong_thumbs(values: Set[str], down: Sequence[str]) -> set[str]:
    """Return the values that mean wrong."""
    condition = f"of the values {shorten(', '.join(sorted(values)))}"
    if down:
        wrong = set(map(_thumb_key, down))
        check_holds("down", down, wrong <= values, condition)
        return wrong
    for low, high in THUMBS:
        if values <= {low, high}:
            return {low}
    raise BadInput(f"down: missing; it must be those {condition} that mean wrong")
