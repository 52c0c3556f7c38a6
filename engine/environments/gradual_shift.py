"""``gradual-shift``: round t comes from the second pool with probability t / T."""

from exaul.engine.environments.oblivious import Draw, Oblivious, Pools


def pool(t: Pools, horizon: int, uniforms: Draw) -> Pools:
    """Draw the pool of each round t [R, 1] of each trial: 1 with probability ``t / T``."""
    return (uniforms() < t / horizon).astype(t.dtype)


gradual_shift = Oblivious(sources=2, shuffled=True, pool=pool)
