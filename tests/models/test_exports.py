"""Exports of tools that collect users' feedback, as logs. Most are written by hand from the tools' sources."""

import copy
import io
import json
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random

import pandas as pd
import pyarrow as pa
import pytest

from exaul.commands.main import main
from tests.models.test_benchmarks import CHOICE, NO_FIELDS, TEXT, conversion, converted, sample, save
from tests.refusals import refusal_of

NAMED = ["--score-name", "confidence"]


def completion(*logprobs):
    """A chat completion with a token per log-probability."""
    tokens = [{"token": letter, "logprob": x} for letter, x in zip("abc", logprobs, strict=False)]
    message = {"role": "assistant", "content": "".join(token["token"] for token in tokens)}
    return {"choices": [{"index": 0, "message": message, "logprobs": {"content": tokens}, "finish_reason": "stop"}]}


def score(observation, name, value, string=None, kind="NUMERIC", **fields):
    """A row of Langfuse's ``scores``."""
    row = {
        "id": f"{observation}-{name}-{value}",
        "timestamp": "2026-08-01 10:00:00.000",
        "project_id": "p",
        "environment": "default",
        "trace_id": "t1",
        "observation_id": observation,
        "session_id": None,
        "dataset_run_id": None,
        "name": name,
        "value": value,
        "source": "API",
        "comment": None,
        "data_type": kind,
        "string_value": string,
        "created_at": "2026-08-01 10:00:00.000",
        "updated_at": "2026-08-01 10:00:00.000",
    }
    return row | fields


# CATEGORICAL: ``value`` is the index of the category in its configuration, so both thumbs can have the value 0.
SCORES = [
    score("o1", "confidence", 0.9),
    score("o2", "confidence", 0.4),
    score("o3", "confidence", 0.7),
    score("o1", "thumb", 0, "thumbs-up", "CATEGORICAL"),
    score("o2", "thumb", 0, "thumbs-down", "CATEGORICAL", timestamp="2026-08-01 09:00:00.000"),
    score(
        "o2", "thumb", 1, "thumbs-up", "CATEGORICAL", updated_at="2026-08-01 08:00:00.000"
    ),  # earlier, though below
    score("o9", "thumb", 0, "thumbs-down", "CATEGORICAL", trace_id="t9"),  # without a score
    score(None, "thumb", 0, "thumbs-up", "CATEGORICAL", trace_id=None, session_id="s"),  # of a session
    score("o3", "thumb", 0, "thumbs-down", "CATEGORICAL", source="EVAL"),  # a judge's
]


def observation(id, trace, *logprobs, **fields):
    """A row of Langfuse's ``observations``; the output is a text."""
    row = {
        "id": id,
        "trace_id": trace,
        "type": "GENERATION",
        "start_time": "2026-08-01 09:59:00.000",
        "metadata": {},
    }
    return row | {"output": json.dumps(completion(*logprobs))} | fields


def annotation(span, name, kind, label=None, score=None, at="10:00:00+00:00", **fields):
    """A row of Phoenix's ``get_span_annotations_dataframe().reset_index()``."""
    row = {
        "span_id": span,
        "id": "U3Bhbg==",
        "created_at": "2026-08-01T00:00:00+00:00",
        "updated_at": f"2026-08-01T{at}",
        "source": "API",
        "user_id": None,
        "annotation_name": name,
        "annotator_kind": kind,
        "metadata": {},
        "identifier": "",
        "result.label": label,
        "result.score": score,
        "result.explanation": None,
    }
    return row | fields


ANNOTATIONS = [
    annotation("a1", "confidence", "CODE", "high", 0.9),
    annotation("a2", "confidence", "CODE", "low", 0.4),
    annotation("a1", "user feedback", "HUMAN", "thumbs-up", 1.0, identifier="u1"),
    annotation("a1", "user feedback", "HUMAN", "thumbs-down", 0.0, "11:00:00+00:00", identifier="u2"),
    annotation("a2", "user feedback", "HUMAN", "thumbs-up", 1.0),
    annotation("a2", "user feedback", "LLM", "thumbs-down", 0.0, "12:00:00+00:00", identifier="judge"),
    annotation("a2", "note", "HUMAN"),
]


