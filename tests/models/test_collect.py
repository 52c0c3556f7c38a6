"""A log from an endpoint: its rows, missing rows, and no question asked twice."""

import json
import math
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import JSONResponse, Response

from exaul import BadInput
from exaul.commands.main import main
from exaul.kernels.metrics import separation
from exaul.llm.calls import key_of
from exaul.llm.collect import Collect, CollectJob
from tests.models.stub import KNOWN, MAIN, USUAL, by_pattern, completion, killed
from tests.refusals import refusal_of


@pytest.fixture
def collect(stub, sums, tmp_path):
    """Collections of the questions in a folder: the log, and what was collected."""
    fields = {"questions": (str(sums),), "endpoint": stub.url, "model": "m", "progress": "quiet", "retries": 0}

    def run(out="out", **more):
        found = CollectJob(Collect(out=str(tmp_path / out), **fields | {"price": (1.0, 1.0)} | more))
        found.run()
        return pd.read_csv(tmp_path / out / "log.csv"), found

    return run


def command(sums, out, endpoint="http://127.0.0.1:9/v1"):
    """Its usual endpoint is not there."""
    argv = ["collect", str(sums), "--endpoint", endpoint, "--model", "m", "--out", str(out)]
    return [*argv, "--progress", "quiet"]


def test_a_row_has_the_scores_of_the_paper_and_both_verdicts(stub, collect, sums, tmp_path):
    """Every number beside one that is computed here, from the texts that were replied."""
    fields = {"score": ("logprob", "exact"), "judge": "both", "samples": 4}
    log, found = collect(**fields)
    texts = [json.loads(line) for line in (tmp_path / "out" / "texts.jsonl").read_text().splitlines()]
    assert list(log["id"]) == [f"sums.jsonl-{n}" for n in range(1, 13)]
    for row, text in zip(log.to_dict("records"), texts, strict=True):
        assert text["question"] in KNOWN
        right = text["answer"] == KNOWN[text["question"]]
        words = len(text["answer"].split())
        assert row["score_logprob"] == pytest.approx(math.exp(-0.1 * np.mean(range(1, words + 1))), abs=1e-12)
        assert row["score_exact"] == np.mean([sample == text["answer"] for sample in text["samples"]])
        assert len(text["samples"]) == 4
        assert row["error"] == row["error_exact"] == row["error_judge"] == 1 - right
        assert (row["tokens"], row["finish"], row["model"]) == (words, "stop", "stub-1")
    assert 0 < log["error"].mean() < 1
    assert log["score_exact"].between(0.01, 0.99).any()
    assert found.manifest["left out"] == {}
    assert len(stub.asked) == found.manifest["usage"]["calls"] <= 2 + 12 * (1 + 4 + 1)


def test_the_requests_are_as_the_design_says(stub, collect):
    """Greedy with logprobs, samples with a seed each, and the user's fields, of which null removes one."""
    extra = '{"top_p": 0.9, "max_tokens": null, "top_k": 5, "chat_template_kwargs": {"thinking": false}, "x": NaN}'
    more = {"score": ("logprob", "exact"), "samples": 3, "temperature": 0.7}
    collect(extra=extra, **more)
    asked = [body for body in stub.asked if "What is 3 plus 3?" in str(body)]
    assert sorted((body["temperature"], body["seed"], body.get("logprobs")) for body in asked) == [
        (0.0, 0, True),
        (0.7, 1, None),
        (0.7, 2, None),
        (0.7, 3, None),
    ]
    assert {(body["top_p"], body["top_k"]) for body in asked} == {(0.9, 5)}  # the client of OpenAI has no top_k
    assert all(body["chat_template_kwargs"] == {"thinking": False} for body in asked)
    assert not any("max_tokens" in body for body in asked)


