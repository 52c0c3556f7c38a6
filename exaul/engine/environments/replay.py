"""``replay``: a log in its own order, once; trials differ in the learner's draws alone."""

from exaul.engine.environments.oblivious import in_turn

replay = in_turn(1, shuffled=False)
