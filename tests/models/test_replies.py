"""Bodies of replies that are not as they should be: unreadable and counted, or the right result."""

import copy
import json
import math
import random

import numpy as np
import pandas as pd
import pytest

from exaul import BadInput
from exaul.commands.main import main
from exaul.llm.calls import Calls
from exaul.llm.endpoint import Endpoint
from exaul.llm.replies import MAX_TOKENS, Reply, Unreadable, likelihood, logprobs_fault, reply_of
from tests.models.stub import command_at, completion, reply
from tests.models.test_convert import edit
from tests.models.test_endpoint import KEY

HUGE = 10**400


def read(body):
    """The reply of a body."""
    return reply_of(json.dumps(body).encode(), lambda text: text)


def edited(body, path, value):
    """The body with another value at a path; ``KeyError`` removes it."""
    body = json.loads(json.dumps(body))
    node = body
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    return body


TOKENS = [  # a text, the tokens of which it is made, and the answer with the numbers of its tokens
    # reasoning, surrounding white space and the end token do not count
    ("<think>ab</think>c</think>\nab", ["<think>", "ab", "</think>c</think>", "\n", "a", "b", ""], "ab", [4, 5]),
    ("Paris", ["<think>", "hm", "</think>", "\n", "Par", "is", ""], "Paris", [4, 5]),  # cut out by the server
    ("Paris", ["<|channel|>", "final", "<|message|>", "Paris", "<|return|>"], "Paris", [3]),
    ("The Seine", ["\u2581The", "\u2581Se", "ine"], "The Seine", [0, 1, 2]),
    ("z\u0142", [*"z\u0142".encode()], "z\u0142", [0, 1, 2]),  # a letter may be cut between tokens
    ("Paris", ["Lon", "don"], "Paris", []),  # changed by the server
    ("<think>well, let me", ["<think>", "well,", " let", " me"], "", []),  # cut before it had an answer
    ("", [], "", []),
]


@pytest.mark.parametrize(("content", "tokens", "text", "numbers"), TOKENS)
def test_a_score_is_of_the_answers_own_tokens(content, tokens, text, numbers):
    each = [{"token": "?", "bytes": [x]} if isinstance(x, int) else {"token": x, "bytes": None} for x in tokens]
    content_of = [token | {"logprob": -n - 1.0} for n, token in enumerate(each)]
    found = read(edited(completion(content), ("choices", 0, "logprobs"), {"content": content_of}))
    assert (found.text, found.logprobs) == (text, [-n - 1.0 for n in numbers])
    names = found.model, found.fingerprint, found.prompt_tokens, found.reply_tokens
    assert names == ("stub-1", "fp", 10, len(content.split()))


@pytest.mark.parametrize(
    ("content", "tokens", "fault"),
    [
        ("Paris", ["Lon", "don"], "log-probabilities that do not match its text"),
        ("<think>well, let me", ["<think>", "well,", " let", " me"], "no text"),
        ("Paris", [], "no valid log-probabilities"),
    ],
)
def test_why_a_reply_has_no_logprobs(content, tokens, fault):
    given = {"content": [{"token": token, "bytes": None, "logprob": -1.0} for token in tokens]}
    assert logprobs_fault(edited(completion(content), ("choices", 0, "logprobs"), given)) == fault


@pytest.mark.parametrize("logprobs", [None, {}, {"content": None}])
def test_a_model_without_logprobs_has_none(logprobs):
    body = completion("Paris")
    body["choices"][0]["logprobs"] = logprobs
    assert read(body).logprobs == []
    del body["choices"][0]["logprobs"], body["usage"]
    assert read(body) == Reply("Paris", [], [], "stop", "stub-1", "fp", 0, 0)


def name_of(value):
    """A short name of a test's parameter."""
    return repr(value)[:20]


TOKEN = ("choices", 0, "logprobs", "content", 0)
TOP = completion("yes", top=[{"token": "Yes", "logprob": -0.1}])


