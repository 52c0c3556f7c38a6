"""Matching of short answers, prompts, and questions in the forms in which people have them."""

import json
import re
import string
import sys
from itertools import groupby
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from exaul import BadInput
from exaul.llm.prompts import NEEDED, PLACEHOLDER, fill, read_prompts
from exaul.llm.questions import read_contexts, read_questions
from exaul.llm.replies import contains, matches, normalised
from tests.models.stub import write_rows


def by_hand(text):
    """The four steps of the benchmark's rule, in its order, letter by letter."""
    kept = "".join(c for c in text.lower() if c not in string.punctuation)
    runs = ["".join(run) for _, run in groupby(kept, lambda c: c.isalnum() or c == "_")]
    return " ".join("".join(" " if run in ("a", "an", "the") else run for run in runs).split())


def test_ten_thousand_texts_are_normalised_as_by_hand():
    words = ["the", "The", "THE", "an", "them", "\u00a0", "\u0301", "\u2019", "\u2026", "中"]
    pieces = [*"aAn xé1_-'.,!?¿ßİ\t\n", " a ", " an ", *words]
    rng = np.random.default_rng(0)
    for size in rng.integers(0, 12, 10_000):
        text = "".join(rng.choice(pieces, size))
        assert normalised(text) == by_hand(text), repr(text)


def test_a_negation_is_no_match():
    assert matches("the Mark Twain.", ["Samuel Clemens", "Mark Twain"])
    assert not matches("not Mark Twain", ["Mark Twain"])
    assert contains("It was not Mark Twain!", ["the Mark Twain"])
    assert not contains("Marks Twain", ["Mark"])
    assert not contains("anything", ["the"])


def test_a_prompt_is_filled_once_and_names_what_it_is_filled_with():
    assert fill("{a} {b} {x: 1}", a="{b}", b=2) == "{b} 2 {x: 1}"
    defaults = read_prompts([])
    assert {role: set(PLACEHOLDER.findall(defaults[role])) & NEEDED[role] for role in defaults} == NEEDED


def test_the_adversary_gets_the_prompt_of_the_paper():
    """Word for word, from its appendix."""
    found = read_prompts([])
    assert found["adversary"].startswith(
        "You are an adversary engaged in a game with a learner model. "
        "Your goal is to expose the learner's weaknesses.\n"
    )
    assert (
        "- The total mean of correct answers rejected (IDK==True and label==1) over steps: " in found["adversary"]
    )
    assert "You must decide this **yourself** - do **not** ask whether to 'SHIFT'" in found["adversary"]
    assert "- If you select a question, respond with **ONLY the index number** (e.g., 5)." in found["instructions"]
    assert "When you are done with the current context, say 'SHIFT' to request a new context." in found["user"]


def test_a_user_prompt_replaces_the_default(tmp_path):
    path = tmp_path / "a=b.txt"
    path.write_text("Is {answer} right? {{}} {question}")
    assert read_prompts([f"judge={path}"])["judge"] == path.read_text()
    needed = {"judge": "answer", "user": "context", "answer": "question", "adversary": "history"}
    cases = [(role, "Well?", f"txt: no {{{name}}}; the prompt of {role} needs it") for role, name in needed.items()]
    filled = "txt: {x} found; the prompt of {} can be filled with "
    cases += [
        ("judge", "{answer} {x}", filled.replace("{}", "judge") + "{context}, {question}, {answers}, {answer}"),
        ("instructions", "{x}", filled.replace("{}", "instructions") + "nothing"),
        ("jugde", "", "prompt: 'jugde' is unknown; one of"),
    ]
    for role, text, sentence in cases:
        path.write_text(text)
        with pytest.raises(BadInput, match=re.escape(sentence)):
            read_prompts([f"{role}={path}"])
    with pytest.raises(BadInput, match=r"none\.txt: unreadable"):
        read_prompts([f"judge={tmp_path / 'none.txt'}"])


FORMS = [
    ({"answers": ["Paris", "paris", "Paris"]}, ("Paris", "paris")),
    ({"answer": "Paris"}, ("Paris",)),
    ({"answer": {"value": "Paris", "aliases": ["City of Light"], "type": "x"}}, ("Paris", "City of Light")),
    ({"answers": {"text": ["Paris", "in Paris"], "answer_start": [3, 4]}}, ("Paris", "in Paris")),
    ({"answer": '["Paris", "Lutetia"]'}, ("Paris", "Lutetia")),
    ({"answer": " ['Paris', 'Lutetia'] "}, ("Paris", "Lutetia")),  # as pandas writes lists to CSV
    ({"answer": "[sic] Paris"}, ("[sic] Paris",)),
    ({"answer": "{1, 2}"}, ("{1, 2}",)),
    ({"answer": "[0, 1]"}, ("[0, 1]",)),
    ({"answer": "[1]"}, ("[1]",)),
    ({"answer": 4}, ("4",)),
    ({"answer": "[" * 10**5}, ("[" * 10**5,)),
]