def span(id, trace, *logprobs, **attributes):
    """A row of ``px span list --include-annotations``."""
    attributes |= {"output.value": json.dumps(completion(*logprobs)), "output.mime_type": "application/json"}
    return {
        "name": "ask",
        "context": {"trace_id": trace, "span_id": id},
        "span_kind": "LLM",
        "parent_id": None,
        "start_time": "2026-08-01T09:59:00+00:00",
        "attributes": attributes,
    }


def assessment(name, value, kind="HUMAN", at="10:00:00.000Z", **fields):
    """An assessment of MLflow."""
    return {
        "assessment_id": "a-1",
        "assessment_name": name,
        "trace_id": "tr-1",
        "source": {"source_type": kind, "source_id": "u"},
        "create_time": "2026-08-01T00:00:00Z",
        "last_update_time": f"2026-08-01T{at}",
        "feedback": {"value": value},
        "valid": True,
    } | fields


def trace(id, *assessments, response=None, **fields):
    """A row of ``mlflow.search_traces()``."""
    return {
        "trace_id": id,
        "request_time": 1785578400000,
        "state": "OK",
        "request": {"q": "?"},
        "response": response,
        "trace_metadata": {},
        "tags": {},
        "assessments": list(assessments),
    } | fields


TRACES = [
    trace(
        "tr-1",
        assessment("confidence", 0.9, "CODE"),
        assessment("thumb", True, at="12:00:00.000Z", valid=False),
        assessment("thumb", False, at="11:00:00.000Z", overrides="a-1"),
    ),
    trace(
        "tr-2",
        assessment("confidence", 0.4, "CODE"),
        assessment("thumb", True),
        assessment("thumb", False, "LLM_JUDGE", "12:00:00.000Z"),
        {"assessment_name": "expected", "expectation": {"value": "x"}, "source": {"source_type": "HUMAN"}},
    ),
    trace("tr-3", assessment("confidence", 0.5, "CODE")),
]


# Traces of MLflow 3.17 with ``mlflow.openai.autolog``, without metadata and tags: a function that calls a model,
# one that also calls that function, and a call of the model alone.
AUTOLOGGED = json.loads((Path(__file__).parent / "mlflow_autolog.json").read_text())


def rating(message, value, model="m", at=1785578400, **fields):
    """A row of Open WebUI's export; a filter added ``confidence`` to the message."""
    messages = {
        message: {"id": message, "role": "assistant", "content": "x", "confidence": fields.pop("score", None)}
    }
    return {
        "id": f"{message}-{at}",
        "user_id": "u",
        "version": 0,
        "type": "rating",
        "data": {"rating": value, "model_id": model, "reason": "", "comment": "", "details": {"rating": 7}},
        "meta": {"arena": False, "chat_id": "c", "message_id": message, "message_index": 2},
        "snapshot": {"chat": {"id": "c", "chat": {"history": {"messages": messages}}}},
        "created_at": 1785578400,
        "updated_at": at,
    } | fields


RATINGS = [
    rating("m1", -1, "a", score=0.9),
    rating("m2", "1", "b", score="0.4"),
    rating("m3", 1, "b", 1785578500, score=0.5),
    rating("m3", "-1", "b", score=0.5),
    rating("m4", None, score=0.3),
    rating("m5", 1, type="comment", score=0.3),
]


def records(log):
    return list(zip(log["id"], log["score"], log["error"], strict=True))


@pytest.mark.parametrize("name", ["scores.json", "scores.csv", "scores.parquet"])
def test_scores_of_langfuse(tmp_path, capsys, name):
    log = converted(tmp_path, "langfuse", {name: SCORES}, *NAMED)
    assert list(log) == ["id", "time", "score", "error", "source"]
    assert records(log) == [("o1", 0.9, 0), ("o2", 0.4, 1)]
    assert set(log["source"]) == {"API"}
    assert list(log["time"]) == 2 * ["2026-08-01T10:00:00.000+00:00"]
    printed = capsys.readouterr().out
    assert "feedback 'thumb': 3 answers ('thumbs-down' down: 2, 'thumbs-up' up: 1)" in printed
    assert "joined with a score: 2; not joined: 2; replaced by later ones: 1" in printed
    assert "rated share: 66.67% of 3 answers with a score" in printed
    assert "only answers that were shown and rated" in printed
    assert "error rate        0.5000" in printed  # exaul inspect


