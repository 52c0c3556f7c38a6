"""Simulate ``Sided`` rules with a binary tree of sums, O(log H) a round.

The weights of the H arms are the leaves of a tree, padded with zeros to a power of two. A node holds the sum of its
leaves, and the factor that the leaves below it still miss:

    node 1                     s                     a node n has the children 2 n and 2 n + 1;
    nodes 2, 3          s             s              the leaf of arm k is ``leaves + k``
    nodes 4 to 7     s     s       s     s
    leaves           w w   w w     w w   w w
                              ^ cut: arms below it answer, the others abstain

A round (line "Update" of Algorithms "ExAUL" and "EW-CA") multiplies all weights below the cut by one factor and all
others by another. It walks from the leaf at the cut to the root, sums what lies left and right of the path,
decides, and walks up again: new sums on the path, and a factor for each sibling of the path.

- If copies read records of their own, those of a tile take each level one after the other.
- If at least ``SHARED`` copies read one stream, as the alphas and lambdas of a trial do, they share the path, and
  the loops over copies vectorise.

The exact state is the differences ``L_k - L_(k-1)`` of the cumulative losses in float64, of which a round changes
the one at its cut. Weights are computed anew from them every 256 rounds, or every 1,024 in float64 if
the rates are constant; more often at a large eta.
Every sum has a fixed order, that of the tree: bits depend neither on the width of vectors nor on other copies.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from exaul.kernels.game import ROUNDS, Parameters
from exaul.kernels.learners import ew, exaul, exaul_known
from exaul.kernels.learners.learner import Learner, Sided, weight_of_last
from exaul.kernels.native.backend import (
    BIT,
    NativeBackend,
    add_round,
    keep_sums,
    load_sums,
    make_backend,
    store_sums,
    tree_sizes,
)
from exaul.kernels.native.compile import compile_with_helpers, compiled, disjoint, exact, exp, outermost, where

CHARGES = exaul.charge, exaul_known.charge, ew.charge  # one loop serves them all: compiling takes seconds each


@disjoint
def weigh(losses, weights, eta, least):
    """Fill weights [H] with ``w_k = exp(-eta (L_k - min L))``, in [0, 1]."""
    for k in range(weights.size):
        weights[k] = exp(eta * (least - losses[k]))


def _choose(charges: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """Return ``chosen(number, ...)``, compiled, which calls the charge of that number with the other arguments."""
    first = compile_with_helpers(charges[0])
    others = _choose(charges[1:]) if len(charges) > 1 else None

    @compiled
    def chosen(number, where, P, Q, answered, error, parameters):
        if others is None or number == 0:
            return first(where, P, Q, answered, error, parameters)
        return others(number - 1, where, P, Q, answered, error, parameters)

    return chosen


def _compile_step(charges_of: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """Return the step of some rules for L copies, between the two walks.

    ``step(rule, low, high, u, error, eta, gamma, copies, numbers, below, above, gap, answered)`` decides
    from the sums of weights ``low`` below the cut and ``high`` above it, and fills the factors of both sides,
    ``gap`` (the charge below the cut less that above it), and the decisions.
    ``rule`` is the number of its charges, and whether it sees all errors.
    """
    charges = _choose(charges_of)

    @disjoint
    def step(rule, low, high, u, error, eta, gamma, copies, numbers, below, above, gap, answered):
        which, is_full = rule
        for c in range(numbers.size):
            n = numbers[c]
            total = np.float64(low[c]) + np.float64(high[c])
            # Q is a sum of its own, because 1 - P would lose the digits of a small Q, by which losses are divided
            # (eq. 8).
            P, Q = np.float64(low[c]) / total, np.float64(high[c]) / total
            yes = u[c] < P
            seen = error[c] if yes or is_full else 0.0
            rate, costs = eta * copies.eta_scale[n], (copies.answer_cost[n], copies.abstain_cost[n])
            mine = Parameters(rate, gamma * copies.gamma_scale[n], copies.alpha[n], costs[0], costs[1], 1.0)
            under, over = charges(which, where, P, Q, yes, seen, mine)
            gap[c] = under - over
            # A factor common to all arms changes no probability, so only the side that is charged more shrinks: one
            # ``exp`` a round, and no weight grows.
            factor = exp(-rate * abs(gap[c]))
            below[c] = factor if gap[c] > 0 else 1.0
            above[c] = 1.0 if gap[c] > 0 else factor
            answered[c] = yes

    return step


# Own records: each copy has its own path; tree [L, 2 leaves, 2] has a node's sum and its missing factor.


@exact
def _plant_own(tree, losses, numbers, eta, scale, last, cumulative, weights):
    """Compute the weights from the differences of the losses, and the sums from them."""
    arms, leaves = cumulative.size, tree.shape[1] // 2
    for c in range(numbers.size):
        total, least = 0.0, 0.0
        cumulative[0] = 0.0
        for k in range(1, arms):
            total += losses[numbers[c], k]
            cumulative[k] = total
            least = min(least, total)
        weigh(cumulative, weights, eta * scale[numbers[c]], least)
        weights[arms - 1] *= last
        for k in range(arms):
            tree[c, leaves + k, 0] = weights[k]
        for node in range(leaves - 1, 0, -1):
            tree[c, node, 0] = tree[c, 2 * node, 0] + tree[c, 2 * node + 1, 0]
            tree[c, node, 1] = 1


@exact
def _look(tree, cut, path, low, high, leaves, depth):
    """Sum the weights below and above each cut, from the leaf up; keep both sums of every node of the path."""
    for c in range(cut.size):
        node = leaves + cut[c]
        a, b = 0.0, np.float64(tree[c, node, 0])  # the arm at the cut abstains
        for d in range(depth):
            path[c, d, 0], path[c, d, 1] = a, b
            s, bit = np.float64(tree[c, node ^ 1, 0]), node & 1
            node >>= 1
            p = np.float64(tree[c, node, 1])
            a = (a + s * BIT[bit]) * p  # a right child has its sibling below the cut
            b = (b + s * BIT[1 - bit]) * p
        low[c], high[c] = a, b


@exact
def _update(tree, cut, path, factors, leaves, depth):
    """Give the path new sums, and each sibling its factor."""
    for c in range(cut.size):
        node = leaves + cut[c]
        below, above = factors[1, c], factors[0, c]
        for d in range(depth):
            tree[c, node, 0] = path[c, d, 0] * below + path[c, d, 1] * above
            x = factors[node & 1, c]
            tree[c, node ^ 1, 0] *= x
            tree[c, node ^ 1, 1] *= x
            node >>= 1


def _compile_own(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return the loop over the rounds of a tile whose copies read records of their own."""

    @partial(outermost, compiler=disjoint)
    def simulate(numbers, losses, records, rates, copies, tally, every, rule, last, sizes, workspace):
        cuts, errors, uniforms, rounds = records
        tree, path, factors, cumulative, weights, numbers_of, flags, cut = workspace
        low, high, u, error, gap, wrong = numbers_of
        answered, totals = flags
        leaves, depth = sizes
        many = numbers.size
        load_sums(numbers, tally, totals, wrong)
        for i in range(rounds):
            block = i // ROUNDS
            if i % every[block] == 0:
                _plant_own(tree, losses, numbers, rates.eta[block], copies.eta_scale, last, cumulative, weights)
            for c in range(many):
                stream = copies.record_stream[numbers[c]]
                cut[c], error[c] = cuts[stream, i], errors[stream, i]
                u[c] = uniforms[i, copies.draw_stream[numbers[c]]]
            _look(tree, cut, path, low, high, leaves, depth)
            step(
                *(rule, low, high, u, error, rates.eta[block], rates.gamma[block], copies, numbers),
                *(factors[1], factors[0], gap, answered),
            )
            _update(tree, cut, path, factors, leaves, depth)
            for c in range(many):
                losses[numbers[c], cut[c]] -= gap[c]
            add_round(answered, error, totals, wrong)
            keep_sums(i - block * ROUNDS, block, numbers, tally, totals, wrong)
        store_sums(numbers, tally, totals, wrong)

    return simulate


