"""``stochastic``: one pool in random order, without replacement until it is used up."""

from exaul.engine.environments.oblivious import segmented_pool

stochastic = segmented_pool(1)
