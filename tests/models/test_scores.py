"""Scorers: what each makes of the replies of a model, what it asks for, and which names it has."""

import asyncio
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exaul.llm.replies import scored_reply
from exaul.llm.scores import column_of, scorer_of
from tests.models.stub import completion

CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Which tówn?"}, {"type": "image_url", "image_url": {}}]},
]
REQUEST = {"model": "m", "messages": CONVERSATION, "seed": 3, "temperature": 0, "logprobs": True, "top_logprobs": 2}


def scored(name, replies, answer="Paris", model=None, samples=5):
    """The score of an answer, and what was asked; ``replies`` are those of the endpoint, in order."""
    asked, waiting = [], list(replies)

    async def ask(body, sample=0):
        asked.append(body)
        reply = waiting.pop(0)
        return scored_reply(completion(reply) if isinstance(reply, str) else reply)

    scorer = scorer_of(name, model, samples)
    return asyncio.run(scorer.score(REQUEST, scored_reply(completion(answer)), ask)), asked


def chances(**logprobs):
    """A reply whose first token may be each of some words."""
    return completion("yes", top=[{"token": f" {word}", "logprob": x} for word, x in logprobs.items()])


@given(st.floats(0.001, 0.999), st.floats(0.1, 1.0))
def test_p_true_is_the_share_of_yes(chance, mass):
    half = math.log(chance * mass / 2)
    reply = chances(Yes=half, yes=half, no=math.log((1 - chance) * mass), perhaps=-5.0)
    score, (asked,) = scored("p-true", [reply], model="judge")
    assert math.isclose(score, chance)
    assert asked.keys() == {"model", "messages", "logprobs", "top_logprobs"}
    assert asked["model"] == "judge"
    (message,) = asked["messages"]
    assert '"Which tówn?"' in message["content"]
    assert '"Paris"' in message["content"]


@given(st.integers(0, 100), st.sampled_from(["{}", "{}%", "About {} percent.", "{}/100", "<think>5</think>{}"]))
def test_verbal_is_the_number_that_is_stated(percent, form):
    score, (asked,) = scored("verbal", [form.format(percent)])
    assert score == percent / 100
    assert asked.keys() == {"model", "messages"}
    assert asked["model"] == "m"


@given(st.lists(st.booleans(), min_size=1, max_size=8))
def test_exact_is_the_share_of_samples_with_the_same_words(same):
    score, asked = scored("exact", ["the paris." if each else "Rome" for each in same], samples=len(same))
    assert score == sum(same) / len(same)
    assert asked == [{"model": "m", "messages": CONVERSATION, "temperature": 1.0}] * len(same)


@given(st.sets(st.integers(1, 5)), st.sampled_from([", ", " and ", "\n"]))
def test_agree_is_the_share_that_one_reply_names(numbers, comma):
    texts = [f'It is Paris.\n{number}. "none"' for number in range(5)]
    score, asked = scored("agree", [*texts, comma.join(map(str, numbers)) or "None."], model="judge")
    assert score == len(numbers) / 5
    assert [each["model"] for each in asked] == ["m"] * 5 + ["judge"]
    lines = asked[-1]["messages"][0]["content"].splitlines()
    assert sum(line.startswith(f"{number}. ") for number in range(1, 9) for line in lines) == 5  # texts are quoted


UNCLEAR = {
    "p-true": ["yes", chances(perhaps=-0.1), completion("", top=())],
    "verbal": ["", "sure", "101", "-5", "0.9", "9" * 400],
    "agree": ["", "all of them", "0", "1, 6", "-1"],
}


@pytest.mark.parametrize(("name", "reply"), [(name, reply) for name, each in UNCLEAR.items() for reply in each])
def test_a_reply_without_a_clear_share_is_no_score(name, reply):
    samples = "abcde" if name == "agree" else ""
    assert math.isnan(scored(name, [*samples, reply])[0])


@pytest.mark.parametrize(
    ("second", "share"), [('{"verdict": "no"}', 2 / 3), ('{"verdict": "yes"}', 1), ("{}", math.nan)]
)
def test_entail_is_the_share_of_verdicts_that_are_yes(second, share):
    """An unclear verdict is asked for once more, by a schema."""
    score, asked = scored(
        "entail", ["Rome", "Paris", "Oslo", "Yes.", "Not sure: yes.", second, "yes"], samples=3, model="judge"
    )
    np.testing.assert_equal(score, share)
    assert [body["model"] for body in asked] == ["m"] * 3 + ["judge"] * 4
    assert ["response_format" in body for body in asked] == [False] * 5 + [True, False]
    assert 'First answer: "Paris"\nSecond answer: "Oslo"' in asked[-1]["messages"][0]["content"]


def test_names_of_columns():
    names = ["p-true", "exact", "my.module:f_2", "https://h:8000/score/"]
    columns = ["score_p_true", "score_exact", "score_my_module_f_2", "score_https_h_8000_score_"]
    assert list(map(column_of, names)) == columns


def test_a_webhook_scores(stub):
    stub.rule = lambda asked, before: {"score": 0.25}
    url = f"{stub.url}/chat/completions"
    assert scored(url, []) == (0.25, [])
    assert stub.asked == [{"request": REQUEST, "reply": scored_reply(completion("Paris"))._asdict()}]
