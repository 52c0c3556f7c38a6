"""Simulate ``Sided`` and ``Drawn`` rules with a binary tree of sums, O(log H) a round.

The weights of the H arms are the leaves of a tree, padded with zeros to a power of two. A node holds the sum of its
leaves, and the factor by which the leaves below it must still be multiplied:

    node 1                     s                     a node n has the children 2 n and 2 n + 1;
    nodes 2, 3          s             s              the leaf of arm k is ``leaves + k``
    nodes 4 to 7     s     s       s     s
    leaves           w w   w w     w w   w w
                              ^ cut: arms below it answer, the others abstain

A round of a ``Sided`` rule (line "Update" of Algorithms "ExAUL" and "EW-CA") multiplies all weights below the cut
by one factor and all others by another. It walks from the leaf at the cut to the root, sums what lies left and
right of the path, decides, and walks up again: new sums on the path, and a factor for each sibling of the path.

- If each copy reads its own records, the copies of a tile take each level one after the other.
- If at least ``SHARED`` copies read one stream, as the alphas and lambdas of a trial do, they share the path, and
  the loops over copies vectorise.

The exact state is the differences ``L_k - L_(k-1)`` of the cumulative losses in float64, of which a round changes
the one at its cut. Weights are computed anew from them every 256 rounds, or every 1,024 in float64 if the rates are
constant; more often at a large eta. Every sum has the fixed order of the tree: bits depend neither on the width
of vectors nor on other copies.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from exaul.kernels.learners import ew, exaul, exaul_known
from exaul.kernels.learners.learner import Drawn, Learner, Sided, weight_of_last
from exaul.kernels.native.backend import (
    BIT,
    Loop,
    NativeBackend,
    compile_loop,
    no_losses,
    rule_params,
    simulate_tiles,
    tree_sizes,
)
from exaul.kernels.native.compile import compile_with_helpers, compiled, exact, exp, where

CHARGES = exaul.charge, exaul_known.charge, ew.charge  # one loop serves them all: compiling takes seconds each


@compiled
def weigh(losses, weights, eta, minimum):
    """Fill weights [H] with ``w_k = exp(-eta (L_k - min L))``, in [0, 1]."""
    for k in range(weights.size):
        weights[k] = exp(eta * (minimum - losses[k]))


def _choose(charges: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """Compile ``chosen(number, ...)``, which calls the charge of that number with the other arguments."""
    first = compile_with_helpers(charges[0])
    following = _choose(charges[1:]) if len(charges) > 1 else None

    @compiled
    def chosen(number, where, P, Q, answered, error, params):
        if following is None or number == 0:
            return first(where, P, Q, answered, error, params)
        return following(number - 1, where, P, Q, answered, error, params)

    return chosen


def _compile_step(charges: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """Compile the step of some rules for L copies, which comes between the two walks.

    It decides from the sums of weights ``low`` below the cut and ``high`` above it, and fills ``answered``,
    ``factors`` [2, L], of the weights above the cut and below it, and ``gap``, the charge below minus that above.
    """
    charge = _choose(charges)

    @compiled
    def step(inputs, low, high, u, error, eta, gamma, copies, factors, gap, answered):
        rule_number, is_full, _ = inputs  # the number of the rule's charges, and whether it sees all errors
        factor_above, factor_below = factors[0], factors[1]
        for c in range(gap.size):
            total = np.float64(low[c]) + np.float64(high[c])
            # Q has a separate sum: 1 - P would lose the digits of a small Q, by which losses are divided (eq. 8).
            P, Q = np.float64(low[c]) / total, np.float64(high[c]) / total
            answers = u[c] < P
            feedback = error[c] if answers or is_full else 0.0
            params = rule_params(copies, c, eta, gamma)
            below, above = charge(rule_number, where, P, Q, answers, feedback, params)
            gap[c] = below - above
            # A factor common to all arms changes no probability, so only the side that is charged more shrinks: one
            # ``exp`` a round, and no weight grows.
            factor = exp(-params.eta * abs(gap[c]))
            factor_below[c] = factor if gap[c] > 0 else 1.0
            factor_above[c] = 1.0 if gap[c] > 0 else factor
            answered[c] = answers

    return step


# Own records: each copy has its own path; tree [L, 2 leaves, 2] has each node's sum and its missing factor.


@exact
def _build_own(losses, eta, copies, inputs, workspace):
    """Compute the weights from the differences of the losses [L, H], and the sums from them."""
    tree, _, _, cumulative, weights, _ = workspace
    arms, leaves, (_, _, last_factor) = cumulative.size, tree.shape[1] // 2, inputs
    for c in range(losses.shape[0]):
        total, minimum = 0.0, 0.0
        cumulative[0] = 0.0
        for k in range(1, arms):
            total += losses[c, k]
            cumulative[k] = total
            minimum = min(minimum, total)
        weigh(cumulative, weights, eta * copies.eta_scale[c], minimum)
        weights[arms - 1] *= last_factor
        for k in range(arms):
            tree[c, leaves + k, 0] = weights[k]
        for node in range(leaves - 1, 0, -1):
            tree[c, node, 0] = tree[c, 2 * node, 0] + tree[c, 2 * node + 1, 0]
            tree[c, node, 1] = 1


@exact
def _sum_path(tree, cut, path, low, high):
    """Sum the weights below and above each cut, from the leaf up; keep both sums of every node of the path."""
    for c in range(cut.size):
        node = tree.shape[1] // 2 + cut[c]
        below, above = 0.0, np.float64(tree[c, node, 0])  # the arm at the cut abstains
        for d in range(path.shape[1]):
            path[c, d, 0], path[c, d, 1] = below, above
            sibling, bit = np.float64(tree[c, node ^ 1, 0]), node & 1
            node >>= 1
            factor = np.float64(tree[c, node, 1])
            below = (below + sibling * BIT[bit]) * factor  # a right child has its sibling below the cut
            above = (above + sibling * BIT[1 - bit]) * factor
        low[c], high[c] = below, above


@exact
def _update_path(tree, cut, path, factors):
    """Compute the new sums of the path, and multiply each sibling by its factor."""
    for c in range(cut.size):
        node = tree.shape[1] // 2 + cut[c]
        below, above = factors[1, c], factors[0, c]
        for d in range(path.shape[1]):
            tree[c, node, 0] = path[c, d, 0] * below + path[c, d, 1] * above
            scale = factors[node & 1, c]
            tree[c, node ^ 1, 0] *= scale
            tree[c, node ^ 1, 1] *= scale
            node >>= 1


def _own_workspace(arms: int, count: int, precision: str) -> tuple[Any, ...]:
    leaves, depth = tree_sizes(arms)
    return (
        np.zeros((count, 2 * leaves + 4, 2), precision)[:, : 2 * leaves],  # tree; 2^n competes for cache sets
        np.zeros((count, depth, 2)),  # path
        np.ones((2, count), precision),  # factors
        np.zeros(arms),  # cumulative losses
        np.zeros(arms, precision),  # weights
        tuple(np.zeros(count) for _ in range(3)),  # low, high, gap
    )


def _compile_own(step: Callable[..., Any]) -> Loop:
    @compiled
    def advance_block(first, count, period, losses, cut, error, u, eta, gamma, copies, inputs, workspace, answered):
        tree, path, factors, _, _, (low, high, gap) = workspace
        for i in range(count):
            if (first + i) % period == 0:
                _build_own(losses, eta, copies, inputs, workspace)
            _sum_path(tree, cut[i], path, low, high)
            step(inputs, low, high, u[i], error[i], eta, gamma, copies, factors, gap, answered[i])
            _update_path(tree, cut[i], path, factors)
            for c in range(gap.size):
                losses[c, cut[i, c]] -= gap[c]

    return Loop(compile_loop(advance_block), _own_workspace)


# Shared records: one path for all copies of a tile; sums and missing factors are [2 leaves, L].


@exact
def _build_shared(losses, eta, copies, inputs, workspace):
    """Compute weights and sums, as ``_build_own`` does, from losses [H, L]."""
    tree, missing, _, _, _, (_, cumulative, minimum, rate) = workspace
    (arms, count), leaves, (_, _, last_factor) = losses.shape, tree.shape[0] // 2, inputs
    for c in range(count):
        cumulative[c], minimum[c], rate[c] = 0.0, 0.0, eta * copies.eta_scale[c]
    for k in range(1, arms):
        for c in range(count):
            cumulative[c] += losses[k, c]
            minimum[c] = min(minimum[c], cumulative[c])
    for c in range(count):
        cumulative[c] = 0.0
    for k in range(arms):
        _weigh_arm(losses[k], cumulative, minimum, rate, last_factor if k == arms - 1 else 1.0, tree[leaves + k])
    for node in range(leaves - 1, 0, -1):
        for c in range(count):
            tree[node, c] = tree[2 * node, c] + tree[2 * node + 1, c]
            missing[node, c] = 1


@compiled
def _weigh_arm(step, cumulative, minimum, eta, factor, weight):
    for c in range(weight.size):
        cumulative[c] += step[c]
        weight[c] = exp(eta[c] * (minimum[c] - cumulative[c]))
        weight[c] *= factor


@exact
def _combine(below, above, sibling, factor, low, high, is_right):
    """Compute a parent's sums below and above the cut from those of its child, as in ``_sum_path``."""
    if is_right:
        for c in range(below.size):
            low[c] = (below[c] + np.float64(sibling[c])) * np.float64(factor[c])
            high[c] = above[c] * np.float64(factor[c])
    else:
        for c in range(below.size):
            low[c] = below[c] * np.float64(factor[c])
            high[c] = (above[c] + np.float64(sibling[c])) * np.float64(factor[c])


