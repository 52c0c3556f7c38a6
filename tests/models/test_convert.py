"""Files of other tools as logs: results of benchmarks, exports of users' feedback, tables of scored answers.

Rows have the fields that are read, and a few more. Most are written by hand from the tools' sources.
"""

import copy
import io
import json
import math
import sys
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random

import pandas as pd
import pyarrow as pa
import pytest

from exaul.commands.main import main
from tests.models.stub import completion, write_rows
from tests.processes import output_of, refusal_of

NAMED = "--score-name confidence"

CHOICE = {"doc_id": 0, "filter": "none", "acc": 1.0, "acc_norm": 0.0}
CHOICE |= {"resps": [[["-0.109", "False"]], [["-0.551", "True"]], [["-0.707", "False"]]]}
CHOICE |= {"filtered_resps": [["-0.109", "False"], ["-0.551", "True"], ["-0.707", "False"]]}
CHOICES = [CHOICE, CHOICE | {"doc_id": 1, "acc": 0.0}]
TEXT = {"doc_id": 7, "resps": [["Paris", "the Paris.", "Lyon"]], "filtered_resps": ["Paris"]}
TEXT |= {"filter": "strict-match", "exact_match": 1.0}


def sample(id, epoch, answer, value, logprobs=None, **scores):
    """A sample of a log of Inspect."""
    content = {"content": [{"token": "x", "logprob": x} for x in logprobs or []]}
    output = {"choices": [{"logprobs": content if logprobs else None}], "completion": answer}
    scores = {"match": {"value": value, "answer": answer}} | scores
    return {"id": id, "epoch": epoch, "error": None, "output": output, "scores": scores}


EPOCHS = [
    sample("q1", 2, "Lyon", "I"),
    sample("q1", 1, "Paris", "C", [-0.2, -0.4]),
    sample("q1", 3, "paris.", "C"),
    sample("q2", 1, "Bonn", "P", [-1.0]),
    sample("q2", 2, "Bonn", "C"),
    sample("q3", 1, "", "I") | {"error": {"message": "broken"}},
    sample("q4", 1, "", "I") | {"scores": {}},
]


def output(*logprobs):
    """A chat completion with a token per log-probability."""
    return completion(" ".join("abc"[: len(logprobs)]), list(logprobs))


def score(observation, name, value, string=None, kind="NUMERIC", **fields):
    """A row of Langfuse's ``scores``."""
    row = {"trace_id": "t1", "observation_id": observation, "name": name, "value": value, "string_value": string}
    row |= {"source": "API", "data_type": kind, "timestamp": "2026-08-01 10:00:00.000"}
    return row | {"updated_at": "2026-08-01 10:00:00.000"} | fields


def thumb(observation, value, up, **fields):
    """A score CATEGORICAL: ``value`` is the index in its configuration, so both thumbs can have the value 0."""
    return score(observation, "thumb", value, "thumbs-up" if up else "thumbs-down", "CATEGORICAL", **fields)


SCORES = [
    score("o1", "confidence", 0.9),
    score("o2", "confidence", 0.4),
    score("o3", "confidence", 0.7),
    thumb("o1", 0, True),
    thumb("o2", 0, False, timestamp="2026-08-01 09:00:00.000"),
    thumb("o2", 1, True, updated_at="2026-08-01 08:00:00.000"),  # earlier, though below
    thumb("o9", 0, False, trace_id="t9"),  # without a score
    thumb(None, 0, True, trace_id=None, session_id="s"),  # of a session
    thumb("o3", 0, False, source="EVAL"),  # a judge's
]


def camel(name):
    """The name of a column as the button Export of Langfuse writes it."""
    head, *words = name.split("_")
    return head + "".join(map(str.capitalize, words))


BUTTON = [{camel(name): value for name, value in row.items() if name != "updated_at"} for row in SCORES]


def observation(id, trace, *logprobs, **fields):
    """A row of Langfuse's ``observations``; the output is a text."""
    row = {"id": id, "trace_id": trace, "start_time": "2026-08-01 09:59:00.000", "metadata": {}}
    return row | {"output": json.dumps(output(*logprobs))} | fields