def test_of_equal_times_the_last_in_the_files_counts(tmp_path):
    rows = [score("o1", "confidence", 0.9), score("o1", "thumb", 0), score("o1", "thumb", 1)]
    for order, error in ((rows, 0), (rows[::-1], 1)):
        log = converted(tmp_path, "langfuse", {"s.jsonl": order}, *NAMED)
        assert records(log) == [("o1", 0.9, error)]


def test_the_button_of_langfuse_writes_other_names(tmp_path):
    def camel(name):
        head, *words = name.split("_")
        return head + "".join(map(str.capitalize, words))

    rows = [{camel(name): value for name, value in row.items() if name != "updated_at"} for row in SCORES]
    log = converted(tmp_path, "langfuse", {"scores.csv": rows}, *NAMED)
    assert records(log) == [("o1", 0.9, 0), ("o2", 0.4, 0)]  # the last by timestamp


@pytest.mark.parametrize("name", ["observations.jsonl", "observations.parquet"])
def test_logprobs_of_langfuse(tmp_path, capsys, name):
    """Feedback on a trace belongs to its last observation with a score; an observation counts once."""
    ratings = [score(None, "thumb", value, kind="BOOLEAN", trace_id=f"t{n}") for n, value in enumerate((0, 1, 1))]
    observations = [
        observation("o0", "t0", -0.1, -0.3),
        observation("o0", "t0", -0.1, -0.3),
        observation("o1", "t1", -2.0),
        observation("o2", "t1", -1.0, start_time="2026-08-01 09:59:30.000"),
        observation("o3", "t2", output="no completion"),
        observation("o4", "t4", -3.0),
    ]
    log = converted(tmp_path, "langfuse", {"scores.csv": ratings, name: observations})
    assert list(log["id"]) == ["t0", "t1"]
    assert list(log["score"]) == pytest.approx([0.8187307, 0.3678794])
    assert list(log["error"]) == [1, 0]
    assert "rated share: 50.00% of 4 answers" in capsys.readouterr().out


def test_a_score_in_the_metadata_of_langfuse(tmp_path):
    rows = [observation("o1", "t1", metadata={"sure": "0.25"})]
    files = {"s.jsonl": [score("o1", "thumb", 1.0)], "o.jsonl": rows}
    assert records(converted(tmp_path, "langfuse", files, "--score-name", "sure")) == [("o1", 0.25, 0)]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_annotations_of_phoenix(tmp_path, name):
    """Of two users the later counts; a judge does not; the confidence is a score though it has a label."""
    log = converted(tmp_path, "phoenix", {name: ANNOTATIONS}, *NAMED)
    assert records(log) == [("a2", 0.4, 0), ("a1", 0.9, 1)]


def test_spans_of_phoenix(tmp_path):
    """Logprobs, attributes, nested annotations, and feedback on a span whose child has the score."""
    nested = {"name": "user feedback", "annotator_kind": "HUMAN", "updated_at": "2026-08-01T11:00:00+00:00"}
    up, down = ({"result": {"label": label}} for label in ("thumbs-up", "thumbs-down"))
    spans = [
        span("a1", "t1", -0.5, sure=0.1) | {"annotations": [nested | up | {"span_id": "a1"}]},
        span("root", "t2") | {"annotations": [nested | down | {"span_id": "root"}]},
        span("child", "t2", -1.0, sure=0.2),
        span("a3", "t3", -1.0),
    ]
    log = converted(tmp_path, "phoenix", {"spans.json": spans})
    assert list(log["id"]) == ["a1", "root"]
    assert list(log["score"]) == pytest.approx([0.6065307, 0.3678794])
    assert list(log["error"]) == [0, 1]
    log = converted(tmp_path, "phoenix", {"spans.json": spans}, "--score-name", "sure")
    assert list(log["score"]) == [0.1, 0.2]
    flat = pd.json_normalize([{key: row[key] for key in ("context", "start_time", "attributes")} for row in spans])
    flat["attributes.exaul"] = [{"sure": 0.3}] * 4  # as the client gives attributes that it does not know
    rows = [annotation("a1", "thumb", "HUMAN", score=0.0)]
    files = {"spans.csv": flat.to_dict("records"), "a.csv": rows}
    assert records(converted(tmp_path, "phoenix", files, "--score-name", "exaul.sure")) == [("a1", 0.3, 1)]