@exact
def _scale_sibling(node, sibling, missing, low, high, below, above, scale):
    """Compute a node's new sum, and multiply its sibling by its factor, as in ``_update_path``."""
    for c in range(node.size):
        node[c] = low[c] * below[c] + high[c] * above[c]
        sibling[c] *= scale[c]
        missing[c] *= scale[c]


def _shared_workspace(arms: int, count: int, precision: str) -> tuple[Any, ...]:
    leaves, depth = tree_sizes(arms)
    return (
        np.zeros((2 * leaves, count), precision),  # tree
        np.ones((2 * leaves, count), precision),  # missing factors
        np.zeros((depth + 1, count)),  # lows, sums below the cut
        np.zeros((depth + 1, count)),  # highs, sums above it
        np.ones((2, count), precision),  # factors
        tuple(np.zeros(count) for _ in range(4)),  # gap, cumulative loss, minimum, rate
    )


def _compile_shared(step: Callable[..., Any]) -> Loop:
    @compiled
    def advance_block(first, count, period, losses, cut, error, u, eta, gamma, copies, inputs, workspace, answered):
        tree, missing, lows, highs, factors, (gap, _, _, _) = workspace
        depth, leaves, above, below = lows.shape[0] - 1, tree.shape[0] // 2, factors[0], factors[1]
        for i in range(count):
            if (first + i) % period == 0:
                _build_shared(losses, eta, copies, inputs, workspace)
            leaf = leaves + np.int64(cut[i, 0])
            node = leaf
            for c in range(gap.size):
                lows[0, c], highs[0, c] = 0.0, np.float64(tree[node, c])
            for d in range(depth):
                _combine(lows[d], highs[d], tree[node ^ 1], missing[node >> 1], lows[d + 1], highs[d + 1], node & 1)
                node >>= 1
            step(inputs, lows[depth], highs[depth], u[i], error[i], eta, gamma, copies, factors, gap, answered[i])
            node = leaf
            for d in range(depth):
                scale, sibling = factors[node & 1], node ^ 1
                _scale_sibling(tree[node], tree[sibling], missing[sibling], lows[d], highs[d], below, above, scale)
                node >>= 1
            for c in range(gap.size):
                losses[leaf - leaves, c] -= gap[c]

    return Loop(compile_loop(advance_block), _shared_workspace, by_arm=True)