OBSERVATIONS = {
    "s": [score(None, "thumb", value, kind="BOOLEAN", trace_id=f"t{n}") for n, value in enumerate((0, 1, 1))],
    "o": [
        observation("o0", "t0", -0.1, -0.3),
        observation("o0", "t0", -0.1, -0.3),
        observation("o1", "t1", -2.0),
        observation("o2", "t1", -1.0, start_time="2026-08-01 09:59:30.000"),
        observation("o3", "t2", output="no completion"),
        observation("o4", "t4", -3.0),
    ],
}
IN_METADATA = {"s": [score("o1", "thumb", 1.0)], "o": [observation("o1", "t1", metadata={"sure": "0.25"})]}
TWICE = [score("o1", "confidence", 0.9), score("o1", "thumb", 0), score("o1", "thumb", 1)]


def annotation(span, name, kind, label=None, score=None, at="10:00:00+00:00"):
    """A row of Phoenix's ``get_span_annotations_dataframe().reset_index()``."""
    row = {"span_id": span, "source": "API", "annotation_name": name, "annotator_kind": kind, "metadata": {}}
    row |= {"created_at": "2026-08-01T00:00:00+00:00", "updated_at": f"2026-08-01T{at}"}
    return row | {"result.label": label, "result.score": score}


ANNOTATIONS = [
    annotation("a1", "confidence", "CODE", "high", 0.9),
    annotation("a2", "confidence", "CODE", "low", 0.4),
    annotation("a1", "user feedback", "HUMAN", "thumbs-up", 1.0),
    annotation("a1", "user feedback", "HUMAN", "thumbs-down", 0.0, "11:00:00+00:00"),  # of another user
    annotation("a2", "user feedback", "HUMAN", "thumbs-up", 0.0),  # the label counts
    annotation("a2", "user feedback", "LLM", "thumbs-down", 0.0, "12:00:00+00:00"),
    annotation("a2", "user feedback", "CODE", "thumbs-down", 0.0, "12:00:00+00:00"),
    annotation("a2", "note", "HUMAN"),
]


def span(id, trace, *logprobs, rated=None, **attributes):
    """A row of ``px span list --include-annotations``, of which one may be nested."""
    row = {"context": {"trace_id": trace, "span_id": id}, "start_time": "2026-08-01T09:59:00+00:00"}
    row |= {"attributes": attributes | {"output.value": json.dumps(output(*logprobs))}}
    nested = {"name": "user feedback", "annotator_kind": "HUMAN", "updated_at": "2026-08-01T11:00:00+00:00"}
    nested |= {"result": {"label": rated}, "span_id": id}
    return row | ({"annotations": [nested]} if rated else {})


SPANS = [
    span("a1", "t1", -0.5, sure=0.1, rated="thumbs-up"),
    span("root", "t2", rated="thumbs-down"),  # its child has the score
    span("child", "t2", -1.0, sure=0.2),
    span("a3", "t3", -1.0),
]
FLAT = [  # of a client that nests only attributes that it does not know
    {"context.span_id": id, "context.trace_id": id, "start_time": None, "attributes.exaul": {"sure": 0.3}}
    for id in ("a1", "a2")
]


def assessment(name, value, kind="HUMAN", at="10:00:00.000Z", **fields):
    """An assessment of MLflow."""
    row = {"assessment_name": name, "source": {"source_type": kind, "source_id": "u"}, "feedback": {"value": value}}
    row |= {"create_time": "2026-08-01T00:00:00Z", "last_update_time": f"2026-08-01T{at}", "valid": True}
    return row | fields


def trace(id, *assessments, **fields):
    """A row of ``mlflow.search_traces()``."""
    row = {"trace_id": id, "request_time": 1785578400000, "response": None, "trace_metadata": {}, "tags": {}}
    return row | {"assessments": list(assessments)} | fields


