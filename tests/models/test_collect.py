"""A log from an endpoint, of questions or of rows that exist: missing cells, and no question asked twice."""

import json
import math
import os
import random
import re
import shlex
import signal
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import JSONResponse

from exaul.commands.main import main
from exaul.kernels.metrics import separation
from exaul.llm.calls import key_of
from tests.models.stub import KNOWN, USUAL, by_pattern, command_at, completion, killed, write_rows
from tests.processes import output_of, refusal_of, sql

ABSENT = "http://127.0.0.1:9/v1"  # an endpoint that is not there
PRICED = "--price 1 1"


def command(questions, out, flags="", endpoint=ABSENT):
    return [*command_at(endpoint, out, "collect", str(questions)), *shlex.split(flags)]


def made(folder, printed=""):
    """What is in a folder, and what was printed."""
    texts, log = folder / "texts.jsonl", folder / "log.csv"
    return SimpleNamespace(
        log=pd.read_csv(log) if log.exists() else None,
        about=json.loads((folder / "manifest.json").read_text()),
        texts=[json.loads(line) for line in texts.read_text().splitlines()] if texts.exists() else [],
        printed=printed,
    )


@pytest.fixture
def collect(stub, sums, tmp_path, capsys):
    """Collect answers to twelve questions, or to others."""

    def run(flags="", *status, out="out", questions=sums):
        assert main(command(questions, tmp_path / out, flags, stub.url)) in (status or (0,))
        return made(tmp_path / out, capsys.readouterr().out)

    return run


@pytest.fixture
def refused(stub, sums, tmp_path, capsys):
    """Collect answers in vain; return the one line."""
    return lambda flags="", out="out", url=stub.url: refusal_of(command(sums, tmp_path / out, flags, url), capsys)


@pytest.fixture
def own_scores(in_folder):
    """A module with scores of the user."""
    code = "async def length(request, reply, ask):\n    return len(reply.text) - 1\n\n"
    code += "async def other(request, reply, ask):\n    return await ask({**request, 'model': 'other'})\n\n"
    code += "async def same(request, reply, ask):\n    return (await ask(request)).text == reply.text\n\n"
    code += "def plain(*_):\n    return 0.5\n"
    Path("my_scores.py").write_text(code)


def test_a_row_has_the_scores_of_the_paper_and_both_verdicts(stub, collect):
    """Every number beside one that is computed here, from the texts that were replied."""
    found = collect("--score logprob exact --judge both --samples 4")
    assert list(found.log["id"]) == [f"sums.jsonl-{n}" for n in range(1, 13)]
    for row, text in zip(found.log.to_dict("records"), found.texts, strict=True):
        assert text["question"] in KNOWN
        right = text["answer"] == KNOWN[text["question"]]
        words = len(text["answer"].split())
        assert row["score_logprob"] == pytest.approx(math.exp(-0.1 * np.mean(range(1, words + 1))), abs=1e-12)
        assert row["score_exact"] == np.mean([sample == text["answer"] for sample in text["samples"]])
        assert len(text["samples"]) == 4
        assert row["error"] == row["error_exact"] == row["error_judge"] == 1 - right
        assert (row["tokens"], row["finish"], row["model"]) == (words, "stop", "stub-1")
    assert 0 < found.log["error"].mean() < 1
    assert found.log["score_exact"].between(0.01, 0.99).any()
    assert found.about["left out"] == {}
    assert len(stub.asked) == found.about["usage"]["calls"] <= 2 + 12 * (1 + 4 + 1)