@cache
def _compile_loops(charges: tuple[Callable[..., Any], ...]) -> list[Loop]:
    """Return the loops for own and for shared records."""
    step = _compile_step(charges)
    return [_compile_own(step), _compile_shared(step)]


def make_sided(learner: Learner[Sided], precision: str) -> NativeBackend:
    """Return the backend of a learner with a ``Sided`` rule, as ``SidedLearner``; its state is differences."""
    rule, is_full = learner.rule, learner.feedback == "full"
    charges = CHARGES if rule.charge in CHARGES else (rule.charge,)
    loops = _compile_loops(charges)

    def simulate(state: Any, *arguments: Any) -> Any:
        last = 1.0 if rule.prior is None else float(weight_of_last(rule.prior, state.shape[1]))
        return simulate_tiles(loops, precision, (charges.index(rule.charge), is_full, last), state, *arguments)

    return NativeBackend(no_losses, simulate)


# Drawn rules: a round (Algorithm "Exp3-IX-CA") walks from the root down to the drawn arm, and then repairs the sums
# above the one weight that changes; tree [L, 2 leaves]. The exact state is the cumulative losses in float64.


@exact
def _build_drawn(losses, eta, copies, inputs, workspace):
    tree, weights, _, _, _, _, _ = workspace
    arms, leaves = losses.shape[1], tree.shape[1] // 2
    for c in range(losses.shape[0]):
        minimum = losses[c, 0]
        for k in range(arms):
            minimum = min(minimum, losses[c, k])
        weigh(losses[c], weights, eta * copies.eta_scale[c], minimum)
        for k in range(arms):
            tree[c, leaves + k] = weights[k]
        for node in range(leaves - 1, 0, -1):
            tree[c, node] = tree[c, 2 * node] + tree[c, 2 * node + 1]