OVERRIDDEN = [
    assessment("thumb", True, at="12:00:00.000Z", valid=False),
    assessment("thumb", False, at="11:00:00.000Z", overrides="a-1"),
]
EXPECTED = {"assessment_name": "expected", "expectation": {"value": "x"}, "source": {"source_type": "HUMAN"}}
NO_FEEDBACK = assessment("thumb", False, "LLM_JUDGE", "12:00:00.000Z"), EXPECTED
TRACES = [
    trace("tr-1", assessment("confidence", 0.9, "CODE"), *OVERRIDDEN),
    trace("tr-2", assessment("confidence", 0.4, "CODE"), assessment("thumb", True), *NO_FEEDBACK),
    trace("tr-3", assessment("confidence", 0.5, "CODE")),
]
YES_OR_NO = [
    trace("tr-1", assessment("thumb", "yes"), response=output(-1.0), trace_metadata={"sure": "0.5"}),
    trace("tr-2", assessment("thumb", "no"), response=output(-2.0), tags={"sure": "0.25"}),
]
# Traces of MLflow 3.17 with ``mlflow.openai.autolog``, without metadata and tags: a function that calls a model,
# one that also calls that function, and a call of the model alone. The completion is in a span within the trace.
AUTOLOGGED = json.loads((Path(__file__).parent / "mlflow_autolog.json").read_text())
LOGGED = [row["trace_id"] for row in AUTOLOGGED]


def rating(message, value, model="m", at=1785578400, score=None, chat="c", others=(), **fields):
    """A row of Open WebUI's export; a filter added ``confidence`` to the message."""
    messages = dict(others) | {message: {"role": "assistant", "content": "x", "confidence": score}}
    row = {"type": "rating", "created_at": 1785578400, "updated_at": at}
    row |= {"data": {"rating": value, "model_id": model, "details": {"rating": 7}}}
    row |= {"meta": {"chat_id": chat, "message_id": message}}
    return row | {"snapshot": {"chat": {"chat": {"history": {"messages": messages}}}}} | fields


RATINGS = [
    rating("m1", -1, "a", score=0.9),
    rating("m2", "1", "b", score="0.4"),
    rating("m3", 1, "b", 1785578500, score=0.5),
    rating("m3", "-1", "b", score=0.5),
    rating("m4", None, score=0.3),
    rating("m5", 1, type="comment", score=0.3),
]
DOTS = "." * 100_000
IDS = [  # they repeat in other chats, and are no paths; the search of one with thousands of dots took minutes
    rating("m1", 1, score=0.9),
    rating("m1", 1, score=0.4, chat="d"),
    rating("a.b", 1, score=0.5, others={"a": {"b": {"confidence": 0.1}}}),
    rating(DOTS, 1, score=0.25),
]

STARS = [row for n in range(1, 6) for row in (score(f"o{n}", "stars", n), score(f"o{n}", "confidence", 0.5))]
ZERO = [score("o1", "x", 0), score("o2", "x", -1), *STARS]
NEUTRAL = [row | {"value": row["value"] - 2.0} for row in STARS[:6:2]] + STARS[1::2]  # -1, 0 and 1
HUGE = [STARS[0] | {"value": 10**400}, *STARS[1:]]  # which no float holds


def table(names, *rows):
    """Rows of cells."""
    return [dict(zip(names.split(), row, strict=True)) for row in rows]


FORMS = table("c p a", (7, " PARIS", "Paris"), ("10", 2, "2.0"), (0, 1, 3))
NESTED = '{"r": {"c": "85%"}, "ok": {"v": "Yes"}}\n\n{"r": {"c": "5 %"}, "ok": {"v": false}}'

WORDS, LABELS = "c\tok\n85\tCorrect\n0\tINCORRECT", "c,bad\n.2,true\n1,0\n1,right\n0,.25"

NO_FIELDS = ["metadata", "trace_metadata", "tags"]  # objects here, which Parquet holds only with fields


def save(rows, path):
    """Write a text, or rows in the format of a file's name, as the tools and pandas do."""
    if isinstance(rows, str):
        path.write_text(rows)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".jsonl":
        write_rows(path, rows)
    elif path.suffix == ".parquet":
        pd.DataFrame(rows).drop(columns=NO_FIELDS, errors="ignore").to_parquet(path)
    else:
        pd.DataFrame(rows).to_csv(path, index=False)
    return str(path)


def conversion(tmp_path, tool, files, flags=""):
    """Write the files, and return the command that makes log.csv of them."""
    paths = [save(rows, tmp_path / name) for name, rows in files.items()]
    return ["convert", tool, *paths, "--out", str(tmp_path / "log.csv"), *flags.split()]


