"""The examples run, and print what they say."""

import re
from pathlib import Path

import jax
import pytest

from examples import abstainer, many_games, one_game
from exaul.commands.main import main


def test_one_game(capsys):
    one_game.main()
    assert "of 10,000 questions" in capsys.readouterr().out


def test_many_games_are_those_of_one(tmp_path, monkeypatch, capsys):
    """The regrets fall from the smallest rate on, and a figure is drawn."""
    monkeypatch.setattr(many_games, "SEEDS", 5)
    many_games.main(str(tmp_path / "regret.png"))
    lines = capsys.readouterr().out.splitlines()
    names = [*(f"eta x {x:g}" for x in many_games.SCALES), "the regret after each round"]
    assert [line.split(":")[0] for line in lines] == names
    regrets = [float(line.split()[4]) for line in lines[:-1]]
    assert regrets[0] > regrets[2] > 0
    assert (tmp_path / "regret.png").stat().st_size > 10_000


def test_the_programs_of_the_page_run(tmp_path, monkeypatch, capsys):
    """``docs/jax.md``: eight lines after the setting; environments; an object of one's own in a sweep."""
    page = (Path(__file__).parents[1] / "docs" / "jax.md").read_text(encoding="utf-8")
    code, environments, mine = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len([line for line in code.splitlines() if line]) == 2 + 8
    scope = {}
    exec(code.replace("3000", "300").replace("20,", "2,"), scope)
    assert scope["regrets"].shape == (3, 2, 300)
    exec(environments, scope)
    assert scope["answers"].shape == scope["cuts"].shape == (20, 1000)
    monkeypatch.chdir(tmp_path)
    Path("page_module.py").write_text(mine)
    argv = ["sweep", "--learners", "page_module:mine", "--trials", "2", "--horizon", "300", "--arms", "20"]
    assert main(argv) == 0
    assert "page_module:mine" in capsys.readouterr().out


def test_the_programs_of_the_readme_run(capsys):
    """An Abstainer that starts from a log; and games that print what the page says."""
    page, scope = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8"), {}
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # JAX's defaults
        for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
            exec(code, scope)
    assert scope["decision"].answer
    assert f"```text\n{capsys.readouterr().out}```" in page


def test_an_abstainer_decides_twenty_questions(capsys):
    abstainer.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("aci-rank starts by answering")
    assert len(lines) == 22
    assert "feedback" in lines[1]  # the log is enough to answer the first question
    shown = [line for line in lines[1:-1] if "feedback" in line]
    assert 0 < len(shown) < 20
    assert lines[-1].startswith(f"{len(shown)} answers shown")


@pytest.mark.parametrize("module", [one_game, many_games, abstainer])
def test_an_example_is_short(module):
    with open(module.__file__, encoding="utf-8") as lines:
        assert len(lines.readlines()) <= 55