@pytest.mark.parametrize("name", ["t.json", "t.csv", "t.parquet"])
def test_assessments_of_mlflow(tmp_path, capsys, name):
    """In CSV assessments are as Python prints them; in Parquet all values of feedback are numbers."""
    log = converted(tmp_path, "mlflow", {name: TRACES}, *NAMED)
    assert records(log) == [("tr-2", 0.4, 0), ("tr-1", 0.9, 1)]
    assert "rated share: 66.67% of 3 answers" in capsys.readouterr().out


def test_other_scores_of_mlflow(tmp_path):
    rows = [
        trace("tr-1", assessment("thumb", "yes"), response=completion(-1.0), trace_metadata={"sure": "0.5"}),
        trace("tr-2", assessment("thumb", "no"), response=completion(-2.0), tags={"sure": "0.25"}),
    ]
    for flags, scores in (([], [0.3678794, 0.1353353]), (["--score-name", "sure"], [0.5, 0.25])):
        log = converted(tmp_path, "mlflow", {"t.csv": rows}, "--down", "no", *flags)
        assert list(log["score"]) == pytest.approx(scores)
        assert list(log["error"]) == [0, 1]


@pytest.mark.parametrize("name", ["t.json", "t.csv"])
def test_calls_that_mlflow_logs_by_itself(tmp_path, name):
    """The completion is in a span within the trace; of several the last counts."""
    log = converted(tmp_path, "mlflow", {name: AUTOLOGGED})
    assert list(log["score"]) == pytest.approx([0.2231302, 0.0301974, 0.0111090])
    assert list(log["error"]) == [1, 0, 1]
    log = converted(tmp_path, "mlflow", {name: [AUTOLOGGED[0] | {"response": completion(-3.0)}]})
    assert list(log["score"]) == pytest.approx([0.0497871])


def test_ids_of_open_webui(tmp_path):
    """They repeat in other chats, and are no paths; the search of one with thousands of dots took minutes."""
    rows = [rating(id, 1, score=x) for id, x in (("m1", 0.9), ("m1", 0.4), ("a.b", 0.5), ("." * 100_000, 0.25))]
    rows[1]["meta"] = rows[1]["meta"] | {"chat_id": "d"}
    history = rows[2]["snapshot"]["chat"]["chat"]["history"]
    history["messages"] = {"a": {"b": {"confidence": 0.1}}} | history["messages"]
    log = converted(tmp_path, "open-webui", {"r.json": rows}, *NAMED)
    assert records(log) == [("c/m1", 0.9, 0), ("d/m1", 0.4, 0), ("c/a.b", 0.5, 0), ("c/" + "." * 100_000, 0.25, 0)]


@pytest.mark.parametrize("name", ["r.json", "r.csv"])
def test_ratings_of_open_webui(tmp_path, capsys, name):
    log = converted(tmp_path, "open-webui", {name: RATINGS}, *NAMED)
    assert records(log) == [("c/m1", 0.9, 1), ("c/m2", 0.4, 0), ("c/m3", 0.5, 0)]
    assert list(log["source"]) == ["a", "b", "b"]
    assert "rated share: 75.00% of 4" in capsys.readouterr().out


