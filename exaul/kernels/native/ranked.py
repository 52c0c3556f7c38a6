"""Simulate rules without weights: ``Ranked`` ones, which answer by the rank of a score, and ``Fixed`` ones.

Ranks do not depend on decisions. So those of a stream are computed once for all copies that read it: the counts of
cuts are the leaves of a binary tree of sums (``tree.py``), and a round walks from the leaf of its cut to the root,
O(log H). Then the rule runs as a loop over copies, round by round.
"""

import math
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.game import ROUNDS, SPAN, Start
from exaul.kernels.learners.learner import Fixed, Learner, Ranked
from exaul.kernels.native.backend import (
    BIT,
    PART,
    Loop,
    NativeBackend,
    RecordBlocks,
    compile_loop,
    parameters_of,
    run_in_parts,
    scratch,
    simulate_tiles,
    tree_sizes,
)
from exaul.kernels.native.compile import accessors, compile_with_helpers, compiled, exact, outermost, where

LARGEST = 200.0  # logarithm of the largest count of a new record (chosen; floats end at e^709)


@exact
def _scale(tree, one):
    """Divide the counts by ``one``, and sum them anew."""
    leaves = tree.shape[1] // 2
    for c in range(tree.shape[0]):
        for k in range(leaves, 2 * leaves):
            tree[c, k] /= one
        for node in range(leaves - 1, 0, -1):
            tree[c, node] = tree[c, 2 * node] + tree[c, 2 * node + 1]


@exact
def _rank(tree, node, one, at, below):
    """Sum the counts ``below`` each leaf and ``at`` it, and then add ``one`` to it and to all sums above it."""
    for c in range(node.size):
        at[c], below[c] = tree[c, node[c]], 0.0
        tree[c, node[c]] += one
    while node[0] > 1:
        for c in range(node.size):
            below[c] += tree[c, node[c] ^ 1] * BIT[node[c] & 1]
            node[c] >>= 1
            tree[c, node[c]] += one


@outermost
def _rank_streams(first, last, counts, cuts, rounds, decay, every, high, low, workspace):
    """Fill ``high`` and ``low`` [rounds, R], as of ``Ranked.decide``, for the streams first..last-1."""
    tree, node, at, below, total = workspace
    arms, leaves, many, one = counts.shape[1], tree.shape[1] // 2, last - first, 1.0
    tree[:] = 0.0
    for c in range(many):
        for k in range(arms):
            tree[c, leaves + k] = counts[first + c, k]
    for i in range(rounds):
        if i % every == 0:
            # Instead of multiplying all old counts by ``decay``, let a new record count 1 / decay times as much as
            # the one before: ranks depend on ratios only. Counts are scaled back before they overflow.
            _scale(tree, one)
            one = 1.0
        for c in range(many):
            node[c], total[c] = leaves + cuts[first + c, i], tree[c, 1]
        one /= decay
        _rank(tree[:many], node[:many], one, at, below)
        for c in range(many):
            high[i, first + c] = (below[c] + at[c]) / total[c]
            low[i, first + c] = below[c] / total[c]
    for c in range(many):
        for k in range(arms):
            counts[first + c, k] = tree[c, leaves + k] / one


@cache  # a program may make many backends of a learner, as the advice does
def _compile(rule: Ranked) -> Loop:
    decide, learn = compile_with_helpers(rule.decide), compile_with_helpers(rule.learn)
    read, write = accessors(type(rule.start))

    @compiled
    def simulate_block(first, count, every, state, cut, error, u, eta, gamma, copies, given, arrays, answered):
        high, low = given
        for i in range(count):
            for c in range(answered.shape[1]):
                stream, own = copies.record_stream[c], read(state, c)
                yes = u[i, c] < decide(where, own, high[first + i, stream], low[first + i, stream])
                write(state, c, learn(where, own, yes, error[i, c], parameters_of(copies, c, eta, gamma)))
                answered[i, c] = yes

    return Loop(compile_loop(simulate_block), lambda *sizes: (), by_arm=True)


def _stream_arrays(arms: int) -> tuple[Any, ...]:
    leaves, _ = tree_sizes(arms)
    tree = np.zeros((PART, 2 * leaves + 8))[:, : 2 * leaves]  # powers of two compete for the same cache sets
    return tree, np.zeros(PART, np.int64), *(np.zeros(PART) for _ in range(3))


def make(learner: Learner[Ranked], precision: str) -> NativeBackend:
    """Return the backend of a learner with a ``Ranked`` rule, as ``RankedGame``; ``precision`` changes nothing.

    The state is the rule's M numbers [B, M], and the counts of the cuts of each stream [R, H].
    """
    rule, loop = learner.rule, _compile(learner.rule)
    every = SPAN if -SPAN * math.log(rule.decay) < LARGEST else ROUNDS

    def simulate(state: Any, made: RecordBlocks, *of: Any) -> Any:
        numbers, counts = state
        streams, arms = counts.shape
        high, low = np.empty((made.rounds, streams)), np.empty((made.rounds, streams))
        given = counts, made.cuts, made.rounds, rule.decay, every, high, low

        def rank(first: int, last: int) -> None:
            _rank_streams(first, last, *given, scratch(_stream_arrays, arms))

        run_in_parts(streams, PART, rank)
        return simulate_tiles([loop], "float64", (high, low), numbers, made, *of)

    def init(arms: int, start: Start, streams: int) -> tuple[NDArray[Any], NDArray[Any]]:
        return np.array(start.start, np.float64).T.copy(), np.repeat(
            np.asarray(start.counts)[None], streams, axis=0
        )

    return NativeBackend(init, simulate)


@compiled
def _answer_below(first, count, every, arm, cut, error, u, eta, gamma, copies, given, arrays, answered):
    for i in range(count):
        for c in range(answered.shape[1]):
            answered[i, c] = arm[c, 0] < cut[i, c]  # an arm answers if it is below the cut


FIXED = Loop(compile_loop(_answer_below), lambda *sizes: ())


def make_fixed(learner: Learner[Fixed], precision: str) -> NativeBackend:
    """Return the backend of a learner with a ``Fixed`` rule, as ``FixedGame``; the state is its arms [B, 1]."""

    def init(arms: int, start: Start, streams: int) -> NDArray[np.int32]:
        return start.arm[:, None]

    return NativeBackend(init, partial(simulate_tiles, [FIXED], "float64", (), draws=False))
