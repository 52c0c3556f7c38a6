"""Games for tests, and how to play one on a backend."""

import numpy as np
import pytest

from engine.devices import TILE
from engine.learners import LEARNERS
from engine.rollout import advance_blocks
from kernels import native
from kernels.game import ROUNDS, Block, Parameters, costs


def scores_of(kind, rng, rounds):
    """Scores [T] of one kind: ties, exact 0s and 1s, one level, or all different."""
    if kind == "levels":
        return rng.integers(0, 6, rounds) / 5
    if kind == "one level":
        return np.full(rounds, 0.6)
    if kind == "ends":
        return rng.choice([0.0, 1.0, 0.5, np.nextafter(1.0, 0.0)], rounds)
    if kind == "shift":
        return np.where(np.arange(rounds) < rounds // 2, rng.beta(6, 1, rounds), rng.beta(1, 6, rounds))
    return rng.beta(4, 1, rounds)


SLOW = ("compressed", "parallel")  # backends that compile for long: most of their cases are slow tests


def marked(cases):
    """Parameters of a test, slow where the last names a backend that compiles for long."""
    return [pytest.param(*x, marks=[pytest.mark.slow] if x[-1] in SLOW else []) for x in cases]


SCORES = ("levels", "one level", "ends", "shift", "continuous")


def comparable(name, rounds):
    """Rounds over which decisions are compared, and those over which probabilities are, to rounding.

    A learner without gamma enlarges a difference by up to 11 at a wrong answer: two sound programs part in the end.
    """
    return (min(rounds, 2_000), 500) if LEARNERS[name].kind == "priced" else (rounds, rounds)


def play(backend, arms, best, cuts, errors, uniforms, eta, gamma, alpha, lam, record=None):
    """Play rounds span by span: cuts and errors [T, R], uniforms [T, B], rates [K], alpha and lambda [B].

    Returns the state, and the decisions, probabilities of answering and (or None) middles of the draws, [T, B].
    """
    rounds, copies = uniforms.shape
    lanes = np.arange(-(-copies // TILE) * TILE, dtype=np.int32) % copies
    record = np.arange(copies, dtype=np.int32) if record is None else record
    state = backend.init(arms, np.full(len(lanes), best, np.int32), cuts.shape[1])
    outcomes = []
    for start in range(0, rounds, native.SPAN):
        rows = slice(start, start + native.SPAN)
        here = len(cuts[rows])
        blocks = -(-here // ROUNDS)
        pad = [(0, blocks * ROUNDS - here), (0, 0)]
        block = Block(
            np.pad(cuts[rows], pad, constant_values=1).astype(np.int32),
            np.pad(errors[rows], pad),
            np.pad(uniforms[rows], pad),
            np.arange(blocks * ROUNDS) < here,
        )
        each = Block(*(x.reshape(blocks, ROUNDS, *x.shape[1:]) for x in block))
        rates = (np.nan_to_num(x)[start // ROUNDS :][:blocks] for x in (eta, gamma))
        numbers = Parameters(*rates, *(x[lanes] for x in (alpha, *costs(alpha, lam), record)), lanes)
        state, outcome = advance_blocks(backend, state, each, numbers)
        outcomes.append([None if x is None else np.asarray(x)[:here, :copies] for x in outcome])
    columns = zip(*outcomes, strict=True)
    return state, *(None if column[0] is None else np.concatenate(column) for column in columns)
