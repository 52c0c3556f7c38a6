"""Simulate ``Ranked`` rules, which answer by the rank of a score among recent ones (``aci-rank``).

Ranks do not depend on decisions. So those of a stream are computed once for all copies that read it: the counts of
cuts are the leaves of a binary tree of sums (``tree.py``), and a round walks from the leaf of its cut to the root,
O(log H). Then the rule runs as a loop over copies, round by round.
"""

import math
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.game import ROUNDS, SPAN, Copies, Parameters, Rates, Start
from exaul.kernels.learners.learner import Learner, Ranked
from exaul.kernels.native.backend import (
    BIT,
    CheckpointSums,
    NativeBackend,
    add_round,
    keep_sums,
    load_sums,
    store_sums,
    tree_sizes,
)
from exaul.kernels.native.compile import (
    accessors,
    compile_with_helpers,
    disjoint,
    exact,
    outermost,
    where,
)
from exaul.kernels.native.records import RecordBlocks
from exaul.kernels.native.threads import pool, scratch

PART = 32  # streams, or copies, of a task for one thread (chosen)
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
def _rank(tree, node, depth, one, at, below):
    """Sum the counts ``below`` each leaf and ``at`` it, and then add ``one`` to it and to all sums above it."""
    for c in range(node.size):
        at[c], below[c] = tree[c, node[c]], 0.0
        tree[c, node[c]] += one
    for _ in range(depth):
        for c in range(node.size):
            below[c] += tree[c, node[c] ^ 1] * BIT[node[c] & 1]
            node[c] >>= 1
            tree[c, node[c]] += one


@partial(outermost, compiler=disjoint)
def _rank_streams(first, last, counts, cuts, rounds, decay, every, depth, high, low, workspace):
    """Fill ``high`` and ``low`` [rounds, R], as of ``Ranked.decide``, for the streams first..last-1."""
    tree, node, at, below, total = workspace
    arms, leaves, many, one = counts.shape[1], 1 << depth, last - first, 1.0
    tree[:] = 0.0
    for c in range(many):
        for k in range(arms):
            tree[c, leaves + k] = counts[first + c, k]
    for i in range(rounds):
        if i % every == 0:
            # Instead of multiplying all old counts by ``decay``, let a new record count 1 / decay times as much as
            # the one before. Ranks depend on ratios of counts only. Counts are scaled back before they overflow.
            _scale(tree, one)
            one = 1.0
        for c in range(many):
            node[c], total[c] = leaves + cuts[first + c, i], tree[c, 1]
        one /= decay
        _rank(tree[:many], node[:many], depth, one, at, below)
        for c in range(many):
            high[i, first + c] = (below[c] + at[c]) / total[c]
            low[i, first + c] = below[c] / total[c]
    for c in range(many):
        for k in range(arms):
            counts[first + c, k] = tree[c, leaves + k] / one


def _compile(rule: Ranked) -> Callable[..., Any]:
    """Return the loop over the rounds of the copies of one task."""
    decide, learn = compile_with_helpers(rule.decide), compile_with_helpers(rule.learn)
    read, write = accessors(type(rule.start), lambda number, copy: (number, copy))

    @disjoint
    def step(numbers, state, high, low, error, u, eta, gamma, copies, answered):
        for c in range(numbers.size):
            n = numbers[c]
            rate, costs = eta * copies.eta_scale[n], (copies.answer_cost[n], copies.abstain_cost[n])
            mine = Parameters(rate, gamma * copies.gamma_scale[n], copies.alpha[n], costs[0], costs[1], 1.0)
            own = read(state, c)
            P = decide(where, own, high[c], low[c])
            yes = u[c] < P
            write(state, c, learn(where, own, yes, error[c], mine))
            answered[c] = yes

    @partial(outermost, compiler=disjoint)
    def simulate(numbers, states, high, low, records, rates, copies, tally, workspace):
        _, errors, uniforms, rounds = records
        state, u, error, rank, lower, wrong, answered, totals = workspace
        load_sums(numbers, tally, totals, wrong)
        for m in range(states.shape[0]):
            for c in range(numbers.size):
                state[m, c] = states[m, numbers[c]]
        for i in range(rounds):
            block = i // ROUNDS
            for c in range(numbers.size):
                stream = copies.record_stream[numbers[c]]
                u[c], error[c] = uniforms[i, copies.draw_stream[numbers[c]]], errors[stream, i]
                rank[c], lower[c] = high[i, stream], low[i, stream]
            step(
                numbers,
                state,
                rank,
                lower,
                error,
                u,
                rates.eta[block],
                rates.gamma[block],
                copies,
                answered,
            )
            add_round(answered, error, totals, wrong)
            keep_sums(i - block * ROUNDS, block, numbers, tally, totals, wrong)
        store_sums(numbers, tally, totals, wrong)
        for m in range(states.shape[0]):
            for c in range(numbers.size):
                states[m, numbers[c]] = state[m, c]

    return simulate


def _stream_arrays(arms: int, many: int) -> tuple[Any, ...]:
    leaves, _ = tree_sizes(arms)
    tree = np.zeros((many, 2 * leaves + 8))[:, : 2 * leaves]  # powers of two compete for the same cache sets
    return tree, np.zeros(many, np.int64), *(np.zeros(many) for _ in range(3))


def _copy_arrays(numbers: int, many: int) -> tuple[Any, ...]:
    floats = (np.zeros(many) for _ in range(5))
    return np.zeros((numbers, many)), *floats, np.zeros(many, np.bool_), np.zeros(many, np.int64)


def make(learner: Learner[Ranked], precision: str) -> NativeBackend:
    """Return the backend of a learner with a ``Ranked`` rule, as ``RankedGame``.

    ``precision`` is ignored: the state is the rule's M numbers [M, B] and the counts of the cuts of each stream
    [R, H], float64.
    """
    rule, loop = learner.rule, _compile(learner.rule)
    every = SPAN if -SPAN * math.log(rule.decay) < LARGEST else ROUNDS

    def ranks(counts: NDArray[np.float64], rounds: RecordBlocks) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        streams, arms = counts.shape
        high, low = np.empty((rounds.rounds, streams)), np.empty((rounds.rounds, streams))
        _, depth = tree_sizes(arms)

        def some(first: int) -> None:
            last = min(first + PART, streams)
            arrays = scratch(_stream_arrays, arms, PART)
            _rank_streams(
                first, last, counts, rounds.cuts, rounds.rounds, rule.decay, every, depth, high, low, arrays
            )

        list(pool().map(some, range(0, streams, PART)))
        return high, low

    def simulate(
        state: Any,
        rounds: RecordBlocks,
        rates: Rates,
        copies: Copies,
        tally: CheckpointSums,
    ) -> list[Future[Any]]:
        numbers, counts = state
        high, low = ranks(counts, rounds)
        records = rounds.arrays

        def run(first: int) -> None:
            each = np.arange(first, min(first + PART, numbers.shape[1]))
            arrays = scratch(_copy_arrays, len(numbers), len(each))
            loop(each, numbers, high, low, records, rates, copies, tally, arrays)

        return [pool().submit(run, first) for first in range(0, numbers.shape[1], PART)]

    def init(arms: int, start: Start, streams: int) -> tuple[NDArray[Any], NDArray[Any]]:
        return np.array(start.start, np.float64), np.repeat(np.asarray(start.counts)[None], streams, axis=0)

    return NativeBackend(init, simulate)
