"""Simulate ``Drawn`` rules, which charge only the drawn arm (``exp3-ix``), with the tree of ``tree.py``.

A round (Algorithm "Exp3-IX-CA") walks from the root down to the drawn arm, and then repairs the sums above the one
weight that changes. The exact state is the cumulative losses in float64.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from exaul.kernels.game import ROUNDS, Parameters
from exaul.kernels.learners.learner import Drawn, Learner
from exaul.kernels.native.backend import (
    NativeBackend,
    add_round,
    keep_sums,
    load_sums,
    make_backend,
    store_sums,
    tree_sizes,
)
from exaul.kernels.native.compile import compile_with_helpers, disjoint, exact, exp, outermost, where
from exaul.kernels.native.tree import weigh


@exact
def _plant(tree, losses, numbers, eta, scale, weights):
    arms, leaves = losses.shape[1], tree.shape[1] // 2
    for c in range(numbers.size):
        least = losses[numbers[c], 0]
        for k in range(arms):
            least = min(least, losses[numbers[c], k])
        weigh(losses[numbers[c]], weights, eta * scale[numbers[c]], least)
        for k in range(arms):
            tree[c, leaves + k] = weights[k]
        for node in range(leaves - 1, 0, -1):
            tree[c, node] = tree[c, 2 * node] + tree[c, 2 * node + 1]


@exact
def _descend(tree, node, before, target):
    """Go down one level: to the right child if the cumulative weight before it is at most the target."""
    for c in range(node.size):
        left = 2 * node[c]
        after = before[c] + np.float64(tree[c, left])
        is_right = after <= target[c]
        before[c] = after if is_right else before[c]
        node[c] = left + is_right


@exact
def _repair(tree, arm, factor, leaves, depth):
    """Multiply the weights of the drawn arms, and sum anew above them."""
    for c in range(arm.size):
        node = leaves + arm[c]
        tree[c, node] *= factor[c]
        s = tree[c, node]
        for _ in range(depth):
            s += tree[c, node ^ 1]
            node >>= 1
            tree[c, node] = s


def _compile(rule: Drawn) -> Callable[..., Any]:
    """Return the loop over the rounds of a tile."""
    charge = compile_with_helpers(rule.charge)

    @disjoint
    def step(
        arm,
        cut,
        tree,
        error,
        eta,
        gamma,
        copies,
        numbers,
        factor,
        charged,
        answered,
    ):
        leaves = tree.shape[1] // 2
        for c in range(numbers.size):
            n, total = numbers[c], np.float64(tree[c, 1])
            p = np.float64(tree[c, leaves + arm[c]]) / total
            yes = arm[c] < cut[c]
            rate, costs = eta * copies.eta_scale[n], (copies.answer_cost[n], copies.abstain_cost[n])
            mine = Parameters(rate, gamma * copies.gamma_scale[n], copies.alpha[n], costs[0], costs[1], 1.0)
            charged[c] = charge(where, p, yes, error[c] if yes else 0.0, mine)
            factor[c] = exp(-rate * charged[c])
            answered[c] = yes

    @partial(outermost, compiler=disjoint)
    def simulate(numbers, losses, records, rates, copies, tally, every, sizes, workspace):
        cuts, errors, uniforms, rounds = records
        tree, weights, numbers_of, flags, places = workspace
        target, before, error, factor, charged, wrong = numbers_of
        answered, totals = flags
        cut, arm = places
        leaves, depth = sizes
        many, arms = numbers.size, losses.shape[1]
        load_sums(numbers, tally, totals, wrong)
        for i in range(rounds):
            block = i // ROUNDS
            if i % every[block] == 0:
                _plant(tree, losses, numbers, rates.eta[block], copies.eta_scale, weights)
            for c in range(many):
                stream = copies.record_stream[numbers[c]]
                cut[c], error[c] = cuts[stream, i], errors[stream, i]
                target[c] = uniforms[i, copies.draw_stream[numbers[c]]] * np.float64(tree[c, 1])
                before[c], arm[c] = 0.0, 1
            for _ in range(depth):
                _descend(tree, arm, before, target)
            for c in range(many):
                # rounding can leave the last cumulative weight at or below the target
                arm[c] = min(arm[c] - leaves, arms - 1)
            step(
                *(
                    arm,
                    cut,
                    tree,
                    error,
                    rates.eta[block],
                    rates.gamma[block],
                    copies,
                    numbers,
                ),
                *(factor, charged, answered),
            )
            _repair(tree, arm, factor, leaves, depth)
            for c in range(many):
                losses[numbers[c], arm[c]] += charged[c]
            add_round(answered, error, totals, wrong)
            keep_sums(i - block * ROUNDS, block, numbers, tally, totals, wrong)
        store_sums(numbers, tally, totals, wrong)

    return simulate


def _arrays(arms: int, many: int, precision: str) -> tuple[Any, ...]:
    leaves, _ = tree_sizes(arms)
    return (
        np.zeros((many, 2 * leaves + 8), precision)[:, : 2 * leaves],
        np.zeros(arms, precision),
        tuple(np.zeros(many) for _ in range(6)),
        (np.zeros(many, np.bool_), np.zeros(many, np.int64)),
        (np.zeros(many, np.int64), np.zeros(many, np.int64)),
    )


def make(learner: Learner[Drawn], precision: str) -> NativeBackend:
    """Return the backend of a learner with a ``Drawn`` rule, as ``DrawnGame``.

    ``precision`` is the dtype of the weights and their sums; the state is the cumulative losses, [B, H] float64.
    """
    return make_backend([(_compile(learner.rule), _arrays)], precision, lambda arms: ())