def test_scores_share_samples_and_have_a_column_each(stub, collect, tmp_path, monkeypatch):
    """What each gets of the judging model, here of a stub that is always sure."""
    (tmp_path / "mine_of_collect.py").write_text(
        "async def length(request, reply, ask):\n    return len(reply.text) - 1\n"
    )
    monkeypatch.chdir(tmp_path)

    stub.rule = by_pattern({"in percent": completion("85%"), "mean the same": completion("1, 2, 3")})
    names = ("logprob", "p-true", "verbal", "agree", "exact", "entail", "mine_of_collect:length")
    log, found = collect(score=names, samples=4, judge_model="judge")
    columns = ["logprob", "p_true", "verbal", "agree", "exact", "entail", "mine_of_collect_length"]
    assert [name for name in log if name.startswith("score_")] == [f"score_{name}" for name in columns]
    assert set(log["score_p_true"].round(9)) == {0.75}
    assert set(log["score_verbal"]) == {0.85}
    assert set(log["score_agree"]) == {0.75}
    assert (log["score_exact"] == log["score_entail"]).all()
    lengths = log["score_mine_of_collect_length"]
    assert set(lengths.dropna()) == {0, 1}
    assert found.manifest["left out"]["mine_of_collect:length outside of [0, 1]"] == lengths.isna().sum() > 0
    samples = [body for body in stub.asked if body["temperature"] == 1]
    assert len(samples) == 12 * 4
    assert max(stub.counts().values()) == 1
    asked = {body["model"] for body in stub.asked if "proposed answer" in str(body)}
    assert asked == {"judge"}


