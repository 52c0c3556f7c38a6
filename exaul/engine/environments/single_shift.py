"""``single-shift``: half of the rounds from the first pool, then half from the second."""

from exaul.engine.environments.oblivious import segmented_pool

single_shift = segmented_pool(2)
