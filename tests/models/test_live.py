"""Dialogues: each model sees what it should, the learner is that of the simulation, and a run continues."""

import json
import re
from itertools import count

import pandas as pd
import pytest
from starlette.responses import JSONResponse, Response

from exaul import Abstainer, BadInput
from exaul.commands.live import summary
from exaul.kernels.game import ARMS
from exaul.llm.asking_sides import GREETING
from exaul.llm.live import IDK, Live, LiveJob
from tests.models.stub import KNOWN, USUAL, by_pattern, command_at, completion, write_rows
from tests.processes import output_of, refusal_of, sql

TEXTS = [f"Text number {n} says that the text says so." for n in range(5)]


@pytest.fixture(autouse=True)
def _quick(request, monkeypatch):
    """Make no tables and figures, where a test does not ask for some."""
    if "few_figures" not in request.fixturenames:
        monkeypatch.setattr("exaul.llm.live.write_tables", lambda *_: None)


@pytest.fixture
def pool(tmp_path):
    """Sixty questions, with a text."""
    rows = [{"question": q, "answer": a, "context": "A sum of twos."} for q, a in list(KNOWN.items())[:60]]
    return write_rows(tmp_path / "pool.jsonl", rows)


@pytest.fixture
def texts(tmp_path):
    """Five texts."""
    return write_rows(tmp_path / "texts.jsonl", [{"context": text} for text in TEXTS])