def test_a_score_that_asks_another_model_has_no_price(stub, collect, tmp_path, monkeypatch):
    code = "async def other(request, reply, ask):\n    return await ask({**request, 'model': 'other'})\n"
    (tmp_path / "asks_another.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    log, found = collect(score=("asks_another:other", "logprob"))
    assert found.manifest["left out"] == {"asks_another:other failed (ValueError)": 12}
    assert {body["model"] for body in stub.asked} == {"m"}
    assert log["score_logprob"].notna().all()


def test_a_folder_that_was_begun_with_something_else_is_refused(collect, tmp_path):
    collect()
    with pytest.raises(BadInput, match=r"max_tokens: 9 found; .* was begun with 64"):
        collect(max_tokens=9)
    mine = tmp_path / "mine.txt"
    mine.write_text("{question}")
    with pytest.raises(BadInput, match="prompt: "):
        collect(prompt=(f"answer={mine}",))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    with pytest.raises(BadInput, match="is not empty; it must be an absent or empty folder"):
        collect("other")


def test_failed_cells_are_left_empty_and_counted(stub, sums, tmp_path, capsys):
    """One answer and one verdict fail, another verdict says neither yes nor no, also to a schema."""
    judged = r"is {0} plus {0}\?.*Reference answers".format
    replies = {r"is 2 plus 2\?(?!.*Reference answers)": JSONResponse({"error": "no"}, 500)}
    replies[judged(3)] = JSONResponse({"error": {"message": "too long"}}, 400)
    stub.rule = by_pattern(replies | {judged(4): completion("Well, that depends.")})
    argv = command(sums, tmp_path / "out", stub.url)
    argv += ["--judge", "both", "--retries", "0"]
    assert main(argv) == 3
    printed = capsys.readouterr().out
    assert "10 of 12 questions answered, 9 with all scores and an error" in printed
    for reason in ("status 500: 1", "status 400: 1", "unreadable verdicts: 1"):
        assert reason in printed
    assert "cost unknown" not in printed
    schemas = [body for body in stub.asked if "response_format" in body]
    assert len(schemas) == 1
    stub.rule = USUAL
    assert main(argv) == 3  # what the judge said of one is there, and is not asked again
    assert "12 of 12 questions answered, 11 with all" in capsys.readouterr().out


def test_refusals_empty_and_cut_answers_are_counted(stub, collect):
    refusal = completion("No.")
    refusal["choices"][0]["message"]["refusal"] = "I must not"
    replies = {
        r"is 2 plus 2\?": completion(""),
        r"is 7 plus 7\?": refusal,
        r"is 5 plus 5\?": completion("4 and so", finish="length"),
    }
    stub.rule = by_pattern(replies)
    log, found = collect()
    assert found.manifest["left out"] == {"answers cut at max_tokens": 1, "empty answers": 1, "refusals": 1}
    assert log["score_logprob"].isna().sum() == 1
    assert sum(found.is_complete(answer) for _, answer in found.answered) == 11


@pytest.mark.parametrize("score", ["logprob", "p-true"])
def test_a_model_without_logprobs_is_reported_at_once(stub, collect, tmp_path, score):
    """Before anything is paid, also where it is the judge's that are needed."""
    silent = {"choices": [{"index": 0, "message": {"content": "Paris"}, "finish_reason": "stop"}]}
    stub.rule = lambda body, before: completion("Paris") | silent if body.get("logprobs") else None
    told = rf"m: returned no usable logprobs of its text, which {score} needs; .* --score agree"
    with pytest.raises(BadInput, match=told):
        collect(score=(score,))
    assert len(stub.asked) == (1 if score == "logprob" else 2)
    assert not (tmp_path / "out").exists()
    log, _ = collect(score=("exact",))
    assert len(log) == 12


@pytest.mark.parametrize(
    ("response", "sentence"),
    [
        (None, "m cannot be asked (no connection; is a server listening there?)"),
        (
            Response("", 308, {"location": "http://elsewhere/v1"}),
            "m cannot be asked (status 308: it redirects to http://elsewhere/v1)",
        ),
        (JSONResponse({"error": {"message": "Invalid key"}}, 401), "m cannot be asked (status 401: Invalid key)"),
    ],
)
def test_an_endpoint_that_is_not_there_or_wants_a_key(stub, sums, tmp_path, capsys, response, sentence):
    stub.rule = lambda body, before: response
    argv = command(sums, tmp_path / "out", *([stub.url] if response else []))
    assert sentence in refusal_of([*argv, "--retries", "0"], capsys)
    assert not (tmp_path / "out").exists()


def test_a_judge_by_a_wrong_name_is_reported_before_anything_is_paid(stub, collect, tmp_path):
    stub.rule = by_pattern({"'wrong'": JSONResponse({"error": {"message": "no such model"}}, 404)})
    with pytest.raises(BadInput, match=r"wrong cannot be asked \(status 404: .*no such model"):
        collect(judge="llm", judge_model="wrong")
    assert len(stub.asked) == 2
    assert not (tmp_path / "out").exists()


def test_a_budget_is_that_of_the_folder_and_with_more_it_goes_on(stub, collect, sums, tmp_path):
    """A call costs eleven millionths of a dollar or more. Stored replies stay, also if new questions come first."""
    how = {"budget": 60e-6, "concurrent": 1}
    log, found = collect(**how)
    assert 0 < len(log) < 12
    assert found.manifest["left out"]["not asked"] == 12 - len(log)
    assert found.manifest["usage"]["dollars"] >= 60e-6
    asked = len(stub.asked)
    again, _ = collect(**how)
    assert len(stub.asked) == asked
    pd.testing.assert_frame_equal(log, again)
    new = tmp_path / "new.jsonl"
    new.write_text('{"id": "n", "question": "What is 90 plus 90?", "answers": ["180"]}\n' + sums.read_text())
    moved, _ = collect(questions=(str(new),), **how)
    assert len(moved) == len(log)
    log, _ = collect(budget=1.0, concurrent=2**31 - 1)
    assert len(log) == 12
    assert max(stub.counts().values()) == 1
    with pytest.raises(BadInput, match="budget: given, but the price of m is not known"):
        collect("new", budget=1.0, price=())


def test_a_budget_may_be_smaller_than_a_call(stub, sums, tmp_path, capsys):
    argv = command(sums, tmp_path / "out", stub.url)
    for _ in range(2):
        assert main([*argv, "--price", "1", "1", "--budget", "1e-6"]) == 3
        out = capsys.readouterr().out
        assert "0 of 12 questions answered" in out
        assert "the budget is reached" in out
    assert not (tmp_path / "out" / "log.csv").exists()
    assert len(stub.asked) == 1


def test_replies_that_cannot_be_used_are_counted_and_named(stub, sums, tmp_path, capsys):
    """One is unreadable, one has logprobs above 0; no other row is lost, and no escape code is printed."""
    unreadable = completion("4") | {"usage": {"prompt_tokens": -(10**9)}}
    stub.rule = by_pattern(
        {r"is 2 plus 2\?": unreadable, r"is 5 plus 5\?": completion("10", [3.5], model="\x1b[31m\nred")}
    )
    argv = command(sums, tmp_path / "out", stub.url)
    assert main([*argv, "--price", "1", "1"]) == 3
    printed = capsys.readouterr().out
    assert "11 of 12 questions answered, 10 with all scores and an error" in printed
    assert "  unreadable reply: 1\n" in printed
    assert "  answers without logprob: 1\n" in printed
    assert "m changed its system fingerprint: stub-1 fp, \\x1b[31m\\nred fp" in printed
    assert printed.replace("\n", "").isprintable()


def test_the_record_adds_up_and_an_unknown_price_stays_unknown(collect):
    """Over runs of which the first asks half of the questions."""
    usages = []
    for limit, price in ((6, (1.0, 1.0)), (None, ()), (None, (1.0, 1.0))):
        _, found = collect(limit=limit, price=price)
        usages.append(found.manifest["usage"])
    assert [usage["calls"] for usage in usages] == [7, 13, 13]
    assert [usage["last run"]["calls"] for usage in usages] == [7, 6, 0]
    assert usages[1]["prompt tokens"] == usages[2]["prompt tokens"] == 130
    assert [usage["dollars"] is None for usage in usages] == [False, True, True]
    with pytest.raises(BadInput, match=r"budget: given, but .*calls\.sqlite has calls of unknown price"):
        collect(budget=1.0)


def test_answers_in_sentences_are_reported(stub, sums, tmp_path, capsys):
    """A right answer within a sentence is no match; the summary says how many there are."""
    question = re.compile(r"Question: What is (\d+) plus")

    def rule(body, before):
        found = question.search(str(body["messages"][-1]["content"]))
        return completion(f"The sum is {2 * int(found[1])}.") if found else None

    stub.rule = rule
    argv = command(sums, tmp_path / "out", stub.url)
    assert main(argv) == 0
    printed = capsys.readouterr().out
    assert "wrong: 100.0%" in printed
    assert (
        "12 answers that count as wrong contain a right answer: with another --out, try --judge llm, or" in printed
    )
    (prompt,) = re.findall(r"--prompt (answer=\S+short\.txt)\n", printed)
    stub.rule = USUAL
    assert main([*argv, "--prompt", prompt, "--out", str(tmp_path / "short")]) == 0
    assert "Who wrote War and Peace" in str(stub.asked[-1])
    assert "fewer than 1,000 rows: results of a sweep are inaccurate" in printed


def test_a_dry_run_predicts_calls(sums, tmp_path, capsys):
    """No model is called, and nothing is written."""
    argv = command(sums, tmp_path / "o")
    argv += ["--score", "logprob", "entail", "--judge", "llm", "--dry-run"]
    assert main(argv) == 0
    # 12 calls per question: 1 + 5 answers, 5 + 1 verdicts
    assert capsys.readouterr().out.startswith(
        "12 questions, 144 calls, plus one test call of each model, retries, and"
    )
    assert not (tmp_path / "o").exists()


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.3, 0.5, 1.0]), st.sampled_from([0.0, 0.25, 1.0])), min_size=1, max_size=9
    )
)
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
    assert main(["inspect", str(tmp_path / "log.csv"), "--alphas", "0.1"]) == 0
    printed = capsys.readouterr().out
    titles = "score  defects  at 0.1  error rate  rows  right above wrong  distinct scores  ties at 1"
    head, *lines = [re.split("  +", line) for line in printed.splitlines()[2:5]]
    assert head == titles.split("  ")
    assert [line[:2] + line[4:5] for line in lines] == [
        ["score_logprob", "50.0%", "1.000"],
        ["score_of_a_long_name", "0.0%", "0.500"],
    ]
    assert "score_logprob answers most:\n  exaul sweep --logs" in printed
    assert main(["inspect", str(tmp_path / "log.csv"), "--out", str(tmp_path / "o")]) == 0
    assert [path.name for path in (tmp_path / "o").iterdir()] == ["inspection.csv"]