@exact
def _descend(tree, node, start, target):
    """Go down one level: to the right child if the cumulative weight before it is at most the target."""
    for c in range(node.size):
        left_child = 2 * node[c]
        middle = start[c] + np.float64(tree[c, left_child])
        is_right = middle <= target[c]
        start[c] = middle if is_right else start[c]
        node[c] = left_child + is_right


@exact
def _update_drawn(tree, arm, factor):
    """Multiply the weights of the drawn arms, and compute the sums above them anew."""
    for c in range(arm.size):
        node = tree.shape[1] // 2 + arm[c]
        tree[c, node] *= factor[c]
        s = tree[c, node]
        while node > 1:
            s += tree[c, node ^ 1]
            node >>= 1
            tree[c, node] = s


def _compile_drawn(rule: Drawn) -> Loop:
    charge = compile_with_helpers(rule.charge)

    @compiled
    def step(is_full, arm, cut, tree, error, eta, gamma, copies, factor, charged, answered):
        leaves = tree.shape[1] // 2
        for c in range(arm.size):
            p = np.float64(tree[c, leaves + arm[c]]) / np.float64(tree[c, 1])
            answers = arm[c] < cut[c]
            params = rule_params(copies, c, eta, gamma)
            charged[c] = charge(where, p, answers, error[c] if answers or is_full else 0.0, params)
            factor[c] = exp(-params.eta * charged[c])
            answered[c] = answers

    @compiled
    def advance_block(first, count, period, losses, cut, error, u, eta, gamma, copies, inputs, workspace, answered):
        tree, _, arm, target, start, factor, charged = workspace
        leaves = tree.shape[1] // 2
        for i in range(count):
            if (first + i) % period == 0:
                _build_drawn(losses, eta, copies, inputs, workspace)
            for c in range(arm.size):
                target[c] = u[i, c] * np.float64(tree[c, 1])
                start[c], arm[c] = 0.0, 1
            while arm[0] < leaves:
                _descend(tree, arm, start, target)
            for c in range(arm.size):
                # rounding can leave the last cumulative weight at or below the target
                arm[c] = min(arm[c] - leaves, losses.shape[1] - 1)
            step(inputs[0], arm, cut[i], tree, error[i], eta, gamma, copies, factor, charged, answered[i])
            _update_drawn(tree, arm, factor)
            for c in range(arm.size):
                losses[c, arm[c]] += charged[c]

    return Loop(compile_loop(advance_block), _drawn_workspace)


def _drawn_workspace(arms: int, count: int, precision: str) -> tuple[Any, ...]:
    leaves, _ = tree_sizes(arms)
    return (
        np.zeros((count, 2 * leaves + 8), precision)[:, : 2 * leaves],  # tree
        np.zeros(arms, precision),  # weights
        np.zeros(count, np.int64),  # arm
        *(np.zeros(count) for _ in range(4)),  # target, start, factor, charged
    )


def make_drawn(learner: Learner[Drawn], precision: str) -> NativeBackend:
    """Return the backend of a learner with a ``Drawn`` rule, as ``DrawnLearner``; its state is losses [B, H]."""
    inputs = (learner.feedback == "full",)
    return NativeBackend(no_losses, partial(simulate_tiles, [_compile_drawn(learner.rule)], precision, inputs))