TOLD_TIMES = {"source": ["API"] * 2, "time": ["2026-08-01T10:00:00.000+00:00"] * 2}
MODELS = {"source": ["a", "b", "b"]}
THIRD, LIKELY, LEAST = 1 / math.e, math.exp(-0.2), math.exp(-2)
CONVERTED = [  # tool; endings; rows, those of each file, or a text; flags; then the log: its ids, scores and errors
    ("lm-eval", "jsonl csv parquet", CHOICES, "", "x-0 x-1", 0.4560671, [0, 1]),
    ("lm-eval", "jsonl csv parquet", [TEXT], "", "x-7", 2 / 3, [0]),
    ("lm-eval", "jsonl", [CHOICE], "--metric acc_norm", "x-0", 0.4560671, [1]),
    ("lm-eval", "jsonl", [TEXT, TEXT | {"filter": "f", "exact_match": 0.0}], "--filter f", "x-7", 2 / 3, [1]),
    ("langfuse", "json csv parquet", SCORES, NAMED, "o1 o2", [0.9, 0.4], [0, 1], TOLD_TIMES),
    ("langfuse", "csv", BUTTON, NAMED, "o1 o2", [0.9, 0.4], [0, 0]),  # the last by timestamp
    # feedback on a trace belongs to its last observation with a score
    ("langfuse", "jsonl parquet", OBSERVATIONS, "", "t0 t1", [LIKELY, THIRD], [1, 0]),
    ("langfuse", "jsonl", IN_METADATA, "--score-name sure", "o1", 0.25, [0]),
    ("langfuse", "jsonl", TWICE, NAMED, "o1", 0.9, [0]),  # of equal times the last in the files counts
    ("langfuse", "jsonl", STARS, f"{NAMED} --down 1 2.0", "o1 o2 o3 o4 o5", 0.5, [1, 1, 0, 0, 0]),
    ("langfuse", "jsonl", NEUTRAL, f"{NAMED} --down -1", "o1 o2 o3", 0.5, [1, 0, 0]),
    ("langfuse", "jsonl", HUGE, f"{NAMED} --down 2 3 4 5", "o1 o2 o3 o4 o5", 0.5, [0, 1, 1, 1, 1]),
    # of two users the later counts; a judge does not; the confidence is a score though it has a label
    ("phoenix", "jsonl csv", ANNOTATIONS, NAMED, "a2 a1", [0.4, 0.9], [0, 1]),
    ("phoenix", "json", SPANS, "", "a1 root", [math.exp(-0.5), THIRD], [0, 1]),
    ("phoenix", "json", SPANS, "--score-name sure", "a1 root", [0.1, 0.2], [0, 1]),
    ("phoenix", "csv", {"s": FLAT, "a": ANNOTATIONS[3:4]}, "--score-name exaul.sure", "a1", 0.3, [1]),
    ("mlflow", "json csv parquet", TRACES, NAMED, "tr-2 tr-1", [0.4, 0.9], [0, 1]),  # in Parquet truth is a number
    ("mlflow", "csv", YES_OR_NO, "--down no", "tr-1 tr-2", [THIRD, LEAST], [0, 1]),
    ("mlflow", "csv", YES_OR_NO, "--down no --score-name sure", "tr-1 tr-2", [0.5, 0.25], [0, 1]),
    ("mlflow", "json csv", AUTOLOGGED, "", " ".join(LOGGED), [0.2231302, 0.0301974, 0.0111090], [1, 0, 1]),
    ("mlflow", "json csv", [AUTOLOGGED[0] | {"response": output(-3.0)}], "", LOGGED[0], math.exp(-3), [1]),
    ("open-webui", "json csv", RATINGS, NAMED, "c/m1 c/m2 c/m3", [0.9, 0.4, 0.5], [1, 0, 0], MODELS),
    ("open-webui", "json", IDS, NAMED, f"c/m1 d/m1 c/a.b c/{DOTS}", [0.9, 0.4, 0.5, 0.25], [0, 0, 0, 0]),
    ("table", "json", FORMS, "--score c --scale 0:10 --equal p a", "", [0.7, 1, 0], [0, 0, 1]),
    ("table", "jsonl", NESTED, "--score r.c --correct ok.v", "", [0.85, 0.05], [0, 1]),
    ("table", "tsv", WORDS, "--score c --scale 0:100 --correct ok", "", [0.85, 0], [0, 1]),
    ("table", "csv", LABELS, "--score c --error bad", "", [0.2, 1, 1, 0], [1, 0, 0, 0.25]),
    ("table", "txt", "x y,c,ok\n0,.5, 1\n", "--score c --correct ok", "", 0.5, [0]),
    ("table", "parquet", table("c ok", (3, 1), (1, 0)), "--score c --scale 5:1 --correct ok", "", [0.5, 1], [0, 1]),
]