@pytest.mark.parametrize("scores", [["logprob"], ["logprob", "exact"]])
def test_the_log_is_one_for_inspect_and_sweep(stub, sums, tmp_path, capsys, scores, monkeypatch):
    """The advice is a command as it was typed."""
    monkeypatch.setenv("UV", "uv")
    argv = command(sums, tmp_path / "out", stub.url)
    assert main([*argv, "--score", *scores]) == 0
    lines = capsys.readouterr().out.splitlines()
    told = [line.partition(": uv run exaul ")[2].split() for line in lines if ": uv run exaul " in line]
    assert main(told[0]) == 0
    if len(scores) > 1:  # inspect compares them, and says what to run
        lines = capsys.readouterr().out.splitlines()
        told += [line.partition("uv run exaul ")[2].split() for line in lines if "uv run exaul sweep" in line]
    assert [words[0] for words in told] == ["inspect", "sweep"]
    assert main([*told[1], "--trials", "1", "--arms", "20", "--learners", "aci-rank", "--progress", "quiet"]) == 0


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--score", "std"], "score: 'std' is unknown; it must be logprob, p-true"),
        (["--score", "exact", "exact"], "score: exact, exact found; each needs a column of its own"),
        (["--score", "no_such_module:f"], "score: 'no_such_module:f' cannot be imported"),
        (["--extra", "[1]"], "extra: '[1]' found; it must be a JSON object"),
        (["--extra", "{"], "extra: '{' found; it must be a JSON object"),
        (["--prompt", "judge"], "prompt: 'judge' found; it must be ROLE=FILE"),
        (["--price", "1"], "price: (1.0,) found; it must be two finite numbers"),
        (["--samples", "0"], "samples: 0 found"),
        (["--timeout", "0"], "timeout: 0.0 found"),
        (["--endpoint", "localhost:80"], "endpoint: 'localhost:80' found; it must be an address"),
        (["--endpoint", "http://localhost:PORT/v1"], "endpoint: http://localhost:PORT/v1 is not an address"),
        (
            ["--endpoint", "http://me:secret@host/v1"],
            "endpoint: an address with a user name, query or fragment may hold",
        ),
        (
            ["--judge-endpoint", "ftp:/me:secret@h"],
            "judge_endpoint: an address with a user name, query or fragment",
        ),
        (["--endpoint", "http://h/the-secret-key/v1"], "endpoint: it contains the key, which would be saved"),
        (["--extra", '{"key": "the-secret-key"}'], "extra: it contains the key, which would be saved"),
        (["--key-variable", "sk-secret"], "key_variable: it must be the name of an environment variable"),
        (["--extra", '{"stream": true}'], "extra: stream found; it is set here"),
        (["--extra", '{"seed": 3}'], "extra: seed found; it is set here"),
        (["--model", ""], "model: missing; --model is required"),
    ],
)
def test_bad_flags_are_one_sentence(sums, tmp_path, capsys, flags, sentence, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "the-secret-key")
    argv = command(sums, tmp_path / "o")
    said = refusal_of([*argv, *flags], capsys)
    assert sentence in said
    assert "secret" not in said
    assert not (tmp_path / "o").exists()