def test_the_requests_are_as_the_design_says(stub, collect):
    """Greedy with logprobs, samples with a seed each, and the user's fields, of which null removes one."""
    extra = '{"top_p": 0.9, "max_tokens": null, "top_k": 5, "chat_template_kwargs": {"thinking": false}, "x": NaN}'
    collect(f"--extra '{extra}' --score logprob exact --samples 3 --temperature 0.7")
    asked = [body for body in stub.asked if "What is 3 plus 3?" in str(body)]
    sent = sorted((body["temperature"], body["seed"], body.get("logprobs")) for body in asked)
    assert sent == [(0.0, 0, True), *((0.7, seed, None) for seed in (1, 2, 3))]
    assert {(body["top_p"], body["top_k"]) for body in asked} == {(0.9, 5)}  # the client of OpenAI has no top_k
    assert all(body["chat_template_kwargs"] == {"thinking": False} for body in asked)
    assert not any("max_tokens" in body for body in asked)


def test_samples_of_an_endpoint_without_seeds_are_several(stub, collect):
    """Equal requests, of which each is made."""
    replies = iter(range(1000))
    stub.rule = lambda body, before: completion(str(next(replies))) if body["temperature"] else None
    found = collect("""--score exact --samples 3 --extra '{"seed": null}'""")
    assert not any("seed" in body for body in stub.asked)
    assert [len(set(text["samples"])) for text in found.texts] == [3] * 12


@pytest.mark.usefixtures("own_scores")
def test_scores_share_samples_and_have_a_column_each(stub, collect):
    """What each gets of the judging model, here of a stub that is always sure; another model has no price."""
    stub.rule = by_pattern({"in percent": completion("85%"), "mean the same": completion("1, 2, 3")})
    names = "logprob p-true verbal agree exact entail my_scores:length my_scores:same my_scores:other"
    found = collect(f"--score {names} --samples 4 --judge-model judge", 3)
    columns = [name for name in found.log if name.startswith("score_")]
    assert columns == [f"score_{re.sub('[-:]', '_', name)}" for name in names.split()[:-1]]
    for name, value in (("p_true", 0.75), ("verbal", 0.85), ("agree", 0.75)):
        assert set(found.log[f"score_{name}"].round(9)) == {value}
    assert found.log["score_logprob"].notna().all()
    assert (found.log["score_exact"] == found.log["score_entail"]).all()
    assert found.log["score_my_scores_same"].eq(1).all()
    lengths = found.log["score_my_scores_length"]
    assert set(lengths.dropna()) == {0, 1}
    assert found.about["left out"] == {
        "my_scores:length outside of [0, 1]": lengths.isna().sum(),
        "my_scores:other failed (ValueError)": 12,
    }
    assert sum(body["temperature"] == 1 for body in stub.asked) == 12 * 4
    assert max(stub.counts().values()) == 1
    assert {body["model"] for body in stub.asked if "proposed answer" in str(body)} == {"judge"}
    assert {body["model"] for body in stub.asked} == {"m", "judge"}


def test_one_endpoint_for_both_models_keeps_its_limits(stub, collect):
    stub.delay = 0.01
    found = collect("--judge llm --judge-model other --concurrent 3 --score entail --samples 2")
    assert stub.most == 3
    assert {model: len(systems) for model, systems in found.about["systems"].items()} == {"m": 1, "other": 1}


REFUSAL = completion("No.")
REFUSAL["choices"][0]["message"]["refusal"] = "I must not"
CUT = completion("4 and so", finish="length")
UNREADABLE = completion("4") | {"usage": {"prompt_tokens": -(10**9)}}
JUDGED = r"is {0} plus {0}\?.*Reference answers".format
TOO_LONG, BROKEN = JSONResponse({"error": {"message": "too long"}}, 400), JSONResponse({"error": "no"}, 500)
INCOMPLETE = {  # replies, flags, what is printed of them, and how many calls are made again
    "one answer and one verdict fail, another verdict says neither yes nor no, also to a schema": (
        {r"is 2 plus 2\?(?!.*Reference answers)": BROKEN, JUDGED(3): TOO_LONG, JUDGED(4): completion("Hm, well.")},
        "--judge both",
        ["10 of 12 questions answered, 9", "  status 500: 1", "  status 400: 1", "  unreadable verdicts: 1"],
        2,
    ),
    "an empty answer has no score": (
        {r"is 2 plus 2\?": completion(""), r"is 7 plus 7\?": REFUSAL, r"is 5 plus 5\?": CUT},
        "",
        ["11 with all", "  answers cut at max_tokens: 1", "  empty answers: 1", "  refusals: 1"],
        0,
    ),
    "no other row is lost, and no escape code is printed": (
        {r"is 2 plus 2\?": UNREADABLE, r"is 5 plus 5\?": completion("10", [3.5], model="\x1b[31m\nred")},
        PRICED,
        [
            "11 of 12 questions answered, 10 with all scores and an error",
            *("  unreadable reply: 1", "  answers without logprob: 1"),
            "m changed its system fingerprint: stub-1 fp, \\x1b[31m\\nred fp",
        ],
        1,
    ),
}