# Shared records: one path for all copies of a tile; sums and missing factors are [2 leaves, L].


@exact
def _plant_shared(tree, missing, steps, eta, last, cumulative, least):
    arms, leaves, many = steps.shape[0], tree.shape[0] // 2, least.size
    for c in range(many):
        cumulative[c], least[c] = 0.0, 0.0
    for k in range(1, arms):
        for c in range(many):
            cumulative[c] += steps[k, c]
            least[c] = min(least[c], cumulative[c])
    for c in range(many):
        cumulative[c] = 0.0
    for k in range(arms):
        _weigh_arm(steps[k], cumulative, least, eta, last if k == arms - 1 else 1.0, tree[leaves + k])
    for node in range(leaves - 1, 0, -1):
        for c in range(many):
            tree[node, c] = tree[2 * node, c] + tree[2 * node + 1, c]
            missing[node, c] = 1


@disjoint
def _weigh_arm(step, cumulative, least, eta, factor, weight):
    for c in range(weight.size):
        cumulative[c] += step[c]
        weight[c] = exp(eta[c] * (least[c] - cumulative[c]))
        weight[c] *= factor


@exact
def _up(a, b, sibling, p, low, high, is_right):
    """From a node's sums below and above the cut to its parent's, as in ``_look``."""
    if is_right:
        for c in range(a.size):
            low[c] = (a[c] + np.float64(sibling[c])) * np.float64(p[c])
            high[c] = b[c] * np.float64(p[c])
    else:
        for c in range(a.size):
            low[c] = a[c] * np.float64(p[c])
            high[c] = (b[c] + np.float64(sibling[c])) * np.float64(p[c])


