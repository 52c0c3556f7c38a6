"""The examples run, and print what they say."""

import pytest

from examples import abstainer, many_games, one_game


def test_one_game(capsys):
    one_game.main()
    assert "of the questions" in capsys.readouterr().out


def test_many_games_decide_as_a_sweep_does(capsys):
    many_games.main()
    assert "as in the sweep: True" in capsys.readouterr().out


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
