"""Chat completions: what cannot be decided, withheld completions, and completions as streams."""

from collections.abc import Iterator, Mapping
from typing import Any

TEXTS = "content", "reasoning", "reasoning_content"  # of a message
NAMES = {"id": str, "created": int, "model": str}  # what a withheld completion keeps, with its type
COUNTS = "prompt_tokens", "completion_tokens", "total_tokens"


def undecided_reason(completion: Mapping[str, Any]) -> str | None:
    """Return why a completion is not decided: n, tool_calls, audio or no_text; None if it is.

    A text that has no score, such as a thought without an answer, is no such case.
    """
    if len(completion["choices"]) != 1:
        return "n"
    message = completion["choices"][0]["message"]
    if message.get("tool_calls") or message.get("function_call"):
        return "tool_calls"
    if message.get("audio"):
        return "audio"
    texts = (message.get(name) for name in TEXTS)
    return None if any(text.strip() if isinstance(text, str) else text for text in texts) else "no_text"


def withheld(completion: Mapping[str, Any], abstention: str) -> dict[str, Any]:
    """Return a completion with another text. Nothing but names, the time and counts is kept."""
    usage = completion.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    message = {"role": "assistant", "content": abstention, "refusal": None}
    kept = {name: completion[name] for name, kind in NAMES.items() if isinstance(completion.get(name), kind)}
    return kept | {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {name: counts[name] for name in COUNTS if isinstance(counts.get(name), int)},
    }


def without_logprobs(completion: Mapping[str, Any]) -> dict[str, Any]:
    """Return a completion without log-probabilities."""
    return {**completion, "choices": [{**choice, "logprobs": None} for choice in completion["choices"]]}


def chunks(completion: Mapping[str, Any], with_usage: bool) -> Iterator[dict[str, Any]]:
    """Return a completion as the chunks of a stream; ``exaul`` is in the first."""
    common = {name: value for name, value in completion.items() if name not in ("choices", "usage", "exaul")}
    common["object"] = "chat.completion.chunk"
    if with_usage:
        common["usage"] = None  # in all chunks but the last
    first = {"exaul": completion["exaul"]}
    for number, choice in enumerate(completion["choices"]):
        finish = {"index": choice.get("index", number), "logprobs": None, "finish_reason": None}
        message = choice["message"]
        yield common | first | {"choices": [finish | {"delta": {"role": message.get("role", "assistant")}}]}
        first = {}
        others = {name: value for name, value in choice.items() if name != "message"}
        yield common | {"choices": [finish | others | {"delta": _delta(message), "finish_reason": None}]}
        yield common | {"choices": [finish | {"delta": {}, "finish_reason": choice.get("finish_reason")}]}
    if with_usage:
        yield common | {"choices": [], "usage": completion.get("usage")}


def _delta(message: Mapping[str, Any]) -> dict[str, Any]:
    delta = {name: value for name, value in message.items() if name != "role" and value is not None}
    if isinstance(delta.get("tool_calls"), list):
        delta["tool_calls"] = [
            {"index": number} | call if isinstance(call, dict) else call
            for number, call in enumerate(delta["tool_calls"])
        ]
    return delta


def question_of(request: Mapping[str, Any]) -> str:
    """Return the text of the last message of the user; empty if there is none."""
    messages = request.get("messages")
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, dict) and message.get("role") == "user":
            content = message.get("content")
            parts = content if isinstance(content, list) else [{"text": content}]
            texts = [part.get("text") for part in parts if isinstance(part, dict)]
            return "\n".join(text for text in texts if isinstance(text, str))
    return ""
