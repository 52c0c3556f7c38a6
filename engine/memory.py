"""How much memory a sweep needs, and how its trials are split into batches that fit."""

from engine.game import Game


def batches(game: Game):
    """Trials, in batches that fit."""
    return [game.trials]