EPOCHS_SCORED = {  # one row of all epochs; those that failed or have no score are left out
    "id": ["q1", "q2"],
    "score_logprob": [math.exp(-0.3), THIRD],
    "score_exact": [0.5, 1],
    "error": [0, 0.5],
}
TWO_SCORERS = {"samples": [sample("q", 1, "x", "C", [-1.0], other={"value": 0.25})]}
DATED = [score("o1", "confidence", 0.5), score("o1", "thumb", 1, updated_at="20260101")]
NEW_YEAR = {"time": ["2026-01-01T00:00:00.000+00:00"]}  # eight digits are a date, and no number of seconds
# Lists are left out, and columns that the log would take for its own; what UTF-8 cannot hold is escaped.
MIXED = '[{"c": 1, "id": "a\\ud800", "error": 2, "x": [], "p": 1}, {"c": ""}, {"c": 0, "id": "=", "p": 2}]'
KEPT = {"c": [1, 0], "id": [r"a\ud800", "'="], "p": [1, 2], "score": [1, 0], "error": [0, 1]}
DROPPING = "--score c --equal c p --drop-missing"
EACH = [  # ending, tool, rows, flags, and columns of the log; the first score has the name ""
    ("jsonl", "langfuse", DATED, NAMED, NEW_YEAR),
    ("jsonl", "langfuse", [DATED[0], DATED[1] | {"updated_at": 20260101}], NAMED, NEW_YEAR),
    ("json", "inspect", {"samples": EPOCHS}, "", EPOCHS_SCORED),
    ("json", "inspect", TWO_SCORERS, "--metric other", {"error": [0.75]}),
    ("json", "table", MIXED, DROPPING, KEPT),
]
for tool, endings, rows, flags, ids, scores, errors, *more in CONVERTED:
    found = {"": scores if isinstance(scores, list) else [scores] * len(errors), "error": errors}
    found = dict(found, **({"id": ids.split()} if ids else {}), **dict(*more))
    EACH += [(ending, tool, rows, flags, found) for ending in endings.split()]


@pytest.mark.usefixtures("inspect_ai")
@pytest.mark.parametrize(
    ("ending", "tool", "rows", "flags", "columns"), EACH, ids=[" ".join((*x[:2], x[3])) for x in EACH]
)
def test_a_file_becomes_a_log(tmp_path, ending, tool, rows, flags, columns):
    files = rows if isinstance(rows, dict) and tool != "inspect" else {"x": rows}
    files = {f"{name}.{ending}": each for name, each in files.items()}
    assert main(conversion(tmp_path, tool, files, flags)) == 0
    log = pd.read_csv(tmp_path / "log.csv")
    if tool == "langfuse":
        assert list(log) == ["id", "time", "score", "error", "source"]
    assert columns is not KEPT or list(log) == list(columns)
    assert tool != "table" or ("id" in log) == ("id" in columns)
    log[""] = log.filter(regex="^score").iloc[:, 0]
    for name, cells in columns.items():
        assert log[name].tolist() == pytest.approx(cells)


TOLD = [  # what is printed of which files
    (
        {"s.csv": SCORES},
        NAMED,
        [
            "feedback 'thumb': 3 answers ('thumbs-down' down: 2, 'thumbs-up' up: 1)",
            "joined with a score: 2; not joined: 2; replaced by later ones: 1",
            "rated share: 66.67% of 3 answers with a score",
            "only answers that were shown and rated",
            "error rate        0.5000",  # exaul inspect
        ],
    ),
    ({f"{name}.csv": rows for name, rows in OBSERVATIONS.items()}, "", ["rated share: 50.00% of 4 answers"]),
    ({"x.json": MIXED}, DROPPING, ["left out for an empty score or label: 1\n", "wrong: 1; equal apart from case"]),
]


