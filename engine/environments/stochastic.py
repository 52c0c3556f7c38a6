"""``stochastic``: records drawn at random from one pool, without replacement while it lasts."""

from functools import partial

from engine.environments.oblivious import Environment, segments

stochastic = Environment(sources=1, shuffled=True, pool=partial(segments, 1))