def test_missing_packages_are_named_with_the_command_of_a_checkout(sums, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("exaul.llm.flags.find_spec", lambda name: None)
    sentence = "genai_prices: not installed; language models need: uv run --extra llm exaul"
    assert sentence in refusal_of(command(sums, tmp_path / "o"), capsys)


def test_samples_of_an_endpoint_without_seeds_are_several(stub, collect):
    """Equal requests, of which each is made."""
    replies = iter(range(1000))
    stub.rule = lambda body, before: completion(str(next(replies))) if body["temperature"] else None
    _, found = collect(score=("exact",), samples=3, extra='{"seed": null}')
    assert not any("seed" in body for body in stub.asked)
    for row in found.rows:
        assert len(set(row.samples)) == 3


def test_one_endpoint_for_both_models_keeps_its_limits(stub, collect):
    stub.delay = 0.02
    given = {"judge": "llm", "judge_model": "other", "concurrent": 3, "score": ("entail",)}
    _, found = collect(**given)
    assert stub.most == 3
    assert {model: len(systems) for model, systems in found.manifest["systems"].items()} == {"m": 1, "other": 1}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_interrupted_it_keeps_what_is_in_flight_and_asks_no_more(stub, collect, sums, tmp_path, number):
    stub.delay = 0.3
    argv = [sys.executable, "-c", MAIN, *command(sums, tmp_path / "out", stub.url)]
    argv += ["--score", "exact", "--concurrent", "4"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as running:
        while len(stub.asked) < 12:
            time.sleep(0.01)
        asked = len(stub.asked)
        running.send_signal(number)
        said = running.stderr.read()
    assert running.returncode == 128 + number
    assert "interrupted" in said
    assert len(stub.asked) <= asked + 4
    stub.delay = 0
    collect(score=("exact",))
    assert max(stub.counts().values()) == 1


def test_interrupted_before_its_first_row_it_leaves_what_was_written(collect, tmp_path, monkeypatch):
    collect()
    manifest = (tmp_path / "out" / "manifest.json").read_bytes()

    def interrupted(main):
        main.close()
        raise KeyboardInterrupt

    monkeypatch.setattr("exaul.llm.collect.run_to_end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        collect()
    assert (tmp_path / "out" / "manifest.json").read_bytes() == manifest


def test_a_damaged_file_of_calls_is_one_sentence(collect, tmp_path):
    collect()
    path = tmp_path / "out" / "calls.sqlite"
    path.write_bytes(path.read_bytes()[:4096] + b"x" * 8192)
    with pytest.raises(BadInput, match=r"calls\.sqlite: "):
        collect()


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_again_and_again_it_asks_for_nothing_that_it_had(stub, collect, sums, tmp_path, kills):
    """No call whose reply is in the file is asked again; the log is that of a run that was left alone."""
    stub.delay = 0.01
    argv = command(sums, tmp_path / "out", stub.url)
    argv += ["--score", "logprob", "entail", "--judge", "llm", "--concurrent", "2"]
    chance, had = random.Random(0), []
    for _ in range(kills):
        killed(stub, argv, chance.random() * 0.3)
        with sqlite3.connect(tmp_path / "out" / "calls.sqlite") as file:
            had.append((len(stub.asked), {key for (key,) in file.execute("SELECT key FROM calls")}))
    log, _ = collect(score=("logprob", "entail"), judge="llm")
    keys = [key_of(stub.url, body) for body in stub.asked]
    for (asked, there), (later, _) in pairwise([*had, (len(keys), set())]):
        assert not there & set(keys[asked:later])
    assert len(keys) - len(set(keys)) <= 2 * kills  # those that were in flight
    alone, _ = collect("alone", score=("logprob", "entail"), judge="llm")
    pd.testing.assert_frame_equal(log, alone)


@pytest.mark.parametrize("more", [(), pytest.param(("agree", "entail", "verbal"), marks=pytest.mark.slow)])
def test_a_real_model_is_asked(small_model, tmp_path, more):
    """It knows two capitals, and says so in a sentence; not the rest. Asked again, it costs nothing."""
    (tmp_path / "plain.txt").write_text("{question}")
    rows = {
        "What is the capital of Japan?": ["The capital of Japan is Tokyo"],
        "What is the capital of Germany?": ["The capital of Germany is Berlin"],
        "What was the name of my neighbour's second cat?": ["Mog"],
        "Which number am I thinking of?": ["8241"],
    }
    lines = [json.dumps({"question": q, "answers": a}) + "\n" for q, a in rows.items()]
    (tmp_path / "q.jsonl").write_text("".join(lines))
    config = {
        "questions": (str(tmp_path / "q.jsonl"),),
        "endpoint": small_model,
        "model": "small",
        "prompt": (f"answer={tmp_path / 'plain.txt'}",),
        "score": ("logprob", "p-true", "exact", *more),
        "samples": 2,
        "judge": "both" if more else "exact",
        "extra": '{"stop": ["\\n"]}',
        "max_tokens": 12,
        "concurrent": 2,
        "progress": "quiet",
        "out": str(tmp_path / "out"),
    }
    found = CollectJob(Collect(**config))
    found.run()
    log = pd.read_csv(tmp_path / "out" / "log.csv")
    assert list(log["error_exact"]) == [0, 0, 1, 1]
    assert log["score_logprob"].between(0, 1, inclusive="neither").all()
    assert log["score_p_true"].between(0, 1, inclusive="neither").all()
    assert log["score_logprob"].iloc[:2].min() > log["score_logprob"].iloc[2:].max()
    assert found.manifest["usage"]["prompt tokens"] > 0
    again = CollectJob(Collect(**config))
    again.run()
    assert again.manifest["usage"]["last run"]["calls"] == 0


@pytest.mark.slow
def test_a_real_model_is_asked_on_after_a_kill_and_a_budget(small_model, sums, tmp_path, monkeypatch):
    """No stored reply is replaced, so no call is made again. Then ``exaul score`` adds a score."""
    code = "async def same(request, reply, ask):\n    return (await ask(request)).text == reply.text\n"
    (tmp_path / "asks_again.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    flags = ["--endpoint", small_model, "--model", "small", "--max-tokens", "4", "--progress", "quiet"]
    argv = ["collect", str(sums), "--score", "logprob", "asks_again:same", *flags, "--concurrent", "1"]
    argv += ["--price", "1", "1", "--out", "log"]

    def stored():
        with sqlite3.connect("log/calls.sqlite") as file:
            return set(file.execute("SELECT key, rowid FROM calls"))

    with subprocess.Popen([sys.executable, "-c", MAIN, *argv]) as running:
        while not Path("log/calls.sqlite-wal").exists() or len(stored()) < 3:
            time.sleep(0.01)
        running.kill()
    had = [stored()]
    for flag, status in ((["--budget", "3e-4"], 3), ([], 0)):
        assert main([*argv, *flag]) == status
        had.append(stored())
    assert had[0] < had[1] < had[2]
    assert len(had[2]) == 13
    assert main(["score", "log/texts.jsonl", "--score", "exact", "--samples", "2", *flags, "--out", "more"]) == 0
    log, more = (pd.read_csv(f"{name}/log.csv") for name in ("log", "more"))
    assert set(log["score_asks_again_same"]) == {1}
    assert more["score_exact"].isin([0, 0.5, 1]).all()
    assert more["error"].equals(log["error"])
