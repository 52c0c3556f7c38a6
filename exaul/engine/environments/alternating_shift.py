"""``alternating-shift``: ten segments, from the first pool and the second in turn."""

from exaul.engine.environments.oblivious import in_turn

alternating_shift = in_turn(10)
