"""How the gateway withholds an answer: as a text, a refusal, a fixed JSON or an error."""

import json
from functools import reduce

import pytest

from exaul.serving.http import completions
from tests.serving.http.apps import ABSTAIN, QUESTION, SECRET, events

FORMS = {  # mode, response_format and type of the value in its schema: form of the abstention; None: it is refused
    ("auto", "", ""): "text",
    ("auto", "json_object", ""): "refusal",
    ("auto", "json_schema", "string"): "refusal",
    ("text", "json_schema", "string"): "text",
    ("refusal", "", ""): "refusal",
    ("json", "", ""): "json",
    ("json", "json_schema", "string"): "json",
    ("json", "json_schema", "integer"): "refusal",
    ("error", "json_schema", "string"): "error",
    ("show", "", ""): None,
}


@pytest.mark.parametrize("stream", [False, True])
def test_forms_of_a_withheld_answer(town, gate, stream):
    """A header overrides the flag."""
    with gate(ABSTAIN, withheld="error", withheld_json='{"a": "?"}', abstention="No idea.") as client:
        for (mode, kind, value), form in FORMS.items():
            schema = {"type": "object", "properties": {"a": {"type": value}}, "required": ["a"]}
            asked = {"type": kind, "json_schema": {"name": "n", "schema": schema}}
            body = QUESTION | {"stream": stream} | ({"response_format": asked} if kind else {})
            status, headers, raw = client.ask(body, **({} if mode == "error" else {"x_exaul_withheld": mode}))
            assert SECRET not in raw
            if form is None:
                assert (status, json.loads(raw)["error"]["param"]) == (400, "x-exaul-withheld")
            elif form == "error":  # it says what was decided
                reply, exaul = json.loads(raw)["error"], json.loads(raw)["exaul"]
                assert (status, reply["code"], reply["message"]) == (400, "content_policy_violation", "No idea.")
                assert (exaul["id"], exaul["answer"]) == (headers["x-exaul-id"], False)
                assert (headers["x-exaul-answer"], headers["x-exaul-score"]) == ("false", str(exaul["score"]))
            else:
                choices = [each["choices"][0] for each in (events(raw) if stream else [json.loads(raw)])]
                messages = [each["delta" if stream else "message"] for each in choices]
                said = [item for each in messages for item in each.items() if item[0] != "role" and item[1]]
                text = '{"a": "?"}' if form == "json" else "No idea."
                assert said == [("refusal" if form == "refusal" else "content", text)]
                assert (status, choices[-1]["finish_reason"]) == (200, "stop")


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
        # what is no schema
        *((schema, False) for schema in (None, 3, {"type": {}}, {"anyOf": 1}, {"required": 1}, {"properties": []})),
        (reduce(lambda inner, _: {"anyOf": [inner]}, range(900), {}), False),
    ],
)
def test_a_value_is_sent_where_it_follows_the_schema(schema, does):
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    assert completions.form_of("json", {"response_format": form}, VALUE) == ("json" if does else "refusal")
    assert completions.form_of("auto", {"response_format": schema}, VALUE) == "text"  # it has no known type
