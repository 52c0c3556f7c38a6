"""``stochastic``: records drawn at random from one pool, without replacement while it lasts."""

from exaul.engine.environments.oblivious import segmented_pool

stochastic = segmented_pool(1)
