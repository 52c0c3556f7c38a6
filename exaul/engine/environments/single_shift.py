"""``single-shift``: half of the rounds from the first pool, then half from the second."""

from exaul.engine.environments.oblivious import in_turn

single_shift = in_turn(2)
