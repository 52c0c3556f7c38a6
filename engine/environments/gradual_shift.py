"""``gradual-shift``: round t comes from the second pool with probability t / T."""

from engine.environments.oblivious import Draw, Environment, Pools


def pool(t: Pools, horizon: int, uniforms: Draw) -> Pools:
    """Draw the pool of each round t [R, 1] of each trial: 1 with probability ``t / T``."""
    return (uniforms() < t / horizon).astype(t.dtype)


gradual_shift = Environment(sources=2, shuffled=True, pool=pool)
