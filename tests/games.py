"""Games for tests, and how to play one on a backend."""

from functools import partial

import jax
import numpy as np

from kernels.game import ROUNDS, Block, Parameters


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


SCORES = ("levels", "one level", "ends", "shift", "continuous")


@partial(jax.jit, static_argnames="advance")
def _advance(advance, state, block, parameters):
    return advance(state, block, parameters)


def play(backend, arms, best, cuts, errors, uniforms, eta, gamma, answer, abstain):
    """Play [T, B] rounds block by block with rates [K]; returns the state, decisions [T, B] and P [T, B]."""
    rounds, copies = cuts.shape
    state = backend.init(arms, np.broadcast_to(np.asarray(best, np.int32), copies))
    decisions, probabilities = [], []
    for k, start in enumerate(range(0, rounds, ROUNDS)):
        rows = slice(start, start + ROUNDS)
        here = len(cuts[rows])
        pad = [(0, ROUNDS - here), (0, 0)]
        block = Block(
            np.pad(cuts[rows], pad, constant_values=1).astype(np.int32),
            np.pad(errors[rows], pad),
            np.pad(uniforms[rows], pad),
            np.arange(ROUNDS) < here,
        )
        state, outcome = _advance(
            backend.advance, state, block, Parameters(eta[k], np.nan_to_num(gamma)[k], answer, abstain)
        )
        decisions.append(np.asarray(outcome.answered)[:here])
        probabilities.append(np.asarray(outcome.probability)[:here])
    return state, np.concatenate(decisions), np.concatenate(probabilities)
