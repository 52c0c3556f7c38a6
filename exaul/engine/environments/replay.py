"""``replay``: a log in its own order, once; trials differ only in the learner's draws."""

from exaul.engine.environments.oblivious import segmented_pool

replay = segmented_pool(1, shuffled=False)
