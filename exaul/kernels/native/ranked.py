"""Simulate rules without weights: ``Ranked`` ones, which answer by the rank of a score, and ``Fixed`` ones.

Ranks do not depend on decisions, so the ranks of a stream are computed once for its copies: the counts of cuts are
the leaves of a binary tree of sums (``tree.py``), and a round walks from the leaf of its cut to the root, O(log H).
Then the rule runs as a loop over copies, round by round.
"""

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.game import BLOCK, SPAN, Start
from exaul.kernels.learners.learner import Learner, Ranked
from exaul.kernels.native.backend import (
    BIT,
    Loop,
    NativeBackend,
    RecordBlocks,
    compile_loop,
    read_rounds,
    rule_params,
    run_in_tasks,
    simulate_tiles,
    tree_sizes,
)
from exaul.kernels.native.compile import accessors, compile_with_helpers, compiled, exact, outermost, where

LARGEST_LOG = 200.0  # logarithm of the largest count of a new record (chosen; floats end at e^709)


@exact
def _scale(tree, increment):
    """Divide the counts by ``increment``, and sum them anew."""
    leaves = tree.size // 2
    for k in range(leaves, 2 * leaves):
        tree[k] /= increment
    for node in range(leaves - 1, 0, -1):
        tree[node] = tree[2 * node] + tree[2 * node + 1]


@exact
def _rank(tree, cuts, decay, high, low, total):
    """Fill ``high`` and ``low``, as in ``Ranked.decide``, for the rounds [N] of one stream, and count their cuts.

    Instead of multiplying all old counts by ``decay``, let a new record count 1 / decay times as much as the one
    before: ranks depend on ratios only. Return what the last record counts.
    """
    increment = 1.0
    for i in range(cuts.size):
        increment /= decay
        node, below = tree.size // 2 + np.int64(cuts[i]), 0.0
        leaf, total[i] = tree[node], tree[1]
        tree[node] += increment
        while node > 1:
            below += tree[node ^ 1] * BIT[node & 1]
            node >>= 1
            tree[node] += increment
        high[i], low[i] = below + leaf, below
    for i in range(cuts.size):  # a separate loop vectorises, so that divisions cost little
        high[i], low[i] = high[i] / total[i], low[i] / total[i]
    return increment


@outermost
def _rank_streams(first, last, counts, cuts, rounds, decay, period, high, low, workspace):
    """Fill ``high`` and ``low`` [R, rounds] for the streams first..last-1."""
    tree, total = workspace
    arms, leaves = counts.shape[1], tree.size // 2
    for r in range(first, last):  # one stream after the other: its tree stays in the nearest cache
        tree[:] = 0.0
        for k in range(arms):
            tree[leaves + k] = counts[r, k]
        increment = 1.0
        for start in range(0, rounds, period):
            _scale(tree, increment)  # counts are scaled back before they overflow
            end = min(start + period, rounds)
            increment = _rank(tree, cuts[r, start:end], decay, high[r, start:end], low[r, start:end], total)
        for k in range(arms):
            counts[r, k] = tree[leaves + k] / increment


def _compile(learner: Learner[Ranked]) -> Loop:
    rule, is_full = learner.rule, learner.feedback == "full"
    decide, learn = compile_with_helpers(rule.decide), compile_with_helpers(rule.learn)
    kind, (read, write) = type(rule.start), accessors(len(rule.start))

    @compiled
    def advance_block(first, count, period, state, cut, error, u, eta, gamma, copies, inputs, workspace, answered):
        high, low = workspace
        read_rounds(inputs[0], copies.record_stream, first, count, high)
        read_rounds(inputs[1], copies.record_stream, first, count, low)
        for i in range(count):
            for c in range(answered.shape[1]):
                numbers = kind(*read(state, c))
                answers = u[i, c] < decide(where, numbers, high[i, c], low[i, c])
                visible_error = error[i, c] if is_full or answers else 0.0
                write(state, c, learn(where, numbers, answers, visible_error, rule_params(copies, c, eta, gamma)))
                answered[i, c] = answers

    return Loop(compile_loop(advance_block), lambda _, count, __: tuple(np.zeros((2, BLOCK, count))), by_arm=True)


def make_ranked(learner: Learner[Ranked]) -> NativeBackend:
    """Return the backend of a learner with a ``Ranked`` rule, as ``RankedLearner``.

    The state is the rule's M numbers [B, M], and the counts of the cuts of each stream [R, H].
    """
    rule, loop = learner.rule, _compile(learner)
    period = SPAN if -SPAN * math.log(rule.decay) < LARGEST_LOG else BLOCK

    def simulate(state: Any, records: RecordBlocks, *arguments: Any) -> Any:
        numbers, counts = state
        streams, arms = counts.shape
        high, low = np.empty((2, *records.cuts.shape))
        inputs = counts, records.cuts, records.round_count, rule.decay, period, high, low

        def rank(first: int, last: int) -> None:
            _rank_streams(first, last, *inputs, (np.zeros(2 * tree_sizes(arms)[0]), np.zeros(SPAN)))

        run_in_tasks(streams, rank)
        return simulate_tiles([loop], "float64", (high, low), numbers, records, *arguments)

    def init(arms: int, start: Start, streams: int) -> tuple[NDArray[Any], NDArray[Any]]:
        return np.array(start.state, np.float64).T.copy(), np.tile(start.counts, (streams, 1))

    return NativeBackend(init, simulate)


@compiled
def _answer_below(first, count, period, arm, cut, error, u, eta, gamma, copies, inputs, workspace, answered):
    for i in range(count):
        for c in range(answered.shape[1]):
            answered[i, c] = arm[c, 0] < cut[i, c]  # an arm answers if it is below the cut


_FIXED_LOOP = Loop(compile_loop(_answer_below), lambda *sizes: ())
# the backend of every ``Fixed`` rule, as ``FixedLearner``; its state is the arms [B, 1]
FIXED = NativeBackend(
    lambda arms, start, streams: start.arm[:, None], partial(simulate_tiles, [_FIXED_LOOP], "float64", ())
)