@pytest.mark.parametrize(("files", "flags", "lines"), TOLD)
def test_what_was_read_is_told(tmp_path, capsys, files, flags, lines):
    printed = output_of(conversion(tmp_path, "table" if flags == DROPPING else "langfuse", files, flags), capsys)
    assert [line for line in lines if line not in printed] == []


def choice(*replies):
    """A multiple choice with other replies."""
    return [CHOICE | {"filtered_resps": [*replies]}]


def evaluated(value, *logprobs):
    """A log of Inspect with one sample."""
    return {"samples": [sample("q", 1, "x", value, list(logprobs))]}


THUMB = "--thumb-name thumb"
CELLS = "c,d,ok,no\n0.5,7,1,\n,NA,0,\n"
JUDGED = "--score c --correct ok"
NO_TEXT = TEXT | {"resps": [[None, None]], "filtered_resps": [None]}
BAD = {  # by tool: rows, flags and what is said
    "lm-eval": [
        ([TEXT, TEXT | {"filter": "a"}], "", "several filters, a, strict-match; --filter chooses one"),
        ([TEXT | {"resps": [["Paris"]]}], "", "row 1: the text was generated once"),
        ([TEXT | {"exact_match": [1, 2]}], "", "row 1: exact_match is [1, 2]; it must be a number in [0, 1]"),
        ([{"doc_id": 1, "resps": [], "filtered_resps": []}], "", "no column acc (--metric names the correctness)"),
        (choice(["-1.0", "True"]), "", "row 1: one log-likelihood only; a score needs"),
        (choice(["NaN", "x"], ["-1", "y"]), "", "row 1: filtered_resps is [['NaN', 'x'], ['-1', 'y']]; log"),
        (choice(["-inf", "x"], ["-inf", "y"]), "", "must be at most 0, not all -inf"),
        (choice(["3.5", "x"], ["-1", "y"]), "", "row 1: filtered_resps is"),
        ([CHOICE | {"doc_id": "\ud800"}], "", "files: an id: 'x-\\ud800' found; it must be UTF-8"),
        ([NO_TEXT], "", "row 1: resps or filtered_resps has a repeat"),
        ([TEXT | {"filtered_resps": ["42"]}], "", "row 1: the filter changed the text"),
        (SCORES, "--down 0", "down: ['0'] found; it must be absent with lm-eval"),
    ],
    "inspect": [
        (TWO_SCORERS, "", "several scorers, match, other; --metric chooses one"),
        (TWO_SCORERS, "--filter x", "filter: 'x' found; it must be absent with inspect"),
        (evaluated(10**400, -1.0), "", "sample q has the score 1000"),
        (evaluated([0.5], -1.0), "", "sample q has the score [0.5]; it must"),
        (evaluated("C", -1.0, 3.5), "", "neither usable logprobs nor further epochs"),
    ],
    "langfuse": [
        (SCORES, THUMB, "no output is a chat completion with logprobs; log whole"),
        (SCORES, "--score-name x", "thumb-name: missing; it must be one of confidence, thumb"),
        (SCORES, f"--score-name x {THUMB}", "score-name: no answer has a score 'x'"),
        (SCORES, "--thumb-name x", "thumb-name: no user's feedback 'x' in the files"),
        (SCORES, "--score-name x --thumb-name x", "score-name: 'x' is also the thumb"),
        (SCORES, "--metric acc", "metric: 'acc' found; it must be absent with langfuse"),
        ([{"id": 1}], "", "the log has id; for a table of answers use exaul convert table"),
        ([SCORES[3], score("o1", "confidence", 1.5)], NAMED, "row 2: the score 'confidence' is 1.5; it must be"),
        ([SCORES[0], score("o1", "thumb", [1])], NAMED, "row 2: the feedback 'thumb' is [1]; it must"),
        ([score("o", "x", 1, updated_at="2/3")], "", "row 1: updated_at or timestamp is '2/3'; it must"),
        ([score({}, "thumb", 1)], "", "x.jsonl, row 1: observation_id is {}; it must be a text"),
        ([score("\ud800", "thumb", 1)], "", "row 1: observation_id: '\\ud800' found; it must be"),
        ([SCORES[0], score("o", "x", 1, trace_id="t")], NAMED, "1 answers have feedback 'x', 1 a score"),
        ([score("o", "x", 1, source="EVAL")], NAMED, "files: no user's feedback besides"),
        (STARS, NAMED, "down: missing; it must be those of the values 1, 2, 3, 4, 5 that mean wrong"),
        (STARS, f"{NAMED} --down 6", "down: ('6',) found; it must be of the values 1, 2, 3, 4, 5"),
        (ZERO, f"{NAMED} --thumb-name x", "values -1, 0 that"),  # 0 may be neutral
    ],
    "phoenix": [
        ([{"annotator_kind": "HUMAN"}], "", "x.jsonl: no column span_id; call reset_index() before"),
        ([{"id": 1}], "", "x.jsonl: no column context.span_id or annotator_kind: no spans or"),
        ([SPANS[0] | {"annotations": [1]}], "", "row 1: annotations is [1]; it must be a list"),
    ],
    "mlflow": [
        ([{"trace_id": 1}], "", "no column assessments, so it has no traces of MLflow; the log has"),
        ([trace("t") | {"assessments": "[oops"}], "", "row 1: assessments is '[oops'; it must be a list of"),
    ],
    "open-webui": [([{"data": {}}], "", "no column meta, so it has no feedback of Open WebUI; the log has")],
    "table": [
        (CELLS, JUDGED, "x.csv, row 2: c is empty; --drop-missing leaves out such rows"),
        (CELLS, "--score c --correct no", "x.csv, row 1: no is empty; --drop-missing leaves out such rows"),
        (CELLS, "--score c --correct no --drop-missing", "x.csv: no row has both a score and a label"),
        (CELLS, "--score d --correct ok", "row 1: d is '7'; it must be a number from 0 to 1 (--scale"),
        (CELLS, "--score d --scale 0:5 --correct ok", "row 1: d is '7'; it must be a number from 0 to 5\n"),
        (CELLS, "--score d --scale 0:10 --correct ok", "row 2: d is 'NA'; it must be a number from 0 to 10\n"),
        (CELLS, "--score c --error d", "row 1: d is '7'; it must be 0 or 1, true or false, yes or no"),
        (CELLS, "--score c --equal d z", "x.csv: no column z; the log has c, d, ok, no"),
        (CELLS, "--score c", "--score COL and one of --correct COL, --error COL and --equal COL COL must name its"),
        (CELLS, f"{JUDGED} --error ok", "must name its columns; the log has c, d, ok, no"),
        (CELLS, f"{JUDGED} --scale 1:1", "scale: '1:1' found; it must be two numbers, as 0:10"),
        (CELLS, f"{JUDGED} --scale 10", "scale: '10' found; it must be two numbers, as 0:10"),
        (CELLS, "--score c --equal d", "equal: ('d',) found; it must be two columns"),
        (CELLS, "--score c --metric x", "metric: 'x' found; it must be absent with table"),
        # all answers in one row
        ('[{"c": [0.5, 1], "ok": [0, 1]}]', JUDGED, ", row 1: c is a list; each answer must have a row of its own"),
        ('{"by": "m", "results": [{"c": 1}]}', JUDGED, "no column c in its only row; save the list results alone"),
    ],
}


