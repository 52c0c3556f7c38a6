"""Turn the body of a response into a checked ``Reply``, on which no other code can fail; compare short texts."""

import json
import math
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from exaul.engine.checks import join_lines, shorten

THINK_START, THINK_END = b"<think>", b"</think>"  # delimiters of a reasoning model's thoughts
LOWEST_LOGPROB, LOGPROB_ROUNDING = -3.5e38, 1e-3  # the lowest float32 stands for -inf; rounding can exceed 0
LARGEST_REPLY = 2**24  # bytes of a response that is read
MAX_TOKENS = 10**7  # largest number of tokens that is believed; no model has a longer context
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


class Reply(NamedTuple):
    """The reply of a model to one request."""

    text: str  # without <think> part and surrounding white space; can be written as UTF-8
    logprobs: Sequence[float] = ()  # of the tokens of the text, each <= LOGPROB_ROUNDING; empty if unknown
    first: Sequence[tuple[str, float]] = ()  # likeliest first tokens and their logprobs; empty if not requested
    finish: str = ""  # finish reason: stop, length, refusal, ...; one printable line, as the next two
    model: str = ""  # name that the endpoint reports
    fingerprint: str = ""  # system fingerprint; "" if the endpoint gives none
    prompt_tokens: int = 0  # tokens of the prompt, from 0 to MAX_TOKENS
    reply_tokens: int = 0  # tokens of the reply, likewise


class Unreadable(ValueError):
    """An invalid response or stored reply; the message says what is wrong."""


def check_size(body: bytes) -> bytes:
    """Return the body of a response; raise Unreadable if it is longer than LARGEST_REPLY."""
    if len(body) > LARGEST_REPLY:
        raise Unreadable(f"it has more than {LARGEST_REPLY >> 20} MiB")
    return body


def likelihood(logprobs: Sequence[float]) -> float:
    """Return the length-normalised likelihood of a text: exp of the mean of its logprobs; NaN if there are none."""
    return math.exp(min(0.0, math.fsum(logprobs) / len(logprobs))) if logprobs else math.nan


def is_logprob(value: Any) -> bool:
    """Return whether a value is the logarithm of a probability, as float32 programs compute it."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and LOWEST_LOGPROB <= value <= LOGPROB_ROUNDING


def reply_of(raw: bytes, redact: Callable[[str], str]) -> Reply:
    """Return the checked reply of a chat completion.

    Only logprobs of tokens of the returned text are kept. There are none if the text is not found among the tokens,
    as with endpoints that change it afterwards, or if one of them is not a logprob. ``redact`` removes the key.

    Raises:
        Unreadable: the body is not a chat completion, or a part that is used is invalid.
    """
    try:
        body = json.loads(raw)
        (choice,) = body["choices"]
        message, usage = choice["message"], body.get("usage") or {}
        text = message_text(choice)
        logprobs, candidates = _answer_tokens(choice, text)
        finish = "refusal" if message.get("refusal") else choice.get("finish_reason")
        names = (finish, body.get("model"), body.get("system_fingerprint"))
        return checked_reply(
            redact(text),
            logprobs,
            [(redact(candidate["token"]), candidate["logprob"]) for candidate in candidates],
            *(redact(str(name or "")) for name in names),
            *(usage.get(f"{kind}_tokens") or 0 for kind in ("prompt", "completion")),
        )
    except Unreadable:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable("it is not a chat completion") from error


def message_text(choice: Mapping[str, Any]) -> str:
    """Return the text of a choice of a chat completion as ``Reply`` has it.

    Raises:
        LookupError, TypeError, AttributeError: the choice is invalid.
    """
    content = _to_utf8(choice["message"].get("content") or "")
    if THINK_END in content:
        content = content[content.rindex(THINK_END) + len(THINK_END) :]
    elif content.lstrip().startswith(THINK_START):
        return ""  # cut at max_tokens while still thinking: there is no answer
    return content.strip().decode()


def content_text(content: Any) -> str:
    """Return the text of a message's content, a text or a list of parts, of which texts alone are kept."""
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def scored_reply(completion: Mapping[str, Any]) -> Reply:
    """Return the reply in a completion, with what scores use: its text, and its logprobs if they are valid.

    Raises:
        LookupError, TypeError, AttributeError: it has no text.
    """
    choice = completion["choices"][0]
    text, logprobs, first = message_text(choice), list[Any](), list[tuple[str, float]]()
    with suppress(ValueError, LookupError, TypeError, AttributeError):  # of invalid tokens
        logprobs, candidates = _answer_tokens(choice, text)
        first = [(candidate["token"], candidate["logprob"]) for candidate in candidates]
    return Reply(text, logprobs if all(map(is_logprob, logprobs)) else [], first)