@exact
def _down(node, sibling, missing, a, b, below, above, x):
    """Give a node its new sum, and its sibling its factor, as in ``_update``."""
    for c in range(node.size):
        node[c] = a[c] * below[c] + b[c] * above[c]
        sibling[c] *= x[c]
        missing[c] *= x[c]


def _compile_shared(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return the loop over the rounds of a tile whose copies read one stream."""

    @partial(outermost, compiler=disjoint)
    def simulate(numbers, losses, records, rates, copies, tally, every, rule, last, sizes, workspace):
        cuts, errors, uniforms, rounds = records
        tree, missing, steps, lows, highs, factors, numbers_of, flags = workspace
        u, error, gap, wrong, cumulative, least, eta = numbers_of
        answered, totals = flags
        leaves, depth = sizes
        many, arms, stream = numbers.size, steps.shape[0], copies.record_stream[numbers[0]]
        load_sums(numbers, tally, totals, wrong)
        for c in range(many):
            for k in range(arms):
                steps[k, c] = losses[numbers[c], k]
        for i in range(rounds):
            block, cut = i // ROUNDS, np.int64(cuts[stream, i])
            if i % every[block] == 0:
                for c in range(many):
                    eta[c] = rates.eta[block] * copies.eta_scale[numbers[c]]
                _plant_shared(tree, missing, steps, eta, last, cumulative, least)
            node = leaves + cut
            for c in range(many):
                error[c], u[c] = errors[stream, i], uniforms[i, copies.draw_stream[numbers[c]]]
                lows[0, c], highs[0, c] = 0.0, np.float64(tree[node, c])
            for d in range(depth):
                _up(lows[d], highs[d], tree[node ^ 1], missing[node >> 1], lows[d + 1], highs[d + 1], node & 1)
                node >>= 1
            step(
                *(rule, lows[depth], highs[depth], u, error, rates.eta[block], rates.gamma[block], copies, numbers),
                *(factors[1], factors[0], gap, answered),
            )
            node = leaves + cut
            for d in range(depth):
                side = factors[node & 1]
                _down(
                    tree[node], tree[node ^ 1], missing[node ^ 1], lows[d], highs[d], factors[1], factors[0], side
                )
                node >>= 1
            for c in range(many):
                steps[cut, c] -= gap[c]
            add_round(answered, error, totals, wrong)
            keep_sums(i - block * ROUNDS, block, numbers, tally, totals, wrong)
        store_sums(numbers, tally, totals, wrong)
        for c in range(many):
            for k in range(arms):
                losses[numbers[c], k] = steps[k, c]

    return simulate


# The backend.


def _own_arrays(arms: int, many: int, precision: str) -> tuple[Any, ...]:
    leaves, depth = tree_sizes(arms)
    return (
        np.zeros((many, 2 * leaves + 4, 2), precision)[:, : 2 * leaves],  # powers of two compete for cache sets
        np.zeros((many, depth, 2)),
        np.ones((2, many), precision),
        np.zeros(arms),
        np.zeros(arms, precision),
        tuple(np.zeros(many) for _ in range(6)),
        (np.zeros(many, np.bool_), np.zeros(many, np.int64)),
        np.zeros(many, np.int64),
    )


def _shared_arrays(arms: int, many: int, precision: str) -> tuple[Any, ...]:
    leaves, depth = tree_sizes(arms)
    return (
        np.zeros((2 * leaves, many), precision),
        np.ones((2 * leaves, many), precision),
        np.zeros((arms, many)),
        np.zeros((depth + 1, many)),
        np.zeros((depth + 1, many)),
        np.ones((2, many), precision),
        tuple(np.zeros(many) for _ in range(7)),
        (np.zeros(many, np.bool_), np.zeros(many, np.int64)),
    )


@cache
def _compile_loops(charges: tuple[Callable[..., Any], ...]) -> list[tuple[Callable[..., Any], Callable[..., Any]]]:
    """Return the loops for own and for shared records, with their workspaces."""
    step = _compile_step(charges)
    return [(_compile_own(step), _own_arrays), (_compile_shared(step), _shared_arrays)]


def make(learner: Learner[Sided], precision: str) -> NativeBackend:
    """Return the backend of a learner with a ``Sided`` rule, as ``SidedGame``.

    ``precision`` is the dtype of the weights and their sums; the state is the differences of the cumulative losses,
    [B, H] float64.
    """
    rule, is_full = learner.rule, learner.feedback == "full"
    charges = CHARGES if rule.charge in CHARGES else (rule.charge,)

    def how(arms: int) -> tuple[Any, ...]:
        last = 1.0 if rule.prior is None else float(weight_of_last(rule.prior, arms))
        return (charges.index(rule.charge), is_full), last

    return make_backend(_compile_loops(charges), precision, how)
