"""Join the feedback on answers with their scores, as rows of a log."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from exaul.engine.checks import BadInput, check_known, quote, shorten
from exaul.engine.logs.log import is_missing, parse_score
from exaul.llm.readers.rows import LIKELIHOOD, Note, Row

KNOWN = (("0", "1"), ("-1", "1"), ("false", "true"), ("down", "up"), ("thumbs-down", "thumbs-up"), ("👎", "👍"))
EARLIEST = datetime.min.replace(tzinfo=UTC)
LISTED = 12  # most names or values that a sentence lists

Latest = dict[str, Note]  # by the id of the answer


class Joined(NamedTuple):
    """The rows of a log, and what to say of them."""

    rows: list[Row]  # by time: id, time, score, error, source
    summary: list[str]  # lines


class LatestNotes(NamedTuple):
    """The last notes of each answer."""

    latest: dict[str, Latest]  # by name of the score or feedback
    traces: dict[str, str]  # trace of each answer, or its own id
    replaced: Counter[str]  # number of earlier notes by name
    stray: Counter[str]  # number of notes without an answer, as those of a session, by name


def join_notes(notes: Iterable[Note], score: str | None, feedback: str | None, down: Sequence[str]) -> Joined:
    """Join feedback with the score of the same answer, else with the last score of its trace.

    Of several values of one name for an answer the last by time counts; of equal times, the last in the files.

    Args:
        notes: of all files.
        score: name of the score; None: the likelihood of the output.
        feedback: name of the feedback; required if there are several.
        down: values of the feedback that mean wrong; the others mean right. Required if they are no known pair.

    Raises:
        BadInput: there is no score, no feedback or no pair of both; feedback has several names, or values of
            unknown meaning; a value is none of its kind.
    """
    if score is not None and score == feedback:
        raise BadInput(f"score-name: {quote(score)} is also the thumb; they must differ")
    collected = _collect(notes, score, feedback)
    scores = collected.latest.pop(LIKELIHOOD if score is None else score, {})
    name = _feedback_name(collected.latest, feedback)
    if not scores:
        raise BadInput(_no_score(score))
    ratings = collected.latest[name]
    wrong = _polarity(ratings, down)
    pairs = _pairs(scores, ratings, collected.traces)
    if not pairs:
        raise BadInput(
            f"files: {len(ratings)} answers have feedback {quote(name)}, {len(scores)} a score, and none has both; "
            "give all files of the same days"
        )
    values = {note.id: _score_of(note) for note in scores.values()}
    rows = [
        {
            "id": rating.id,
            "time": rating.time.isoformat(timespec="milliseconds") if rating.time else None,
            "score": values[note.id],
            "error": int(_value_of(rating) in wrong),
            "source": rating.source,
        }
        for rating, note in pairs
    ]
    counts = Counter(map(_value_of, ratings.values()))
    each = (f"{quote(value)} {'down' if value in wrong else 'up'}: {n}" for value, n in counts.most_common(LISTED))
    unjoined = len(ratings) - len(rows) + collected.stray[name]
    share = len({note.id for _, note in pairs}) / len(scores)
    return Joined(
        rows,
        [
            f"feedback {quote(name)}: {len(ratings)} answers ({', '.join(each)})",
            f"joined with a score: {len(rows)}; not joined: {unjoined}; "
            f"replaced by later ones: {collected.replaced[name]}",
            f"rated share: {share:.2%} of {len(scores)} answers with a score"
            if share < 1
            else "rated share: unknown, since all scores in the files are of rated answers",
            "this log has only answers that were shown and rated; it says nothing of the others",
        ],
    )


def _collect(notes: Iterable[Note], score: str | None, feedback: str | None) -> LatestNotes:
    collected = LatestNotes({}, {}, Counter(), Counter())
    for note in notes:
        if note.trace or note.id not in collected.traces:
            collected.traces[note.id] = note.trace or note.id
        is_score = note.name == (LIKELIHOOD if score is None else score)
        is_feedback = note.human and note.name != "" and feedback in (None, note.name)
        if is_missing(note.value) or not (is_score or is_feedback):
            continue
        if note.id:
            first = _keep(collected.latest.setdefault(note.name, {}), note.id, note)
            collected.replaced[note.name] += not first
        else:
            collected.stray[note.name] += 1
    return collected


def _pairs(scores: Latest, ratings: Latest, traces: Mapping[str, str]) -> list[tuple[Note, Note]]:
    """Return each rating that has a score, and this score, by the time of the rating."""
    of_trace: Latest = {}
    for note in scores.values():
        _keep(of_trace, traces[note.id], note)
    matches = ((rating, scores.get(rating.id) or of_trace.get(traces[rating.id])) for rating in ratings.values())
    return sorted(
        ((rating, note) for rating, note in matches if note is not None), key=lambda pair: _order(pair[0])
    )


def _order(note: Note) -> datetime:
    return note.time or EARLIEST


def _keep(latest: Latest, key: str, note: Note) -> bool:
    """Keep a note unless a later one is there. Return whether it is the first."""
    known = latest.get(key)
    if known is None or _order(note) >= _order(known):
        latest[key] = note
    return known is None


def _feedback_name(latest: Mapping[str, Latest], feedback: str | None) -> str:
    if feedback is not None and feedback not in latest:
        raise BadInput(
            f"thumb-name: no user's feedback {quote(feedback)} in the files; omit the flag to see its names"
        )
    if not latest:
        raise BadInput("files: no user's feedback besides the score; evaluators' scores are not feedback")
    if feedback is None and len(latest) > 1:
        raise BadInput(f"thumb-name: missing; it must be one of {_listed(latest)}")
    return feedback or next(iter(latest))


def _no_score(score: str | None) -> str:
    if score is not None:
        return f"score-name: no answer has a score {quote(score)}; omit the flag to use logged logprobs"
    return (
        "files: no output is a chat completion with logprobs; log whole completions with logprobs, or log a number "
        "in [0, 1] with each answer and name it with --score-name"
    )


def _score_of(note: Note) -> float:
    value = parse_score(note.value)
    if math.isnan(value):
        raise BadInput(
            f"{note.path}, row {note.row}: the score {quote(note.name)} is {quote(note.value)}; "
            "it must be a number in [0, 1]"
        )
    return value


def _value_of(note: Note) -> str:
    """Return the value of feedback as a text that is equal for equal values: 1, 1.0 and "1" are "1"."""
    value: Any = note.value
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if not isinstance(value, (bool, int, float, str)):
        raise BadInput(
            f"{note.path}, row {note.row}: the feedback {quote(note.name)} is {quote(value)}; "
            "it must be a text, a number or a truth value"
        )
    return _normal(str(value))


def _normal(text: str) -> str:
    text = text.strip().casefold().replace("_", "-").replace(" ", "-")
    try:
        return f"{float(text):.15g}"
    except (ValueError, OverflowError):
        return text


def _polarity(feedback: Latest, down: Sequence[str]) -> set[str]:
    """Return the values that mean wrong."""
    counts = Counter(map(_value_of, feedback.values()))
    if down:
        wrong = {_normal(value) for value in down}
        check_known("down", sorted(wrong), [value for value, _ in counts.most_common(LISTED)])
        return wrong
    for low, high in KNOWN:
        if set(counts) <= {low, high}:
            return {low}
    raise BadInput(f"down: missing; it must be those of the values {_listed(counts)} that mean wrong")


def _listed(names: Iterable[str]) -> str:
    several = list(names)
    more = f" and {len(several) - LISTED} more" if len(several) > LISTED else ""
    return shorten(", ".join(several[:LISTED])) + more