def logprobs_fault(completion: Mapping[str, Any]) -> str:
    """Return what the reply in a completion has whose ``scored_reply`` has no logprobs."""
    choice = completion["choices"][0]
    with suppress(ValueError, LookupError, TypeError, AttributeError):  # of invalid tokens
        if not (text := message_text(choice)):
            return "no text"
        if _answer_tokens(choice, text)[0]:
            return "log-probabilities of which one is above 0 or no number"
        if choice["logprobs"]["content"]:
            return "log-probabilities that do not match its text"
    return "no valid log-probabilities"


def checked_reply(*fields: Any) -> Reply:
    """Return a reply with checked ``fields``, which are those of ``Reply`` in order.

    Raises:
        Unreadable: a field is invalid.
    """
    text, logprobs, first, finish, model, fingerprint, prompt, reply = fields
    for count in (prompt, reply):
        is_number = isinstance(count, (int, float)) and not isinstance(count, bool)
        if not is_number or not 0 <= count <= MAX_TOKENS or count % 1:
            raise Unreadable(f"its number of tokens is not an integer from 0 to {MAX_TOKENS:,}")
    for token, logprob in first:
        if not isinstance(token, str) or not is_logprob(logprob):
            raise Unreadable("its likeliest tokens are not texts with log-probabilities")
    finish, model, fingerprint = (shorten(join_lines(name)) for name in (finish, model, fingerprint))
    logprobs = [float(x) for x in logprobs] if all(map(is_logprob, logprobs)) else []
    first = [(token, float(logprob)) for token, logprob in first]
    return Reply(_to_utf8(text).decode(), logprobs, first, finish, model, fingerprint, int(prompt), int(reply))


def _answer_tokens(choice: Mapping[str, Any], answer: str) -> tuple[list[Any], Any]:
    """Return the logprobs of the tokens of ``answer``, the text of a choice, and candidates for the first."""
    text = answer.encode()
    tokens = [(_bytes_of(token), token) for token in (choice.get("logprobs") or {}).get("content") or []]
    # Compare bytes, not characters: a token can end within a character. The last occurrence counts, since the
    # thoughts before it may quote the answer; ``find`` of the reversed bytes takes linear time, ``rfind`` does not.
    joined = b"".join(piece for piece, _ in tokens)
    tail = joined[::-1].find(text[::-1])
    start, offset = len(joined) - tail - len(text), 0
    logprobs, candidates = list[Any](), None
    for piece, token in tokens if text and tail >= 0 else ():
        if piece and offset + len(piece) > start and offset < start + len(text):
            logprobs.append(token.get("logprob"))
            if candidates is None:
                candidates = token.get("top_logprobs") or []
        offset += len(piece)
    return logprobs, candidates or []


def _bytes_of(token: Mapping[str, Any]) -> bytes:
    text, codes = token["token"], token.get("bytes")
    if not isinstance(text, str) or not (codes is None or isinstance(codes, list)):
        raise Unreadable("its tokens are not texts")
    # Without bytes, U+2581 in a token stands for a space (SentencePiece).
    return _to_utf8(text.replace("\u2581", " ")) if codes is None else bytes(codes)


def _to_utf8(text: str) -> bytes:
    """Encode a text; unpaired surrogates, which JSON can hold and no file, are escaped."""
    return text.encode("utf-8", "backslashreplace")


def normalised(text: str) -> str:
    """Return a text in lower case, without ASCII punctuation and English articles, words separated by one space.

    As in Rajpurkar et al., "SQuAD: 100,000+ Questions for Machine Comprehension of Text", 2016.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def contains(text: str, answers: Iterable[str]) -> bool:
    """Return whether a text contains the words of an answer in a row, all normalised."""
    words = f" {normalised(text)} "
    return any(f" {answer} " in words for answer in map(normalised, answers) if answer)


def matches(text: str, answers: Iterable[str]) -> bool:
    """Return whether a text equals one of the answers, all normalised."""
    return normalised(text) in map(normalised, answers)
