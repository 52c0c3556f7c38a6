"""``replay``: a log in its own order, once; trials differ in the learner's draws alone."""

from functools import partial

from engine.environments.oblivious import Environment, segments

replay = Environment(sources=1, shuffled=False, pool=partial(segments, 1))