@pytest.mark.parametrize("case", INCOMPLETE)
def test_what_fails_is_empty_and_counted_and_then_asked_again(stub, collect, case):
    """And nothing else is. What was replied stays, also an answer without a score and a verdict that is unclear."""
    replies, flags, lines, failed = INCOMPLETE[case]
    stub.rule = by_pattern(replies)
    found = collect(flags, 3)
    assert [line for line in lines if line not in found.printed] == []
    assert "cost unknown" not in found.printed
    assert found.printed.replace("\n", "").isprintable()
    complete = found.log[["score_logprob", "error"]].notna().all(axis="columns").sum()
    assert f" {complete} with all scores and an error" in found.printed
    assert sum("response_format" in body for body in stub.asked) == found.printed.count("unreadable verdicts")
    stub.rule = USUAL
    assert f"12 of 12 questions answered, {complete + failed} with all" in collect(flags, 3).printed
    assert [count for count in stub.counts().values() if count > 1] == [2] * failed


SILENT = completion("Paris") | {"choices": [{"index": 0, "message": {"content": "Paris"}, "finish_reason": "stop"}]}
AGREE = """needs; reasoning models return none (try --extra '{"reasoning_effort": "none"}', or --score agree)"""
NO_LOGPROBS = by_pattern({"'logprobs'": SILENT})
UNKNOWN = by_pattern({"'w'": TOO_LONG})
NO_KEY = by_pattern({"": JSONResponse({"error": {"message": "Bad key"}}, 401)})