@pytest.mark.parametrize(("cell", "expected"), FORMS)
def test_answers_in_the_forms_in_which_people_have_them(cell, expected, tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"question": " Capital? ", "group": "geo"} | cell))
    ((one,), (source,)) = read_questions([str(path)], None, None)
    assert one == ("q.jsonl-1", "Capital?", expected, "geo", "")
    assert (source["name"], source["rows"]) == ("q.jsonl", 1)


def test_csv_and_parquet_and_several_files(tmp_path):
    table = pd.DataFrame({"id": ["a", "b"], "problem": ["1?", "2?"], "answer": ["one", "two"]})
    table.to_csv(tmp_path / "q.csv", index=False)
    lists = table.assign(id=["c", "d"], answer=[["one", "1"], ["two"]])
    lists.to_parquet(tmp_path / "q.parquet")
    found, sources = read_questions([str(tmp_path / "q.csv"), str(tmp_path / "q.parquet")], None, None, limit=1)
    assert [(one.id, one.answers) for one in found] == [("a", ("one",)), ("c", ("one", "1"))]
    assert [source["rows"] for source in sources] == [1, 1]


def test_two_files_of_one_name(tmp_path):
    for name in ("a/q (3)", "a/q", "b/q"):  # the first has the name of a third
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("question,answer\nx,y\n")
    found, sources = read_questions([str(tmp_path / name) for name in ("a/q (3)", "a/q", "b/q")], None, None)
    assert [one.id for one in found] == ["q (3)-1", "q-1", "q (2)-1"]
    assert [source["name"] for source in sources] == ["q (3)", "q", "q (2)"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"question": "x"}', r"q\.jsonl: no column answers or answer; it has question \(--answer-column"),
        ('{"text": "x", "answer": "y"}', r"q\.jsonl: no column question or problem; it has text, answer"),
        ('{"question": "x", "answer": "y"}\n{"question": "", "answer": "y"}', "row 2: question is empty"),
        ('{"question": "x", "answers": []}', "row 1: answers is empty"),
        ('{"id": 1, "question": "x", "answer": "y"}\n' * 2, "row 2: the id '1' occurs twice"),
        ("{", "row 1: not JSON"),
        (r'{"question": "x", "answer": "y"}' + "\n" + r'{"question": "\ud800", "answer": "y"}', r"row 2: .*UTF-8"),
        (r'{"question": "x", "answers": ["y", "\ud800"]}', r"row 1: '\\ud800' found; it must be UTF-8"),
        (r'{"question": "x", "answer": "y", "id": "\ud800"}', r"row 1: .* it must be UTF-8"),
        ('{"question": "x", "answer": %s}' % ("[" * 5000 + "]" * 5000), "row 1: (not JSON|answer is nested)"),
    ],
)
def test_bad_questions_are_one_sentence(content, sentence, tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text(content)
    with pytest.raises(BadInput, match=sentence) as caught:
        read_questions([str(path)], None, None)
    assert "\n" not in str(caught.value)


def test_names_of_datasets():
    """Without the package or a network, one sentence; for an unknown name, it lists the known ones."""
    with pytest.raises(BadInput, match=r"hf:triviaqa: .*pass the questions as a file"):
        read_questions(["hf:triviaqa"], None, None)
    with pytest.raises(
        BadInput, match="hf:nothing: unknown; it must be hf:OWNER/NAME:CONFIG:SPLIT, or one of hf:tri"
    ):
        read_questions(["hf:nothing"], None, None)


def test_a_dataset_of_the_hub(monkeypatch):
    """By what the package would return; it is not installed."""
    asked, module = [], ModuleType("datasets")

    class Rows(list):
        column_names, _fingerprint = ("question", "answer"), "f"

    def load_dataset(*names, split):
        if "none" in names[0]:
            raise OSError("no\nnetwork")
        asked.append((*names, split))
        return Rows({"question": f"{n}?", "answer": {"value": str(n)}} for n in range(9))

    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    found, sources = read_questions(["hf:nq", "hf:a/b:c"], None, None, limit=2)
    assert [(one.id, one.answers) for one in found[1:3]] == [("hf:nq-2", ("1",)), ("hf:a/b:c-1", ("0",))]
    assert sources == [{"name": name, "sha256": "f", "rows": 2} for name in ("hf:nq", "hf:a/b:c")]
    assert asked == [("google-research-datasets/nq_open", None, "validation"), ("a/b", "c", "validation")]
    with pytest.raises(BadInput, match=r"hf:a/none: cannot be loaded \(no\\nnetwork\); pass the questions"):
        read_questions(["hf:a/none"], None, None)


def test_texts_are_read_once(tmp_path):
    rows = [{"context": text, "question": "x"} for text in ("a", "b", "a", " ")]
    path = write_rows(tmp_path / "squad.jsonl", rows)
    found, _ = read_contexts([str(path)], None)
    assert found == ["a", "b"]
    path.write_text(r'{"context": "a\ud800"}')
    with pytest.raises(BadInput, match=r"squad\.jsonl, row 1: .* it must be UTF-8"):
        read_contexts([str(path)], None)
