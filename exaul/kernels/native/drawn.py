"""Simulate ``Drawn`` rules, which charge only the drawn arm (``exp3-ix``), with the tree of ``tree.py``.

A round (Algorithm "Exp3-IX-CA") walks from the root down to the drawn arm, and then repairs the sums above the one
weight that changes. The exact state is the cumulative losses in float64.
"""

from functools import partial
from typing import Any

import numpy as np

from exaul.kernels.learners.learner import Drawn, Learner
from exaul.kernels.native.backend import (
    Loop,
    NativeBackend,
    compile_loop,
    no_losses,
    parameters_of,
    simulate_tiles,
    tree_sizes,
)
from exaul.kernels.native.compile import compile_with_helpers, disjoint, exact, exp, where
from exaul.kernels.native.tree import weigh


@exact
def _plant(losses, eta, copies, given, arrays):
    tree, weights, _, _, _, _, _ = arrays
    arms, leaves = losses.shape[1], tree.shape[1] // 2
    for c in range(losses.shape[0]):
        least = losses[c, 0]
        for k in range(arms):
            least = min(least, losses[c, k])
        weigh(losses[c], weights, eta * copies.eta_scale[c], least)
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
def _repair(tree, arm, factor):
    """Multiply the weights of the drawn arms, and sum anew above them."""
    for c in range(arm.size):
        node = tree.shape[1] // 2 + arm[c]
        tree[c, node] *= factor[c]
        s = tree[c, node]
        while node > 1:
            s += tree[c, node ^ 1]
            node >>= 1
            tree[c, node] = s


def _compile(rule: Drawn) -> Loop:
    charge = compile_with_helpers(rule.charge)

    @disjoint
    def step(arm, cut, tree, error, eta, gamma, copies, factor, charged, answered):
        leaves = tree.shape[1] // 2
        for c in range(arm.size):
            p = np.float64(tree[c, leaves + arm[c]]) / np.float64(tree[c, 1])
            yes = arm[c] < cut[c]
            mine = parameters_of(copies, c, eta, gamma)
            charged[c] = charge(where, p, yes, error[c] if yes else 0.0, mine)
            factor[c] = exp(-mine.eta * charged[c])
            answered[c] = yes

    @disjoint
    def simulate_block(first, count, every, losses, cut, error, u, eta, gamma, copies, given, arrays, answered):
        tree, _, arm, target, before, factor, charged = arrays
        leaves = tree.shape[1] // 2
        for i in range(count):
            if (first + i) % every == 0:
                _plant(losses, eta, copies, given, arrays)
            for c in range(arm.size):
                target[c] = u[i, c] * np.float64(tree[c, 1])
                before[c], arm[c] = 0.0, 1
            while arm[0] < leaves:
                _descend(tree, arm, before, target)
            for c in range(arm.size):
                # rounding can leave the last cumulative weight at or below the target
                arm[c] = min(arm[c] - leaves, losses.shape[1] - 1)
            step(arm, cut[i], tree, error[i], eta, gamma, copies, factor, charged, answered[i])
            _repair(tree, arm, factor)
            for c in range(arm.size):
                losses[c, arm[c]] += charged[c]

    return Loop(compile_loop(simulate_block), _arrays)


def _arrays(arms: int, many: int, precision: str) -> tuple[Any, ...]:
    leaves, _ = tree_sizes(arms)
    return (
        np.zeros((many, 2 * leaves + 8), precision)[:, : 2 * leaves],
        np.zeros(arms, precision),
        np.zeros(many, np.int64),
        *(np.zeros(many) for _ in range(4)),
    )


def make(learner: Learner[Drawn], precision: str) -> NativeBackend:
    """Return the backend of a learner with a ``Drawn`` rule, as ``DrawnGame``.

    ``precision`` is the dtype of the weights and their sums; the state is the cumulative losses, [B, H] float64.
    """
    return NativeBackend(no_losses, partial(simulate_tiles, [_compile(learner.rule)], precision, ()))
