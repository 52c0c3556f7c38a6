"""Join the feedback on answers with their scores, as rows of a log."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence, Set
from datetime import datetime
from typing import Any, NamedTuple

from exaul.engine.checks import BadInput, check_holds, quote, shorten
from exaul.engine.logs.log import is_missing, parse_score
from exaul.llm.rows import EARLIEST

KNOWN = (("0", "1"), ("-1", "1"), ("false", "true"), ("down", "up"), ("thumbs-down", "thumbs-up"), ("👎", "👍"))
LIKELIHOOD = ""  # name of the score that is computed from the logprobs in an answer's output


NO_LOGPROBS = (
    "files: no output is a chat completion with logprobs; log whole completions with logprobs, or log a number in "
    "[0, 1] with each answer and name it with --score-name"
)


class Note(NamedTuple):
    """A score of an answer or feedback on it, as one row of an export says."""

    where: str  # file and number of the row, for messages
    id: str  # of the answer: an observation, span, trace or message; "": it is of none, as that of a session
    trace: str  # id of the trace that the answer is part of; "" if unknown
    name: str  # of the score or feedback; LIKELIHOOD: the likelihood of the output
    value: Any  # as in the file; None or empty: there is none
    time: datetime  # of the last change, with time zone; EARLIEST if unknown
    source: str = ""  # where feedback comes from, in the tool's words
    human: bool = False  # whether it can be a user's feedback: not an evaluator's


def join_notes(
    notes: Iterable[Note], score: str | None, feedback: str | None, down: Sequence[str]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Join feedback with the score of the same answer, else with the last score of its trace.

    Return the rows of a log by time (id, time, score, error, source), and lines that say what was joined.
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
    by_time = sorted(notes, key=lambda note: note.time)
    traces = {note.id: note.trace for note in by_time if note.trace}
    valued = [note for note in by_time if not is_missing(note.value)]
    scored = [note for note in valued if note.id and note.name == (LIKELIHOOD if score is None else score)]
    users = [note for note in valued if note.human and note.name not in (LIKELIHOOD, score)]
    name = _feedback_name({note.name for note in users}, feedback)
    if not scored:
        raise BadInput(NO_LOGPROBS if score is None else f"score-name: no answer has a score {quote(score)}")
    named = [note for note in users if note.name == name]
    # a later value replaces an earlier one
    scores = {note.id: note for note in scored}
    of_trace = {traces.get(note.id, note.id): note for note in scored}
    ratings = {note.id: note for note in named if note.id}
    counts = Counter(map(_value_of, ratings.values()))
    wrong = _polarity(counts.keys(), down)
    last = [note for note in named if ratings.get(note.id) is note]  # by time
    matches = [scores.get(each.id) or of_trace.get(traces.get(each.id, each.id)) for each in last]
    pairs = [(rating, match) for rating, match in zip(last, matches, strict=True) if match is not None]
    if not pairs:
        raise BadInput(
            f"files: {len(ratings)} answers have feedback {quote(name)}, {len(scores)} a score, and none has both; "
            "give all files of the same days"
        )
    values = {id: _score_of(note) for id, note in scores.items()}
    rows = [
        {
            "id": rating.id,
            "time": None if rating.time == EARLIEST else rating.time.isoformat(timespec="milliseconds"),
            "score": values[match.id],
            "error": int(_value_of(rating) in wrong),
            "source": rating.source,
        }
        for rating, match in pairs
    ]
    each = (f"{quote(value)} {'down' if value in wrong else 'up'}: {n}" for value, n in counts.most_common())
    stray = sum(not note.id for note in named)
    share = len({match.id for _, match in pairs}) / len(scores)
    return rows, [
        f"feedback {quote(name)}: {len(ratings)} answers ({shorten(', '.join(each))})",
        f"joined with a score: {len(rows)}; not joined: {len(ratings) - len(rows) + stray}; "
        f"replaced by later ones: {len(named) - stray - len(ratings)}",
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


def _score_of(note: Note) -> float:
    value = parse_score(note.value)
    if math.isnan(value):
        raise BadInput(
            f"{note.where}: the score {quote(note.name)} is {quote(note.value)}; it must be a number in [0, 1]"
        )
    return value


def _value_of(note: Note) -> str:
    """Return the value of feedback as a text that is equal for equal values."""
    if not isinstance(note.value, (int, float, str)):
        raise BadInput(
            f"{note.where}: the feedback {quote(note.name)} is {quote(note.value)}; "
            "it must be a text, a number or a truth value"
        )
    return _rating(note.value)


def _rating(value: Any) -> str:
    return comparable(value).replace("_", "-").replace(" ", "-")


def comparable(value: Any) -> str:
    """Return a value as a text that is equal for equal values: " A" and "a" are "a"; 1, 1.0 and "1" are "1"."""
    text = str(value).strip().casefold()
    try:
        return f"{float(text):.15g}"
    except ValueError:
        return text


def _polarity(values: Set[str], down: Sequence[str]) -> set[str]:
    """Return the values that mean wrong."""
    among = f"of the values {shorten(', '.join(sorted(values)))}"
    if down:
        wrong = set(map(_rating, down))
        check_holds("down", down, wrong <= values, among)
        return wrong
    for low, high in KNOWN:
        if values <= {low, high}:
            return {low}
    raise BadInput(f"down: missing; it must be those {among} that mean wrong")
