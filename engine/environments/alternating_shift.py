"""``alternating-shift``: ten segments, from the first pool and the second in turn."""

from functools import partial

from engine.environments.oblivious import Environment, segments

alternating_shift = Environment(sources=2, shuffled=True, pool=partial(segments, 10))
