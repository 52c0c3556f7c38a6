"""``stochastic``: records drawn at random from one pool, without replacement while it lasts."""

from exaul.engine.environments.oblivious import in_turn

stochastic = in_turn(1)