@pytest.fixture
def dialogue(stub, pool, texts, tmp_path):
    """Dialogues over the questions or the texts into a folder: the lines of the transcript, and the result."""
    where = {"adversary": {"questions": (str(pool),)}, "user": {"contexts": (str(texts),), "judge": "llm"}}
    fields = {"model": "m", "price": (1.0, 1.0), "progress": "quiet", "retries": 0, "arms": 20}

    def run(out="out", kind="adversary", **more):
        found = LiveJob(Live(kind=kind, out=str(tmp_path / out), endpoint=stub.url, **where[kind] | fields | more))
        found.run()
        lines = (tmp_path / out / "transcript.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines], found

    return run


def adversarial(body):
    """Whether a request is the adversary's."""
    return body["messages"][0]["content"].startswith("You are an adversary")


NUMBERS = count()  # for questions of which no two are equal


def choosing(number, rule=USUAL):
    """An adversary that always chooses one number, or says something else; ``rule`` is of other requests."""
    return lambda body, before: completion(str(number)) if adversarial(body) else rule(body, before)


@pytest.mark.parametrize("learner", ["exaul", "aci-rank"])
def test_the_learner_decides_as_in_the_simulation(stub, dialogue, tmp_path, learner, few_figures):
    """The replay sweep of one trial over the log answers as often, and at the default size so does an Abstainer."""
    stub.rule = choosing(0)
    how = {"horizon": 40, "learner": learner, "grid": "logit", "alpha": 0.3, "arms": ARMS}
    how["score"] = "exact", "logprob"  # of which the last counts
    lines, found = dialogue(**how)
    trials = pd.read_csv(tmp_path / "out" / "results" / "trials.csv")
    answered = sum(line["answered"] for line in lines)
    assert trials["learner"].tolist() == [learner]
    assert trials["answered"].tolist() == [answered]
    assert trials["fdr"].iloc[0] == pytest.approx(
        sum(x["error"] for x in lines if x["answered"]) / max(1, answered)
    )
    one = Abstainer(learner=learner, alpha=0.3, horizon=40, seed=0)
    for line in lines:
        decision = one.decide(line["scores"]["logprob"])
        assert (decision.answer, decision.probability) == (line["answered"], pytest.approx(line["probability"]))
        one.feedback(decision.id, line["error"])
    assert 0 < answered < 40 or learner != "exaul"
    assert found.manifest["left out"] == {}


def test_tables_that_were_half_made_are_made_anew_and_others_beside_them(
    stub, dialogue, tmp_path, few_figures, monkeypatch
):
    """The other learners answer the same questions."""
    stub.rule, out = choosing(1), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("exaul.llm.live.write_tables", lambda *_: None)
        dialogue(horizon=8)
    (out / "results" / "half").mkdir(parents=True)
    dialogue(horizon=8)
    assert (out / "results" / "trials.csv").exists()
    assert not (out / "results" / "half").exists()
    dialogue(horizon=8, replay=True)
    names = set(pd.read_csv(tmp_path / "out" / "replay" / "trials.csv")["learner"])
    assert {"exaul", "ew", "exp3-ix", "no-abstention", "aci-rank"} <= names


@pytest.mark.usefixtures("constant_learners")
@pytest.mark.parametrize("learner", ["answers", "abstains"])
def test_the_adversary_sees_decisions_and_means_only(stub, dialogue, learner):
    """Its prompt at each step, beside what the transcript says of the steps before."""
    stub.rule = choosing(2)
    lines, _ = dialogue(horizon=10, candidates=7, shown=4, learner=learner)
    prompts = [body["messages"][0]["content"] for body in stub.asked if adversarial(body)]
    assert len(prompts) == 10
    assert len({line["question"] for line in lines}) == 10
    for step, prompt in enumerate(prompts):
        before = lines[:step]
        candidates = re.findall(r"^(\d+): (.*)$", prompt, re.MULTILINE)
        assert [int(n) for n, _ in candidates] == list(range(7))
        assert candidates[2][1] == lines[step]["question"]
        history = [
            f"step {x['t']}: {x['question']} -> IDK=={not x['answered']}, label=={1 - x['error']:g}"
            for x in before[-4:]
        ]
        assert re.findall(r"^step .*$", prompt, re.MULTILINE) == history
        shown_wrong = sum(x["error"] for x in before if x["answered"]) / max(1, step)
        withheld_right = sum(1 - x["error"] for x in before if not x["answered"]) / max(1, step)
        assert f"- the current step: {step}\n" in prompt
        assert f"(IDK==False and label==0) over steps: {shown_wrong:.4f}" in prompt
        assert f"(IDK==True and label==1) over steps: {withheld_right:.4f}" in prompt
        assert "score" not in prompt.replace("confidence score of answers", "")
    assert lines[-1]["candidates"] == 7
    assert sum("Text: A sum of twos.\n\nQuestion: " in body["messages"][0]["content"] for body in stub.asked) == 10


def test_a_shift_brings_other_candidates(stub, dialogue):
    """But for the third wish in a row."""
    said = iter(["SHIFT", "1", "I SHIFT.", "SHIFT", "SHIFT", "0"])
    stub.rule = lambda body, before: completion(next(said)) if adversarial(body) else None
    _, found = dialogue(horizon=3, candidates=5)
    prompts = [body["messages"][0]["content"] for body in stub.asked if adversarial(body)]
    lists = [set(re.findall(r"^\d+: (.*)$", prompt, re.MULTILINE)) for prompt in prompts]
    assert len(lists[0] & lists[1]) == 0
    assert len(lists[1] & lists[2]) == 4
    assert found.manifest["left out"] == {"shifts": 3, "shifts that were not granted": 1}


def test_an_adversary_that_cannot_be_read(stub, dialogue):
    """It is asked for a number by a schema; if that fails, too, a candidate is drawn. Both are counted."""

    def rule(body, before):
        if not adversarial(body):
            return None
        if "response_format" in body and "current step: 2" in str(body):
            return completion('{"index": ' + "[" * 10**5)
        by_schema = "response_format" in body
        step = int(re.search(r"current step: (\d+)", body["messages"][0]["content"])[1])
        number = "9" * 5000 if step else "5"  # there are five, from 0
        return completion('{"index": 3}' if by_schema and step % 2 else number)

    stub.rule = rule
    _, found = dialogue(horizon=6, candidates=5)
    told = {"unreadable choices, drawn instead": 3, "choices that needed a second try": 3}
    assert found.manifest["left out"] == told


def asking(words, rule=USUAL):
    """A user that asks what ``words(turn)`` says; ``rule`` is of other requests."""

    def of_user(body, before):
        messages = body["messages"]
        return completion(words(len(messages) // 2)) if messages[0]["role"] == "system" else rule(body, before)

    return of_user


@pytest.mark.usefixtures("constant_learners")
def test_a_user_asks_about_one_text_and_then_another(stub, dialogue):
    """At most three questions a text here; the user sees what was withheld as such, and is greeted first."""
    stub.rule = asking(lambda turn: f"What is said in turn {turn}?")
    lines, _ = dialogue(kind="user", horizon=14, turns=3, learner="abstains")
    topics = [line["topic"] for line in lines]
    assert [topics.count(topic) for topic in dict.fromkeys(topics)] == [3, 3, 3, 3, 2]
    asked = [body["messages"] for body in stub.asked if body["messages"][0]["role"] == "system"]
    assert len(asked) == 14
    told = [messages[0]["content"] for messages in asked]
    assert [sum(text in one for one in told) for text in TEXTS].count(3) == 4
    for messages in asked:
        assert messages[1] == {"role": "user", "content": GREETING}
        assert [one["role"] for one in messages[1:]] == ["user", "assistant"] * (len(messages) // 2 - 1) + ["user"]
        assert all(one["content"] == IDK for one in messages[3::2])
    answering = [body["messages"] for body in stub.asked if "Question: What is said in turn 3?" in str(body)]
    said = ["What is said in turn 1?", IDK, "What is said in turn 2?", IDK]
    assert [one["content"] for one in answering[0][:-1]] == said


@pytest.mark.usefixtures("constant_learners")
def test_the_users_shift(stub, dialogue):
    """After two questions each; the judge reads the text, for there are no right answers. The model may forget."""
    stub.rule = asking(lambda turn: "SHIFT" if turn == 3 else f"What is said in turn {turn}?")
    lines, found = dialogue(kind="user", horizon=8, learner="answers", forget=True)
    topics = [line["topic"] for line in lines]
    assert [topics.count(topic) for topic in dict.fromkeys(topics)] == [2, 2, 2, 2]
    assert found.manifest["left out"] == {"shifts": 3}
    judged = [str(body) for body in stub.asked if "Reference answers" in str(body)]
    assert all("(none; the text above says what is right)" in prompt for prompt in judged)
    assert all(any(text in prompt for text in TEXTS) for prompt in judged)
    answering = [x["messages"] for x in stub.asked if x["messages"][-1]["content"].endswith("\nAnswer:")]
    assert answering
    assert all(len(messages) == 1 and "Text:" not in messages[0]["content"] for messages in answering)


def test_a_text_that_is_refused_is_left_out(stub, dialogue):
    """The dialogue goes on with the others."""
    asked, refused = asking(lambda turn: "What is said?"), JSONResponse({"error": "too long"}, 400)
    stub.rule = lambda body, before: refused if TEXTS[2] in body["messages"][0]["content"] else asked(body, before)
    lines, found = dialogue(kind="user", horizon=8, turns=1)
    assert {line["topic"].partition(",")[0] for line in lines} == {f"text {n}" for n in (1, 2, 4, 5)}
    assert found.manifest["left out"]["status 400"] >= 1


UNCLEAR = completion("Hard to say.")
ANSWERLESS = {  # the side that asks, the rule, the rounds wanted and played, why no more are, and what is left out
    "questions run out": (
        *("adversary", choosing(0, by_pattern({"is 7 plus.*Reference answers": UNCLEAR}))),
        *(12, 11, "all questions were asked", {"no verdict": 1, "unreadable verdicts": 1}),
    ),
    "none in a row": (
        *("user", asking(lambda turn: f"What? {next(NUMBERS)}", by_pattern({"Reference answers": UNCLEAR}))),
        *(5, 0, "20 questions in a row were left out", {"no verdict": 20, "unreadable verdicts": 20}),
    ),
    "nothing is asked": (
        *("user", asking(lambda turn: "SHIFT")),
        *(5, 0, "nothing was asked about 10 texts in a row", {"shifts": 10}),
    ),
}


@pytest.mark.parametrize("case", ANSWERLESS)
def test_a_question_without_a_verdict_is_no_round(stub, dialogue, sums, tmp_path, case):
    """The log has the rounds alone; after such a question the user gets another text."""
    kind, stub.rule, horizon, rounds, stopped, left_out = ANSWERLESS[case]
    more = {"questions": (str(sums),)} if kind == "adversary" else {}
    lines, found = dialogue(kind=kind, horizon=horizon, judge="llm", **more)
    assert len(lines) == rounds
    assert (found.manifest["stopped"], found.manifest["left out"]) == (stopped, left_out)
    assert not any("Hard to say" in str(line) for line in lines)
    assert (tmp_path / "out" / "log.csv").exists() == (rounds > 0)
    assert rounds == 0 or len(pd.read_csv(tmp_path / "out" / "log.csv")) == rounds
    asked = [body["messages"] for body in stub.asked if body["messages"][0]["role"] == "system"]
    assert kind == "adversary" or {len(messages) for messages in asked} == {2}  # the text and the greeting


def test_a_run_that_stops_goes_on_to_the_same_transcript(stub, dialogue, tmp_path):
    """As that of a run in which nothing failed, byte for byte. One that stops earlier leaves the log as it was."""
    out, working = tmp_path / "out", choosing(1)
    stub.rule = working
    whole, _ = dialogue("whole", horizon=8)
    _, found = dialogue("poor", horizon=8, budget=1e-4)
    assert 0 < len(found.rounds) < 8
    assert found.manifest["stopped"] == "the budget is reached"
    count = len(stub.asked) + 14
    stub.rule = lambda body, before: Response("no", 503) if len(stub.asked) > count else working(body, before)
    lines, found = dialogue(horizon=8)
    assert lines == whole[: len(lines)]
    assert 0 < len(lines) < 8
    assert found.manifest["stopped"].startswith("a call failed (status 503")
    assert not (out / "results").exists()
    with (out / "transcript.jsonl").open("ab") as stream:
        stream.write(b'{"t": 1')  # half a line, of a killed process
    stub.rule, had = working, stub.asked[count - 14 : count]
    stub.asked = []
    dialogue(horizon=8)
    assert not [body for body in had if body in stub.asked]
    one, other = ((tmp_path / name / "transcript.jsonl").read_bytes() for name in ("whole", "out"))
    assert one == other
    sql(out / "calls.sqlite", "DELETE FROM calls WHERE rowid > 10")
    stub.rule = lambda body, before: JSONResponse({"error": "no"}, 503)
    stored = [(out / name).read_bytes() for name in ("log.csv", "manifest.json")]
    _, found = dialogue(horizon=8)
    assert 0 < len(found.rounds) < 8
    assert summary(found).startswith(f"{len(found.rounds)} of 8 rounds: a call failed (status 503")
    assert [(out / name).read_bytes() for name in ("log.csv", "manifest.json")] == stored
    stub.rule = working
    dialogue(horizon=8)
    assert (out / "manifest.json").read_bytes() != stored[1]
    (out / "transcript.jsonl").write_bytes(one.replace(b'"candidates": 20', b'"candidates": 19', 1))
    with pytest.raises(BadInput, match="round 1 differs from the stored one"):
        dialogue(horizon=8)


def test_a_refused_question_is_left_out_for_good(stub, dialogue):
    """Also where the endpoint thinks better of it: the same dialogue, byte for byte."""
    refused = by_pattern({r"Question: What is \d*[37] plus": JSONResponse({"error": {"message": "too long"}}, 400)})
    stub.rule = choosing(1, lambda body, before: None if before else refused(body, before))
    lines, found = dialogue(horizon=10)
    assert found.manifest["left out"]["status 400"] >= 1
    refusals = sum(refused(body, 0) is not None for body in stub.asked)
    assert found.manifest["usage"]["calls"] == len(stub.asked) - refusals  # which cost nothing
    again, _ = dialogue(horizon=10)
    assert lines == again
    stub.rule = lambda body, before: JSONResponse({"error": {"message": "no such key"}}, 401)
    _, stopped = dialogue(horizon=10)
    assert len(stopped.rounds) == 10


@pytest.mark.parametrize(
    ("kind", "score", "calls"),
    [("user", ["logprob"], 38), ("adversary", ["exact"], 97), ("user", ["logprob", "entail"], 122)],
)
def test_a_dialogue_takes_no_more_calls_than_before(stub, pool, texts, tmp_path, kind, score, calls, capsys):
    """Those of the last version with scores of its own (std, con, con by verdicts), with these replies."""
    number = count()
    stub.rule = choosing(0) if kind == "adversary" else asking(lambda turn: f"What is question {next(number)}?")
    sources = {"user": ["--contexts", str(texts)], "adversary": ["--questions", str(pool)]}[kind]
    argv = command_at(stub.url, tmp_path / "out", "live", kind, *sources, "--horizon", "12", "--turns", "3")
    argv += ["--score", *score, "--judge", "llm", "--arms", "20"]
    printed = output_of([*argv, "--dry-run"], capsys)
    predicted = int(re.search(r"12 rounds, one after the other, (\d+) calls, plus", printed)[1])
    assert not stub.asked
    output_of(argv, capsys)
    assert len(stub.asked) == calls <= predicted + 2  # equal ones are made once
    compared = [text for body in stub.asked if "Second answer" in (text := body["messages"][0]["content"])]
    # 110 tokens of four characters, as in the costs of docs/speed.md, however long the dialogue is
    assert all(text.count("What is ") == 1 and len(text) <= 4 * 110 for text in compared)
    assert bool(compared) == ("entail" in score)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["user", "--contexts", "x", "--judge", "exact"], "judge: 'exact' found; texts have no right answers"),
        (["user", "--questions", "x"], "contexts: live user needs them, and no questions"),
        (["adversary"], "questions: live adversary needs them, and no contexts"),
        (["nobody"], "kind: 'nobody' is unknown; one of user, adversary"),
        (["adversary", "--questions", "POOL", "--horizon", "61"], "horizon: 61 found; there are 60 questions"),
        (["adversary", "--questions", "POOL", "--learner", "ew", "--horizon", "9"], "feedback on its own answers"),
        (["adversary", "--questions", "POOL", "--alpha", "1"], "alpha: 1.0 found"),
        (["adversary", "--questions", "POOL", "--grid", "quantile"], "grid: 'quantile' is unknown"),
    ],
)
def test_bad_flags_are_one_sentence(pool, tmp_path, capsys, flags, sentence):
    flags = [str(pool) if flag == "POOL" else flag for flag in flags]
    out = tmp_path / "out"
    assert sentence in refusal_of(command_at("http://127.0.0.1:9/v1", out, "live", *flags), capsys)
    assert not out.exists()


SLOW = {"marks": pytest.mark.slow}


@pytest.mark.parametrize(
    ("kind", "rounds"), [("adversary", 1), pytest.param("adversary", 3, **SLOW), pytest.param("user", 3, **SLOW)]
)
def test_a_dialogue_with_a_real_model(small_model, pool, texts, tmp_path, capsys, kind, rounds):
    """Every role by it; and again, without a call, to the same transcript."""
    flags = {"user": ["--contexts", str(texts), "--judge", "llm"], "adversary": ["--questions", str(pool)]}
    argv = ["live", kind, *flags[kind], "--endpoint", small_model, "--model", "small", "--horizon", str(rounds)]
    argv += ["--arms", "20", "--candidates", "2", "--progress", "quiet", "--max-tokens", "8"]
    argv += ["--learner", "aci-rank", "--out", str(tmp_path / "out")]
    if rounds == 1:  # a model of this size takes seconds to read the prompts of the paper
        for role, text in {"adversary": "{history} {instructions}", "instructions": "Say a number."}.items():
            (tmp_path / role).write_text(text)
        argv += ["--extra", '{"max_tokens": 8}', "--prompt"]
        argv += [f"{role}={tmp_path / role}" for role in ("adversary", "instructions")]
    printed = output_of(argv, capsys)
    assert f"{rounds} of {rounds} rounds" in printed
    before = (tmp_path / "out" / "transcript.jsonl").read_bytes()
    assert "0 calls made" in output_of(argv, capsys)
    assert (tmp_path / "out" / "transcript.jsonl").read_bytes() == before
