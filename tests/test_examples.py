"""The examples run, and print what they say."""

from examples import abstainer, many_games, one_game


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


def test_an_abstainer_decides_twenty_questions(capsys):
    abstainer.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("aci-rank starts by answering")
    assert len(lines) == 22
    assert "feedback" in lines[1]  # the log is enough to answer the first question
    shown = [line for line in lines[1:-1] if "feedback" in line]
    assert 0 < len(shown) < 20
    assert lines[-1].startswith(f"{len(shown)} answers shown")