@pytest.mark.usefixtures("inspect_ai")
@pytest.mark.parametrize(("tool", "rows", "flags", "sentence"), [(tool, *row) for tool in BAD for row in BAD[tool]])
def test_a_file_that_is_no_log_is_one_sentence(tmp_path, capsys, tool, rows, flags, sentence):
    endings = {"inspect": "json", "table": "csv" if rows == CELLS else "json"}
    name = f"x.{endings.get(tool, 'jsonl')}"
    assert sentence in refusal_of(conversion(tmp_path, tool, {name: rows}, flags), capsys)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_is_converted_once_and_to_a_csv(tmp_path, capsys):
    said = refusal_of(conversion(tmp_path, "lm-eval", {"x.jsonl": [CHOICE], "./x.jsonl": [CHOICE]}), capsys)
    assert "files: the id 'x-0' occurs twice in 'x'; is a file" in said
    argv = conversion(tmp_path, "lm-eval", {"x.jsonl": [CHOICE]}, f"--out {tmp_path}/x.parquet")
    assert "x.parquet' found; it must be a name that ends in .csv" in refusal_of(argv, capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl"]


def test_what_is_no_log_of_inspect_may_be_a_table(tmp_path, inspect_ai, monkeypatch, capsys):
    """The sentence has its columns, and the command that reads it; also if Inspect is not installed."""

    def said(row):
        return refusal_of(conversion(tmp_path, "inspect", {"x.json": row}), capsys)

    hint = "; the log has said; for a table of answers use exaul convert table"
    told = said({"said": "a"})
    assert "x.json: no log of Inspect (" in told
    assert hint in told
    assert "for a table" not in said(0)
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    assert f"x.json: needs inspect-ai; pip install inspect-ai{hint}" in said({"said": "a"})


ANSWERS = [{"id": n, "a": {"sure": f"{n}%"}, "said": "Yes", "truth": ["no", "yes "][n % 2]} for n in range(3)]
EVALUATION = {"version": 2, "status": "", "samples": [sample("q", n, "a", "C", [-1]) for n in (1, 2)]}
GOLDEN = [  # rows of an export, and the flags that read them
    ("langfuse", SCORES, NAMED),
    ("phoenix", ANNOTATIONS, NAMED),
    ("phoenix", SPANS, ""),
    ("mlflow", TRACES, NAMED),
    ("mlflow", AUTOLOGGED, ""),
    ("open-webui", RATINGS, NAMED),
    ("lm-eval", CHOICES, ""),
    ("lm-eval", [TEXT], ""),
    ("inspect", EVALUATION, ""),
    ("table", ANSWERS, "--score a.sure --equal said truth"),
]
VALUES = [None, "", True, -1, 1e308, 10**400, float("nan"), "inf", [], {}, [None]]
VALUES += [{"value": {}}, "\ud800", "\0", "DEEP"]


def members(value):
    """All (parent, key) in a nested value."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from members(value[key])


def edit(value, random, values):
    """Remove or replace something, at any depth."""
    parent, key = random.choice(list(members(value)))
    if isinstance(parent, dict) and random.random() < 0.3:
        del parent[key]
    else:
        parent[key] = copy.deepcopy(random.choice(values))


def save_edited(rows, path, random):
    """Save rows of which up to three values, at any depth, are removed or replaced, and sometimes a byte."""
    rows = copy.deepcopy(rows)
    for _ in range(random.randrange(4)):
        edit(rows, random, VALUES)
    table = pd.DataFrame([row for row in rows if isinstance(row, dict)], dtype=object)
    if path.suffix == ".csv":
        table.to_csv(path, index=False, errors="surrogatepass")
    elif path.suffix == ".parquet":
        table = table.drop(columns=NO_FIELDS, errors="ignore")
        try:
            table.to_parquet(path)
        except (pa.ArrowException, OverflowError, UnicodeError):  # of values that it cannot hold
            table.map(ascii).to_parquet(path)
    else:
        save(rows, path)
    depth = random.choice([2, 100_000])
    data = bytearray(path.read_bytes().replace(b'"DEEP"', b"[" * depth + b"]" * depth))
    if random.random() < 0.3 and data:
        data[random.randrange(len(data))] = random.randrange(256)
    path.write_bytes(data)


@pytest.mark.usefixtures("inspect_ai")
@pytest.mark.parametrize("many", [60, pytest.param(10_000, marks=pytest.mark.slow)])
def test_hostile_exports_are_refused_or_read(tmp_path, many):
    """Each ends with a log of valid rows, or with one sentence and nothing written."""
    statuses = Counter()
    for seed in range(many):
        random = Random(seed)
        tool, rows, flags = GOLDEN[seed % len(GOLDEN)]
        ending = random.choice(["jsonl", "json", "csv", "parquet"]) if tool != "inspect" else "json"
        path, log = tmp_path / f"x.{ending}", tmp_path / "log.csv"
        save_edited(rows, path, random)
        with redirect_stderr(io.StringIO()) as errors, redirect_stdout(io.StringIO()):
            status = main(["convert", tool, str(path), "--out", str(log), *flags.split()])
        assert (status, errors.getvalue().count("\n"), log.exists()) in [(0, 0, True), (2, 1, False)], seed
        if status == 0:
            table = pd.read_csv(log).filter(regex="^(score|error)")
            assert ((table >= 0) & (table <= 1)).all(axis=None), seed
            log.unlink()
        statuses[status] += 1
    print(many, "edits:", statuses)
    assert min(statuses.values()) > many / 5