@pytest.mark.parametrize(
    "logprob", [1e-7, 0.5, math.inf, -math.inf, math.nan, True, False, None, "-0.1", HUGE, -1e300], ids=name_of
)
def test_what_is_no_log_probability_gives_no_score_and_rounding_above_one_is_one(logprob):
    found = read(completion("in Paris", [logprob, 0.0]))
    assert (found.text, found.logprobs) == ("in Paris", [1e-7, 0.0] if logprob == 1e-7 else [])
    np.testing.assert_equal(likelihood(found.logprobs), 1.0 if logprob == 1e-7 else math.nan)


UNREADABLE = [
    (TOP, (*TOKEN, "top_logprobs", 0, "logprob"), 1000),
    (TOP, (*TOKEN, "top_logprobs", 0, "token"), 5),
    (TOP, (*TOKEN, "token"), 5),
    (TOP, (*TOKEN, "bytes"), 10**9),
    (TOP, ("choices", 0, "message", "content"), ["yes"]),
    (TOP, ("choices",), TOP["choices"] * 2),
    *((TOP, ("usage", "prompt_tokens"), count) for count in (-5, MAX_TOKENS + 1, HUGE, math.inf, True, "9", [9])),
]


@pytest.mark.parametrize(("body", "path", "value"), UNREADABLE, ids=name_of)
def test_a_reply_that_cannot_be_used_is_unreadable(body, path, value):
    read(body)
    with pytest.raises(Unreadable):
        read(edited(body, path, value))


@pytest.mark.parametrize("text", ["[" * 10**5, '{"choices": ' + "9" * 5000, '{"usage": 1e999', "\ud800"])
def test_what_is_no_completion_is_unreadable(text):
    with pytest.raises(Unreadable, match="it is not a chat completion"):
        reply_of(text.encode(errors="surrogatepass"), lambda text: text)


def test_unpaired_surrogates_and_escape_codes_are_escaped():
    """In an answer only surrogates, since it goes to files alone."""
    body = completion("a? b", finish="stop\r", model="\x1b[31m\ud800\n", system_fingerprint="\x9b\u2028")
    body = edited(body, ("choices", 0, "message", "content"), "a\ud800 b")
    found = read(edited(body, TOKEN, {"token": "a\ud800", "logprob": -1.0}))
    assert found.text == "a\\ud800 b"
    assert len(found.logprobs) == 2
    assert (found.finish, found.model, found.fingerprint) == ("stop\\r", "\\x1b[31m\\ud800\\n", "\\x9b\\u2028")
    assert len(read(completion("x", model="\x1b" * 10**6)).model) < 300


def test_an_edited_file_of_calls_is_one_sentence(tmp_path):
    calls = Calls(tmp_path / "calls.sqlite")
    calls.put("right", read(completion("Paris")), 0.5)
    assert calls.get("right") == read(completion("Paris"))
    fields = json.loads(json.dumps(read(completion("Paris"))))
    edits = {0: 7, 2: [["yes", 1000]], 3: None, 6: HUGE, 7: "x"}
    texts = [json.dumps([*fields[:n], value, *fields[n + 1 :]]) for n, value in edits.items()]
    for text in [*texts, "[", "[" * 10**5, "[1, 2, 3]", '["x", "y"]', "[400, 5]", "7", "null"]:
        calls._file.execute("INSERT OR REPLACE INTO calls VALUES ('edited', ?, 1, 1, 1)", (text,))
        with pytest.raises(BadInput, match=r"calls\.sqlite: the call edited is unreadable"):
            calls.get("edited")
    calls._file.execute("INSERT INTO calls VALUES (NULL, '', 9e999, 1, 1)")
    with pytest.raises(BadInput, match=r"calls\.sqlite: unreadable"):
        calls.usage()
    calls._file.execute("PRAGMA user_version = 1")
    calls.close()
    with pytest.raises(BadInput, match=r"calls\.sqlite: written by another version of exaul"):
        Calls(tmp_path / "calls.sqlite")