def test_values_that_mean_wrong(tmp_path, capsys):
    def told(rows, *flags):
        return refusal_of(conversion(tmp_path, "langfuse", {"s.jsonl": rows}, *NAMED, *flags), capsys)

    def errors(rows, *flags):
        return list(converted(tmp_path, "langfuse", {"s.jsonl": rows}, *NAMED, *flags)["error"])

    rows = [row for n in range(1, 6) for row in (score(f"o{n}", "stars", n), score(f"o{n}", "confidence", 0.5))]
    assert "down: missing; it must be those of the values 1, 2, 3, 4, 5 that mean wrong" in told(rows)
    assert "down: ('6',) found; it must be of the values 1, 2, 3, 4, 5" in told(rows, "--down", "6")
    two = [score("o1", "x", 0), score("o2", "x", -1), *rows]
    assert "values -1, 0 that" in told(two, "--thumb-name", "x")  # 0 may be neutral
    neutral = [row | {"value": row["value"] - 2.0} for row in rows[::2][:3]] + rows[1::2]
    assert "values -1, 0, 1 that" in told(neutral)
    assert errors(rows, "--down", "1", "2.0") == [1, 1, 0, 0, 0]
    huge = [rows[0] | {"value": 10**400}, *rows[1:]]  # which no float holds
    assert errors(huge, "--down", "2", "3", "4", "5") == [0, 1, 1, 1, 1]
    assert errors(neutral, "--down", "-1") == [1, 0, 0]


