"""How the gateway withholds an answer: as a text, a refusal, a fixed JSON or an error."""

import json

import pytest

from exaul.serving.http import completions
from tests.serving.http.apps import ABSTAIN, QUESTION, SECRET, events

FORMS = {  # mode and response_format: form of the abstention; None: the mode is refused
    ("auto", ""): "text",
    ("auto", "text"): "text",
    ("auto", "json_object"): "refusal",
    ("auto", "json_schema"): "refusal",
    ("text", "json_schema"): "text",
    ("refusal", ""): "refusal",
    ("json", ""): "json",
    ("json", "json_object"): "json",
    ("json", "json_schema"): "json",
    ("json", "json_schema with another type"): "refusal",
    ("error", "json_schema"): "error",
    ("show", ""): None,
}


@pytest.mark.parametrize("stream", [False, True])
def test_forms_of_a_withheld_answer(town, gate, stream):
    """A header overrides the flag."""
    with gate(ABSTAIN, withheld="error", withheld_json='{"a": "?"}') as client:
        for (mode, kind), form in FORMS.items():
            if mode != "error":
                check_form(client, mode, kind, form, stream)
    with gate(ABSTAIN, withheld="text") as client:
        check_form(client, "error", "json_schema", "error", stream)


def check_form(client, mode, kind, form, stream):
    value = "string" if kind == "json_schema" else "integer"
    schema = {"type": "object", "properties": {"a": {"type": value}}, "required": ["a"]}
    asked = {"type": kind.partition(" ")[0], "json_schema": {"name": "n", "schema": schema}}
    body = QUESTION | {"stream": stream} | ({"response_format": asked} if kind else {})
    status, headers, raw = client.ask(body, x_exaul_withheld=mode)
    assert SECRET not in raw
    if form is None:
        assert (status, json.loads(raw)["error"]["param"]) == (400, "x-exaul-withheld")
        return
    if form == "error":
        reply = json.loads(raw)
        assert (status, reply["error"]["code"]) == (400, "content_policy_violation")
        assert reply["error"]["message"] == "I don't know."
        assert (reply["exaul"]["id"], reply["exaul"]["answer"]) == (headers["x-exaul-id"], False)
        assert (headers["x-exaul-answer"], headers["x-exaul-score"]) == ("false", str(reply["exaul"]["score"]))
        return
    choices = [each["choices"][0] for each in events(raw)] if stream else json.loads(raw)["choices"]
    messages = [each["delta" if stream else "message"] for each in choices]
    content, refusal = ([each[name] for each in messages if each.get(name)] for name in ("content", "refusal"))
    text = ['{"a": "?"}'] if form == "json" else ["I don't know."]
    assert (status, content, refusal) == (200, *(([], text) if form == "refusal" else (text, [])))
    assert choices[-1]["finish_reason"] == "stop"


def test_the_flag_says_how_answers_are_withheld(town, gate):
    with gate(ABSTAIN, withheld="refusal", abstention="No idea.") as client:
        message = client.json()["choices"][0]["message"]
        assert message == {"role": "assistant", "content": None, "refusal": "No idea."}


VALUE = {"answer": None, "sure": False, "steps": [{"text": "?"}], "n": 1}
STEPS = {"type": "array", "items": {"type": "object", "properties": {"text": {"enum": ["?", "!"]}}}}


@pytest.mark.parametrize(
    ("schema", "does"),
    [
        ({}, True),
        ({"type": "object", "title": "Reply", "required": ["answer", "n"]}, True),
        ({"required": ["answer", "more"]}, False),
        ({"type": ["array", "object"]}, True),
        ({"type": "string"}, False),
        ({"properties": {"answer": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, True),
        ({"properties": {"answer": {"anyOf": [{"type": "string"}]}}}, False),
        ({"properties": {"steps": STEPS, "n": {"type": "number"}}}, True),
        ({"properties": {"steps": {"items": {"type": "string"}}}}, False),
        ({"properties": {"n": {"type": "boolean"}}}, False),
        ({"properties": {"n": {"enum": [True]}}}, False),
        ({"properties": {"sure": {"type": "integer"}}}, False),
        ({"additionalProperties": False, "properties": {name: {} for name in VALUE}}, True),
        ({"additionalProperties": False, "properties": {"answer": {}}}, False),
        ({"minProperties": 1}, False),  # a rule that is not known
        ({"$ref": "#/$defs/x"}, False),
    ],
)
def test_values_that_follow_a_schema(schema, does):
    assert completions.fits(VALUE, schema) is does
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    assert completions.form_of("json", {"response_format": form}, VALUE) == ("json" if does else "refusal")


def nested(depth):
    schema = {}
    for _ in range(depth):
        schema = {"anyOf": [schema]}
    return schema


@pytest.mark.parametrize(
    "schema", [None, 3, {"type": {}}, {"anyOf": 1}, {"required": 1}, {"properties": []}, nested(900)]
)
def test_a_schema_that_is_none_gets_a_refusal(schema):
    request = {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
    assert completions.form_of("json", request, VALUE) == "refusal"
    assert completions.form_of("auto", {"response_format": schema}, VALUE) == "text"
