"""``alternating-shift``: ten segments, from the first pool and the second in turn."""

from exaul.engine.environments.oblivious import segmented_pool

alternating_shift = segmented_pool(10)