@pytest.mark.parametrize(
    ("flags", "rule", "asked", "sentence"),
    [
        (f"--endpoint {ABSENT}", USUAL, 0, "m cannot be asked (no connection; is a server listening there?)"),
        ("", NO_KEY, 1, "m cannot be asked (status 401: Bad key)"),
        # before anything is paid, also where it is the judge's that are needed
        ("", NO_LOGPROBS, 1, f"m: returned no usable logprobs of its text, which logprob {AGREE}"),
        ("--score p-true", NO_LOGPROBS, 2, f"m: returned no usable logprobs of its text, which p-true {AGREE}"),
        ("--judge llm --judge-model w", UNKNOWN, 2, "w cannot be asked (status 400: too long)"),
        ("--budget 1", USUAL, 0, "budget: given, but the price of m is not known"),
        ("--score std", USUAL, 0, "score: 'std' is unknown; it must be logprob, p-true"),
        ("--score exact exact", USUAL, 0, "score: exact, exact found; each needs a column of its own"),
        ("--score https://h/?key=1", USUAL, 0, "score: an address with a user name, query"),
        ("--score my_scores:plain", USUAL, 0, "score: my_scores:plain is no asynchronous function"),
        ("--score no_such_module:f", USUAL, 0, "score: 'no_such_module:f' cannot be imported"),
        ("--extra [1]", USUAL, 0, "extra: '[1]' found; it must be a JSON object"),
        ("--extra {", USUAL, 0, "extra: '{' found; it must be a JSON object"),
        ("--prompt judge", USUAL, 0, "prompt: 'judge' found; it must be ROLE=FILE"),
        ("--price 1", USUAL, 0, "price: (1.0,) found; it must be two finite numbers"),
        ("--samples 0", USUAL, 0, "samples: 0 found"),
        ("--timeout 0", USUAL, 0, "timeout: 0.0 found"),
        ("--endpoint localhost:80", USUAL, 0, "endpoint: 'localhost:80' found; it must be an address"),
        ("--endpoint ftp://h/v1", USUAL, 0, "endpoint: 'ftp://h/v1' found; it must be an address, http(s)://HOST"),
        ("--endpoint http://:80/v1", USUAL, 0, "endpoint: 'http://:80/v1' found; it must be an address"),
        ("--endpoint http://localhost:P/v1", USUAL, 0, "endpoint: http://localhost:P/v1 is not an address"),
        ("--judge-endpoint ftp:/me:secret@h", USUAL, 0, "--judge-endpoint: an address with a user name, query or"),
        ("--endpoint http://h/the-secret-key/v1", USUAL, 0, "endpoint: it contains the key, which would be saved"),
        ("""--extra '{"a": "the-secret-key"}'""", USUAL, 0, "extra: it contains the key, which would be saved"),
        ("--key-variable sk-secret", USUAL, 0, "--key-variable: it must be the name of an environment variable"),
        ("""--extra '{"stream": true}'""", USUAL, 0, "extra: stream found; it is set here"),
        ("""--extra '{"seed": 3}'""", USUAL, 0, "extra: seed found; it is set here"),
        ("--model ''", USUAL, 0, "model: missing; --model is required"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence_and_costs_nothing(
    own_scores, stub, refused, tmp_path, monkeypatch, flags, rule, asked, sentence
):
    monkeypatch.setenv("OPENAI_API_KEY", "the-secret-key")
    stub.rule = rule
    said = refused(flags)
    assert sentence in said
    assert "secret" not in said
    assert len(stub.asked) == asked
    assert not (tmp_path / "out").exists()


def test_missing_packages_are_named_with_the_command_of_a_checkout(refused, monkeypatch):
    monkeypatch.setattr("exaul.engine.checks.find_spec", lambda name: None)
    assert "genai_prices: not installed; language models need: uv run --extra llm exaul" in refused()


def test_a_system_message_comes_first_in_answers_and_samples(collect, stub, tmp_path):
    (tmp_path / "system.txt").write_text("You are brief.")
    collect(f"--score exact p-true --samples 1 --prompt system={tmp_path / 'system.txt'}", out="out")
    first = [body["messages"][0] for body in stub.asked]
    assert first.count({"role": "system", "content": "You are brief."}) == 2 * 12 + 1  # and a test call
    assert sum(message["role"] == "user" for message in first) == 12 + 1  # of the verdicts


def test_a_folder_of_something_else_is_refused(collect, refused, tmp_path):
    collect("--score exact --samples 1", out="out")  # needs no logprobs
    for name in ("mine.txt", "other/file"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{question}")
    how = "--score exact --samples 1"
    assert "--max-tokens: 9 found; " in (said := refused(f"{how} --max-tokens 9"))
    assert " was begun with 64" in said
    prompt = f"{how} --prompt answer={tmp_path / 'mine.txt'}"
    assert "prompt: " in refused(prompt)
    collect(prompt, out="own")
    (tmp_path / "mine.txt").write_text("Again: {question}")
    assert "answer: " in refused(prompt, "own")
    assert "is not empty; it must be an absent or empty folder" in refused(how, "other")
    (tmp_path / "other" / "manifest.json").write_text("{}")
    assert "holds something else; a folder that is absent or empty is needed" in refused(how, "other")
    calls = tmp_path / "out" / "calls.sqlite"
    calls.write_bytes(calls.read_bytes()[:4096] + b"x" * 8192)
    assert "calls.sqlite: " in refused(how)


def test_a_budget_is_that_of_the_folder_and_with_more_it_goes_on(stub, collect, sums, tmp_path):
    """The first call costs eleven millionths of a dollar. Stored replies stay, also if new questions come first."""
    for _ in range(2):
        poor = collect(f"{PRICED} --budget 11e-6", 3, out="poor")
        assert "0 of 12 questions answered" in poor.printed
        assert "the budget is reached" in poor.printed
        assert (poor.log, len(stub.asked)) == (None, 1)
    stub.asked.clear()
    how = f"{PRICED} --budget 60e-6 --concurrent 1"
    first = collect(how, 3)
    assert 0 < len(first.log) < 12
    assert first.about["left out"]["not asked"] == 12 - len(first.log)
    assert first.about["usage"]["dollars"] >= 60e-6
    asked = len(stub.asked)
    pd.testing.assert_frame_equal(first.log, collect(how, 3).log)
    assert len(stub.asked) == asked
    new = tmp_path / "new.jsonl"
    new.write_text('{"id": "n", "question": "What is 90 plus 90?", "answers": ["180"]}\n' + sums.read_text())
    assert len(collect(how, 3, questions=new).log) == len(first.log)
    assert len(collect(f"{PRICED} --budget 1 --concurrent {2**31 - 1}").log) == 12
    assert max(stub.counts().values()) == 1


def test_the_record_adds_up_and_an_unknown_price_stays_unknown(collect, refused):
    """Over runs of which the first asks half of the questions."""
    usages = [collect(flags).about["usage"] for flags in (f"{PRICED} --limit 6", "", PRICED)]
    assert [usage["calls"] for usage in usages] == [7, 13, 13]
    last = [usage["last run"] for usage in usages]
    assert last == [{"calls": n, "from before": m} for n, m in ((7, 0), (6, 7), (0, 13))]
    assert usages[1]["prompt tokens"] == usages[2]["prompt tokens"] == 130
    assert [usage["dollars"] is None for usage in usages] == [False, True, True]
    assert "calls.sqlite has calls of unknown price" in refused(f"{PRICED} --budget 1")


def test_answers_in_sentences_are_reported(stub, collect):
    """A right answer within a sentence is no match; the summary says how many there are."""
    said = completion("One of " + ", ".join(KNOWN.values()))
    stub.rule = by_pattern({"Question: ": said})
    printed = collect().printed
    assert "wrong: 100.0%" in printed
    told = "12 answers that count as wrong contain a right answer: with another --out, try --judge llm, or"
    assert told in printed
    (prompt,) = re.findall(r"--prompt (answer=\S+short\.txt)\n", printed)
    stub.rule = USUAL
    collect(f"--prompt {prompt}", out="short")
    assert "Who wrote War and Peace" in str(stub.asked[-1])


def test_a_dry_run_predicts_calls(sums, tmp_path, capsys):
    """No model is called, and nothing is written."""
    assert main(command(sums, tmp_path / "o", "--score logprob entail --judge llm --dry-run")) == 0
    # 12 calls per question: 1 + 5 answers, 5 + 1 verdicts
    said = "12 questions, 144 calls, plus one test call of each model, retries, and"
    assert capsys.readouterr().out.startswith(said)
    assert not (tmp_path / "o").exists()


CELLS = st.tuples(st.sampled_from([0.0, 0.3, 0.5, 1.0]), st.sampled_from([0.0, 0.25, 1.0]))


@given(st.lists(CELLS, min_size=1, max_size=9))
def test_how_well_scores_separate_right_from_wrong(pairs):
    """Beside a sum over all pairs of records."""
    scores, errors = (np.array(x) for x in zip(*pairs, strict=True))
    above = sum((1 - e) * f * ((a > b) + (a == b) / 2) for a, e in pairs for b, f in pairs)
    both = sum(1 - errors) * sum(errors)
    found = separation(scores, errors)
    assert math.isnan(found) if both == 0 else found == pytest.approx(above / both)


def test_several_scores_side_by_side(tmp_path, capsys):
    """One says all, the other nothing."""
    rows = pd.DataFrame({"score_logprob": [0.9, 0.8, 0.2, 0.1], "score_of_a_long_name": 0.5, "error": [0, 0, 1, 1]})
    rows.to_csv(tmp_path / "log.csv", index=False)
    argv = ["inspect", str(tmp_path / "log.csv"), "--alphas", "0.1", "--out", str(tmp_path / "o")]
    printed = output_of(argv, capsys)
    titles = "score  at 0.1  error rate  rows  right above wrong  distinct scores  ties at 1"
    head, *lines = [re.split("  +", line) for line in printed.splitlines()[2:5]]
    assert head == titles.split("  ")
    told = [["score_logprob", "50.0%", "1.000"], ["score_of_a_long_name", "0.0%", "0.500"]]
    assert [line[:2] + line[4:5] for line in lines] == told
    assert "score_logprob answers most:\n  exaul sweep --logs" in printed
    assert [path.name for path in (tmp_path / "o").iterdir()] == ["inspection.csv"]
    rows[["score_logprob", "error"]].to_csv(tmp_path / "log.csv", index=False)
    assert "right answers score above wrong ones in 100% of pairs" in output_of(argv[:-2], capsys)


@pytest.mark.usefixtures("few_figures")
@pytest.mark.parametrize("scores", ["logprob", "logprob exact"])
def test_the_log_is_one_for_inspect_and_sweep(collect, capsys, scores, monkeypatch):
    """The advice is a command as it was typed, of which each ends with the next."""
    monkeypatch.setenv("UV", "uv")
    printed = collect(f"--score {scores}").printed
    for name, flags in (("inspect", ""), ("sweep", "--trials 1 --arms 20 --learners aci-rank --progress quiet")):
        (told,) = re.findall(f"uv run exaul ({name} .*)", printed)
        assert main([*told.split(), *flags.split()]) == 0
        printed = capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_interrupted_it_keeps_what_is_in_flight_and_asks_no_more(stub, collect, capsys, sums, tmp_path, number):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, if a shell runs the tests in the background
    sent = []

    def rule(body, before):
        if len(stub.asked) >= 12 and not sent:
            sent.append(len(stub.asked))
            os.kill(os.getpid(), number)

    stub.rule, stub.delay = rule, 0.05
    argv = command(sums, tmp_path / "out", "--score exact --samples 2 --concurrent 4", stub.url)
    assert main(argv) == 128 + number
    assert "interrupted" in capsys.readouterr().err
    assert len(stub.asked) <= sent[0] + 4
    stub.rule, stub.delay = USUAL, 0
    assert len(collect("--score exact --samples 2").log) == 12
    assert max(stub.counts().values()) == 1


def test_interrupted_before_its_first_row_it_leaves_what_was_written(stub, collect, sums, tmp_path, monkeypatch):
    collect()
    manifest = (tmp_path / "out" / "manifest.json").read_bytes()

    def interrupted(main):
        main.close()
        raise KeyboardInterrupt

    monkeypatch.setattr("exaul.llm.collect.run_to_end", interrupted)
    assert main(command(sums, tmp_path / "out", "", stub.url)) == 130
    assert (tmp_path / "out" / "manifest.json").read_bytes() == manifest


KILLED = {  # a command, its usual flags, and the file that is the same as of a run that was left alone
    "collect": ("--score logprob entail --judge llm --concurrent 2", "log.csv"),
    "live adversary --questions": ("--horizon 8 --arms 20 --candidates 3", "transcript.jsonl"),
}


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("words", KILLED)
def test_killed_again_and_again_it_asks_for_nothing_that_it_had(stub, sums, tmp_path, monkeypatch, words, kills):
    """No call whose reply is in the file is asked again."""
    monkeypatch.setattr("exaul.llm.live.write_tables", lambda *_: None)
    flags, name = KILLED[words]
    argv = [*words.split(), str(sums), *flags.split()]
    out, alone = (command_at(stub.url, tmp_path / folder, *argv) for folder in ("out", "alone"))
    stub.rule = lambda body, before: completion("1") if "adversary" in str(body) else None
    stub.delay, chance, had = 0.01, random.Random(0), []
    for _ in range(kills):
        killed(stub, out, chance.random() * 0.3)
        stored = sql(tmp_path / "out" / "calls.sqlite", "SELECT key FROM calls")
        had.append((len(stub.asked), {key for (key,) in stored}))
    stub.delay = 0
    assert main(out) == 0
    keys = [key_of(stub.url, body) for body in stub.asked]
    for (asked, there), (later, _) in pairwise([*had, (len(keys), set())]):
        assert not there & set(keys[asked:later])
    assert len(keys) - len(set(keys)) <= 2 * kills  # those that were in flight
    assert main(alone) == 0
    assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


@pytest.mark.parametrize("more", ["", pytest.param("agree entail verbal", marks=pytest.mark.slow)])
def test_a_real_model_is_asked(small_model, collect, tmp_path, more):
    """It knows a capital, and says so in a sentence; not the rest. Asked again, it costs nothing."""
    (tmp_path / "plain.txt").write_text("{question}")
    capital = {"question": "What is the capital of Japan?", "answers": ["The capital of Japan is Tokyo"]}
    path = write_rows(tmp_path / "q.jsonl", [capital, {"question": "What number is it?", "answers": ["8241"]}])
    how = f"--endpoint {small_model} --prompt answer={tmp_path / 'plain.txt'} --score logprob p-true exact {more} "
    how += f"--samples 1 --judge {'both' if more else 'exact'} --max-tokens 12 --concurrent 2 --timeout 300 "
    how += shlex.join(["--extra", json.dumps({"stop": ["\n"]} | ({} if more else {"max_tokens": 12}))])
    status = (0, 3) if more else ()  # it may not say a number in percent
    found = collect(how, *status, questions=path)
    assert found.log["error_exact"].tolist() == [0, 1]
    known, unknown = found.log["score_logprob"]
    assert 1 > known > unknown > 0
    assert found.log["score_p_true"].between(0, 1, inclusive="neither").all()
    assert found.about["usage"]["prompt tokens"] > 0
    again = collect(how, *status, questions=path)
    assert again.about["usage"]["last run"]["calls"] == 0


def surer(body, before):
    """Verdicts on answers: the more letters an answer has, the surer; and samples."""
    prompt = body["messages"][0]["content"]
    if "in percent" not in prompt:
        return completion("blue" if body["seed"] % 2 else "green")
    answer = json.loads(prompt.partition("Proposed answer: ")[2].partition("\n")[0])
    return completion(f"{10 * len(answer)}%")


@pytest.fixture
def rows(tmp_path):
    """Six rows of somebody's log."""
    answers = ["blue", "green", "red", "", "Blue.", "a blue one"]
    about = {"tags": ["a"], "hole": "=1"}
    lines = [{"ask": f"Which colour has {n}?", "got": got, "error": n % 2} | about for n, got in enumerate(answers)]
    lines[1]["hole"] = " "
    return write_rows(tmp_path / "rows.jsonl", lines)


def scoring(stub, rows, out, flags=""):
    argv = command_at(stub.url, out, "score", str(rows), "--score", "verbal", "exact")
    return [*argv, "--question-column", "ask", "--answer-column", "got", *flags.split()]


def test_scores_are_added_to_rows(stub, rows, tmp_path, capsys):
    """An empty answer has none, nor has a row whose call failed, until it is made again; other columns stay."""
    argv, failing = scoring(stub, rows, tmp_path / "out", "--samples 4"), "Which colour has 2?"
    stub.rule = lambda body, before: BROKEN if failing in str(body) else surer(body, before)
    found = made(tmp_path / "out", output_of(argv, capsys, 3))
    assert "4 of 6 rows have all scores" in found.printed
    assert "  status 500: 1\n" in found.printed
    assert found.log["score_exact"].isna().tolist() == [n in (2, 3) for n in range(6)]
    stub.rule, asked = surer, len(stub.asked)
    found = made(tmp_path / "out", output_of(argv, capsys, 3))
    assert list(found.log) == ["ask", "got", "error", "hole", "score_verbal", "score_exact"]
    np.testing.assert_equal(found.log["score_verbal"].tolist(), [0.4, 0.5, 0.3, np.nan, 0.5, 1.0])
    np.testing.assert_equal(found.log["score_exact"].tolist(), [0.5, 0.5, 0, np.nan, 0.5, 0])
    told = f"5 of 6 rows have all scores: {tmp_path / 'out' / 'log.csv'}\n5 calls made, "
    assert told in found.printed
    assert "  empty answers: 1\n" in found.printed
    prompts = [body["messages"][0]["content"] for body in stub.asked[asked:]]
    assert sum(f"Question: {failing}\nAnswer:" in prompt for prompt in prompts) == 4
    assert "0 calls made" in output_of(argv, capsys, 3)
    # four samples and a verdict of each of five answers, and the first question, of which the answer is not used
    assert len(stub.counts()) == 26
    assert max(count for text, count in stub.counts().items() if failing not in text) == 1
    pd.testing.assert_frame_equal(found.log, made(tmp_path / "out").log)


def test_texts_of_collect_are_rows(stub, collect, tmp_path):
    """Their errors come along, so that the log can be inspected; samples of collect's requests are the same."""
    collect("--score logprob", out="first")
    texts = str(tmp_path / "first" / "texts.jsonl")
    assert main(command_at(stub.url, tmp_path / "second", "score", texts, "--score", "exact")) == 0
    second, third = made(tmp_path / "second").log, collect("--score exact", out="third").log
    pd.testing.assert_frame_equal(second[["id", "error", "score_exact"]], third[["id", "error", "score_exact"]])
    assert main(["inspect", str(tmp_path / "second" / "log.csv"), "--score", "score_exact"]) == 0


@pytest.mark.parametrize(("ending", "cell"), [("parquet", b"\xc3\xbc"), ("jsonl", "\ud800")])
def test_rows_may_hold_what_no_csv_can(stub, tmp_path, ending, cell):
    """Lists are left out, bytes are texts, and half a character is escaped."""
    stub.rule, path = surer, tmp_path / f"rows.{ending}"
    row = {"ask": "Which colour?", "got": "blue", "tags": ["a"], "x": cell}
    pd.DataFrame([row]).to_parquet(path) if ending == "parquet" else path.write_text(json.dumps(row))
    assert main(scoring(stub, path, tmp_path / "out")) == 0
    found = made(tmp_path / "out").log
    assert list(found) == ["ask", "got", "x", "score_verbal", "score_exact"]
    assert found["x"].tolist() == ["ü" if ending == "parquet" else r"\ud800"]


@pytest.mark.parametrize(
    ("flags", "content", "sentence"),
    [
        ("--score logprob", None, "score: logprob needs a reply with log-probabilities"),
        ("--judge llm", None, "judge: 'llm' found; rows are scored, and not judged"),
        ("--answer-column nothing", None, "rows.jsonl: no column nothing; it has ask, got"),
        ("--question-column hole", None, "rows.jsonl, row 2: hole is empty; each row needs a question"),
        ("", '{"ask": "a", "got": "b", "score_exact": 1}', "there is a column score_exact; it must be new"),
        ("", '{"ask": "a", "got": "b\\ud800"}', "rows.jsonl, row 1: "),
        ("", "", "rows.jsonl"),
    ],
)
def test_rows_that_cannot_be_scored_are_one_sentence(stub, rows, tmp_path, capsys, flags, content, sentence):
    rows.write_text(rows.read_text() if content is None else content)
    assert sentence in refusal_of(scoring(stub, rows, tmp_path / "out", flags), capsys)
    assert not (tmp_path / "out").exists()