PLACEHOLDERS = {'"<deep>"': "[" * 5000 + "]" * 5000, '"<long>"': "9" * 5000, '"<1e999>"': "1e999"}
VALUES = (
    *(None, True, False, "", "yes", 0, -1, 1000, 0.5, -0.5, 12.0),
    *(1e308, -1e308, HUGE, math.inf, -math.inf, math.nan),
    *("\ud800", "\x1b[2J\r\n\0", f"x {KEY}", "<think>", "</think> 4", "x" * 300, "9" * 5000),
    *('{"verdict": "yes"}', [], {}, [None], {"token": "yes", "logprob": 3}, "<deep>", "<long>", "<1e999>"),
)


def random_edits(chance, body):
    """The body as JSON, with one to three values replaced or removed; sometimes also bytes."""
    body = copy.deepcopy(body)
    for _ in range(chance.randint(1, 3)):
        edit(body, chance, VALUES)
    text = json.dumps(body, ensure_ascii=chance.random() < 0.5)
    for name, value in PLACEHOLDERS.items():
        text = text.replace(name, value)
    raw = bytearray(text.encode(errors="surrogatepass"))
    for _ in range(chance.choice([0, 0, 0, 1, 3])):
        start = chance.randrange(len(raw))
        raw[start : start + chance.choice([0, 1, 50])] = chance.randbytes(chance.choice([0, 1, 4]))
    return bytes(raw)


SLOW = [pytest.param(*each, marks=pytest.mark.slow) for each in (("collect", 10_000), ("live", 1_000))]  # a minute


@pytest.mark.parametrize(("command", "many"), [("collect", 50), ("live", 20), *SLOW])
def test_random_edits_of_replies(many, command, tmp_path, capsys, monkeypatch, sums):
    """Replies depend on requests alone, so a second run writes the same; each question is in the log or counted."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr("exaul.llm.live.write_tables", lambda *_: None)
    edits = []

    async def send(self, body):
        text = json.dumps(body, sort_keys=True)
        chance = random.Random(f"{run} {text}")
        right = reply(body) if "adversary" not in text else completion(str(chance.randrange(3)))
        if "capital of France" in text or chance.random() < 0.8:
            return json.dumps(right).encode()
        edits.append(random_edits(chance, right))
        return edits[-1]

    monkeypatch.setattr(Endpoint, "_send", send)
    argv = {
        "collect": ["collect", str(sums)],
        "live": ["live", "adversary", "--questions", str(sums), "--horizon", "8", "--candidates", "3"],
    }[command]
    argv += ["--price", "1", "1", "--judge", "both", "--samples", "2", "--score", "p-true", "entail", "logprob"]
    run = counted = 0
    while len(edits) < many:
        run += 1
        out = tmp_path / str(run)
        assert main(command_at("http://h/v1", out, *argv)) in (0, 3)
        files = {name: (out / name).read_bytes() for name in ("log.csv",) if (out / name).exists()}
        assert main(command_at("http://h/v1", out, *argv)) in (0, 3)
        printed = capsys.readouterr()
        assert printed.err == ""
        assert printed.out.replace("\n", "").isprintable()
        assert files == {name: (out / name).read_bytes() for name in files}
        assert not any(KEY.encode() in path.read_bytes() for path in out.iterdir() if path.is_file())
        manifest = json.loads((out / "manifest.json").read_text())
        if not files:
            continue
        log = pd.read_csv(out / "log.csv")
        scores = log[[name for name in log if name.startswith(("score", "error"))]]
        assert ((scores >= 0) & (scores <= 1) | scores.isna()).all(axis=None)
        assert 0 < manifest["usage"]["dollars"] < 1e6
        if command == "collect":
            unreadable = manifest["left out"].get("unreadable reply", 0)
            assert len(log) + unreadable == 12
            assert log["tokens"].between(0, MAX_TOKENS).all()
            counted += unreadable
    assert counted > 0 or command == "live"