@pytest.mark.parametrize(
    ("tool", "rows", "flags", "sentence"),
    [
        ("langfuse", SCORES, ["--thumb-name", "thumb"], "no output is a chat completion with logprobs; log whole"),
        ("langfuse", SCORES, ["--score-name", "x"], "thumb-name: missing; it must be one of confidence, thumb"),
        (
            "langfuse",
            SCORES,
            ["--score-name", "x", "--thumb-name", "thumb"],
            "score-name: no answer has a score 'x'",
        ),
        ("langfuse", SCORES, ["--thumb-name", "x"], "thumb-name: no user's feedback 'x' in the files"),
        ("langfuse", SCORES, ["--score-name", "x", "--thumb-name", "x"], "score-name: 'x' is also the thumb"),
        ("langfuse", SCORES, ["--metric", "acc"], "metric: 'acc' found; it must be absent with langfuse"),
        ("lm-eval", SCORES, ["--down", "0"], "down: ['0'] found; it must be absent with lm-eval"),
        ("langfuse", [{"id": 1}], [], "the log has id; for a table of answers use exaul convert table"),
        (
            "langfuse",
            [*SCORES, score("o1", "confidence", 1.5, updated_at="2026-09-01")],
            NAMED,
            "row 10: the score 'confidence' is 1.5; it must be",
        ),
        ("langfuse", [SCORES[0], score("o1", "thumb", [1])], NAMED, "row 2: the feedback 'thumb' is [1]; it must"),
        (
            "langfuse",
            [score("o", "x", 1, updated_at="2/3")],
            [],
            "row 1: updated_at or timestamp is '2/3'; it must",
        ),
        ("langfuse", [score({}, "thumb", 1)], [], "x.jsonl, row 1: observation_id is {}; it must be a text"),
        ("langfuse", [score("\ud800", "thumb", 1)], [], "row 1: observation_id: '\\ud800' found; it must be"),
        (
            "langfuse",
            [SCORES[0], score("o", "x", 1, trace_id="t")],
            NAMED,
            "1 answers have feedback 'x', 1 a score",
        ),
        ("langfuse", [score("o", "x", 1, source="EVAL")], NAMED, "files: no user's feedback besides"),
        ("phoenix", [{"annotator_kind": "HUMAN"}], [], "x.jsonl: no column span_id; call reset_index() before"),
        ("phoenix", [{"id": 1}], [], "x.jsonl: no column context.span_id or annotator_kind: no spans or"),
        ("phoenix", [span("a", "t") | {"annotations": [1]}], [], "row 1: annotations is [1]; it must be a list"),
        ("mlflow", [{"trace_id": 1}], [], "no column assessments, so it has no traces of MLflow; the log has"),
        (
            "mlflow",
            [trace("t") | {"assessments": "[oops"}],
            [],
            "row 1: assessments is '[oops'; it must be a list of",
        ),
        ("open-webui", RATINGS, [], "no output is a chat completion with logprobs"),
        ("open-webui", [{"data": {}}], [], "no column meta, so it has no feedback of Open WebUI; the log has"),
    ],
)
def test_a_file_without_feedback_is_one_sentence(tmp_path, capsys, tool, rows, flags, sentence):
    assert sentence in refusal_of(conversion(tmp_path, tool, {"x.jsonl": rows}, *flags), capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl"]


def test_an_array_of_json_has_numbered_rows(tmp_path, capsys):
    """One line, as the tools write it; longer than a line of JSON lines may be."""
    path = tmp_path / "x.json"
    rows = [{"score": 0.5, "error": 0, "text": "x" * 2**24}, {"score": 0.5, "error": 1}]
    path.write_text("\ufeff\n " + json.dumps(rows))
    assert main(["inspect", str(path)]) == 0
    capsys.readouterr()
    for text, sentence in (
        ('[{"score": 0.5, "error": 0}, {"score": 2, "error": 0}]', "x.json, row 2: score is '2'; it must"),
        ('[{"score": 0.5}, 3]', "x.json, row 2: not a JSON object; each row must be one"),
        ('[{"score": 0.5, "score": 1}]', "x.json: not JSON (2 columns are named 'score'"),
        ("[{}", "x.json: not JSON (Expecting"),
        ("[]", "x.json: empty"),
    ):
        path.write_text(text)
        assert sentence in refusal_of(["inspect", str(path)], capsys)


@pytest.mark.parametrize("name", ["s.jsonl", "s.csv", "s.parquet"])
def test_samples_of_lm_eval(tmp_path, name):
    """Lists are texts in CSV, and arrays in Parquet."""
    for row, column, score in ((CHOICE, "score_logprob", 0.4560671), (TEXT, "score_exact", 2 / 3)):
        log = converted(tmp_path, "lm-eval", {name: [row]})
        assert list(log[column]) == pytest.approx([score])
        assert list(log["error"]) == [0]


def test_eight_digits_are_a_date(tmp_path):
    """Not a number of seconds."""
    rows = [score("o1", "confidence", 0.5), score("o1", "thumb", 1, updated_at="20260101")]
    for row in (rows[1], rows[1] | {"updated_at": 20260101}):
        log = converted(tmp_path, "langfuse", {"s.jsonl": [rows[0], row]}, *NAMED)
        assert list(log["time"]) == ["2026-01-01T00:00:00.000+00:00"]


ANSWERS = [{"id": n, "a": {"sure": f"{n}%"}, "said": "Yes", "truth": ["no", "yes "][n % 2]} for n in range(3)]
GOLDEN = [  # rows of an export, and the flags that read them
    ("langfuse", SCORES, NAMED),
    ("phoenix", ANNOTATIONS, NAMED),
    ("phoenix", [span("a", "t", -1.0) | {"annotations": ANNOTATIONS[2:4]}], []),
    ("mlflow", TRACES, NAMED),
    ("mlflow", AUTOLOGGED, []),
    ("open-webui", RATINGS, NAMED),
    ("lm-eval", [CHOICE, CHOICE | {"doc_id": 1}], []),
    ("lm-eval", [TEXT], []),
    ("inspect", {"version": 2, "status": "", "samples": [sample("q", n, "a", "C", [-1]) for n in (1, 2)]}, []),
    ("table", ANSWERS, ["--score", "a.sure", "--equal", "said", "truth"]),
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
@pytest.mark.parametrize("many", [100, pytest.param(10_000, marks=pytest.mark.slow)])
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
            status = main(["convert", tool, str(path), "--out", str(log), *flags])
        assert (status, errors.getvalue().count("\n"), log.exists()) in [(0, 0, True), (2, 1, False)], seed
        if status == 0:
            table = pd.read_csv(log).filter(regex="^(score|error)")
            assert ((table >= 0) & (table <= 1)).all(axis=None), seed
            log.unlink()
        statuses[status] += 1
    print(many, "edits:", statuses)
    assert min(statuses.values()) > many / 5
