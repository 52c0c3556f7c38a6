"""``replay``: a log in its own order, once; trials differ in the learner's draws alone."""

from exaul.engine.environments.oblivious import segmented_pool

replay = segmented_pool(1, shuffled=False)
