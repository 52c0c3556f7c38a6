"""Chat completions: what cannot be decided, withheld completions, and completions as streams."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from exaul.llm.replies import content_text, message_text
from exaul.llm.scores import Body

STRUCTURED = "json_object", "json_schema"  # types of ``response_format`` with JSON
THOUGHTS = "reasoning", "reasoning_content"  # texts of a message beside its content
LONGEST_SCHEMA = 64 * 1024  # characters of a JSON schema that is checked in some milliseconds
KEPT_FIELDS = {"created": int, "model": str}  # what a withheld completion keeps, with its type
COUNTS = "prompt_tokens", "completion_tokens", "total_tokens"
NOTES = {"title", "description", "default", "examples", "$schema"}  # of a JSON schema
SCHEMA_WORDS = {"type", "enum", "anyOf", "properties", "required", "additionalProperties", "items"}
TYPES: dict[type, tuple[str, ...]] = {  # of JSON, by type of Python
    **{dict: ("object",), list: ("array",), str: ("string",), type(None): ("null",)},
    **{bool: ("boolean",), int: ("integer", "number"), float: ("number",)},
}


def answer_of(completion: Body) -> tuple[str, str | None]:
    """Return the text of a completion from ``Upstream``, and None; or no text, and why it is not decided.

    The reason is tool_calls, audio, parts (of content), thoughts (without an answer) or no_text.
    """
    message = completion["choices"][0]["message"]
    content = message.get("content")
    if message.get("tool_calls") or message.get("function_call"):
        return "", "tool_calls"
    if message.get("audio"):
        return "", "audio"
    if isinstance(content, list):
        return "", "parts"
    text = message_text({"message": {"content": content}})
    if text:
        return text, None
    thoughts = (content, *(message.get(name) for name in THOUGHTS))
    return "", "thoughts" if any(thought.strip() for thought in thoughts if isinstance(thought, str)) else "no_text"


def form_of(mode: str, request: Body, value: Any) -> str:
    """Return how an answer to a request is withheld: text, refusal, json or error.

    Args:
        mode: one of WITHHELD_FORMS; ``auto`` is a refusal where the client parses JSON, else a text.
        request: of the client.
        value: what ``json`` sends; where the client's schema refuses it, a refusal is sent.
    """
    response_format: Any = request.get("response_format")
    kind = response_format.get("type") if isinstance(response_format, dict) else None
    if mode == "auto":
        return "refusal" if kind in STRUCTURED else "text"
    if mode == "json" and kind == "json_schema":
        with suppress(TypeError, LookupError, AttributeError, RecursionError):  # of an invalid schema
            schema = response_format["json_schema"]["schema"]
            return "json" if len(json.dumps(schema)) <= LONGEST_SCHEMA and fits(value, schema) else "refusal"
        return "refusal"
    return mode


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Return whether a value follows a JSON schema; False also if the schema has more than this function knows.

    If the schema is invalid, it raises what Python raises then.
    """
    names = schema.get("type", TYPES[type(value)][0])
    if (
        not schema.keys() <= NOTES | SCHEMA_WORDS
        or not set(TYPES[type(value)]) & set(names if isinstance(names, list) else [names])
        or json.dumps(value) not in map(json.dumps, schema.get("enum", [value]))  # as texts, since True == 1
        or ("anyOf" in schema and not any(fits(value, option) for option in schema["anyOf"]))
    ):
        return False
    if isinstance(value, list):
        return all(fits(item, schema.get("items", {})) for item in value)
    if isinstance(value, dict):
        props, extra = schema.get("properties", {}), schema.get("additionalProperties", True)
        keys_fit = set(schema.get("required", ())) <= value.keys() and (extra is True or value.keys() <= set(props))
        return keys_fit and all(fits(value[name], props[name]) for name in value.keys() & props.keys())
    return True


def withheld(completion: Body, form: str, abstention: str, value: Any) -> dict[str, Any]:
    """Return a completion with an abstention instead. Nothing but names, the time and counts is kept.

    Args:
        completion: of the model.
        form: text, refusal or json.
        abstention: the text or the refusal.
        value: the value that ``json`` sends.
    """
    usage = completion.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    content = {"text": abstention, "json": json.dumps(value, ensure_ascii=False), "refusal": None}[form]
    message = {"role": "assistant", "content": content, "refusal": abstention if form == "refusal" else None}
    head = {name: completion[name] for name, kind in KEPT_FIELDS.items() if isinstance(completion.get(name), kind)}
    return head | {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {name: counts[name] for name in COUNTS if isinstance(counts.get(name), int)},
    }


def chunks(completion: Body, with_usage: bool) -> Iterator[dict[str, Any]]:
    """Yield the chunks of a stream from a completion with one choice; ``exaul`` is in the first."""
    common = {name: value for name, value in completion.items() if name not in ("choices", "usage", "exaul")}
    common["object"] = "chat.completion.chunk"
    if with_usage:
        common["usage"] = None  # in all chunks but the last
    (choice,) = completion["choices"]
    message, base = choice["message"], {"index": 0, "logprobs": None, "finish_reason": None}
    role = {"role": message.get("role", "assistant")}
    yield common | {"exaul": completion["exaul"], "choices": [base | {"delta": role}]}
    choice_fields = {name: value for name, value in choice.items() if name != "message"}
    delta = {name: value for name, value in message.items() if name != "role" and value is not None}
    if isinstance(delta.get("tool_calls"), list):
        delta["tool_calls"] = [
            {"index": number} | call if isinstance(call, dict) else call
            for number, call in enumerate(delta["tool_calls"])
        ]
    yield common | {"choices": [base | choice_fields | {"delta": delta, "finish_reason": None}]}
    yield common | {"choices": [base | {"delta": {}, "finish_reason": choice.get("finish_reason")}]}
    if with_usage:
        yield common | {"choices": [], "usage": completion.get("usage")}


def conversation_of(request: Body) -> str:
    """Return the text of a request's only message, or the texts of all messages with their roles, in order."""
    messages = request.get("messages")
    texts = [
        (str(message.get("role")), content_text(message.get("content")))
        for message in (messages if isinstance(messages, list) else [])
        if isinstance(message, dict)
    ]
    return texts[0][1] if len(texts) == 1 else "\n\n".join(f"{role}: {text}" for role, text in texts)
