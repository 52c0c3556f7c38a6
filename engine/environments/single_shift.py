"""``single-shift``: half of the rounds from the first pool, then half from the second."""

from functools import partial

from engine.environments.oblivious import Environment, segments

single_shift = Environment(sources=2, shuffled=True, pool=partial(segments, 2))
