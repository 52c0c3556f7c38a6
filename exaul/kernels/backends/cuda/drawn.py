"""Learners that charge the arm they drew (``exp3-ix``).

The state of a copy are the cumulative losses L, and a number r by which the weights ``exp(eta (r - L_k))`` sum to 1
at the beginning of a block. Within a block the weights stand in rows of 32 arms with their sums: a round walks down
the sums, then along one row, and changes one weight (Algorithm "Exp3-IX-CA").
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.cuda.copies import RuleKernel, StepKernel, WorkspaceSizes, repeat_state
from exaul.kernels.backends.cuda.target import Target, make_where
from exaul.kernels.backends.rules import compile_with_helpers
from exaul.kernels.game import Parameters
from exaul.kernels.learners.learner import Drawn, Learner

ROW, READ = 32, 8  # arms of a row; of those that a lane alone reads at a time, which divide it


def _loop(rule: Drawn, target: Target, outcomes: bool) -> StepKernel:
    compiled, real, number = target.compiled, target.real, target.number
    exp, log, add = target.exp, target.log, target.add
    lanes, lane, sum_over, both, scan, pick, count, sync = target.team
    where, charge = make_where(compiled), compile_with_helpers(compiled, rule.charge)

    @compiled
    def summed(weights, first, last):
        """The sum of some weights, over all lanes."""
        total = number(0.0)
        for k in range(first + lane(), last, lanes):
            total += weights[k]
        return sum_over(total)

    @compiled
    def walk_alone(weights, first, last, below, goal):
        """``walk`` of a lane alone, which reads eight weights before it waits for one."""
        at, up_to = first, below
        for k in range(first, last, READ):
            many = 0
            w = weights[k : k + READ]
            read = w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]
            for j in range(READ):
                up_to += real(read[j])
                if k + j < last - 1 and up_to <= goal:
                    many += 1
                    below = up_to
            at += many
            if many < READ:
                break
        return at, below

    @compiled
    def walk(weights, first, last, below, goal):
        """The item at which the running sum of weights passes a goal, at most the last, and the sum below it."""
        if lanes == 1:
            return walk_alone(weights, first, last, below, goal)
        at = first
        for k0 in range(first, last, lanes):
            k = k0 + lane()
            up_to = below + real(scan(weights[k] if k < last else number(0.0)))
            passed = count(k < last - 1 and up_to <= goal)
            reached = pick(up_to, lanes - 1)
            if passed < lanes:
                before = pick(up_to, max(passed - 1, 0))
                return k0 + passed, before if passed > 0 else below
            at, below = k0 + passed, reached
        return at, below

    @compiled
    def begin(own, arms, workspace, rounds, eta):
        rows, weights = (arms + (ROW - 1)) // ROW, workspace.wide_sums
        at = rows * ROW  # where the sums of rows are
        r = own[arms]
        for row in range(lane(), rows, lanes):
            total = number(0.0)
            for k in range(row * ROW, row * ROW + ROW):
                weight = number(exp(eta * (r - own[k]))) if k < arms else number(0.0)
                weights[k] = weight
                total += weight
            weights[at + row] = total
        for row in range(rows + lane(), -(-rows // READ) * READ, lanes):
            weights[at + row] = number(0.0)
        sync()
        return rows, real(summed(weights, at, at + rows))

    @compiled
    def step(own, arms, workspace, i, rounds, u, carry, parameters):
        rows, total = carry
        weights, cut, at = workspace.wide_sums, workspace.cuts[i], rows * ROW
        row, below = walk(weights, at, at + rows, 0.0, u * total)
        row -= at
        arm, below = walk(weights, row * ROW, min(row * ROW + ROW, arms), below, u * total)
        P, middle = 0.0, 0.0
        p = real(weights[arm]) / total
        if outcomes:
            mass = real(summed(weights, at, at + cut // ROW)) + real(summed(weights, cut // ROW * ROW, cut))
            P, middle = mass / total, below / total + p / 2
        answers = arm < cut
        charged = charge(where, p, answers, workspace.errors[i] if answers else 0.0, parameters)
        sync()  # all have read the weight
        if lane() == 0:
            add(own, arm, charged)
            weights[arm] *= number(exp(-parameters.eta * charged))
        sync()
        of_row, others = number(0.0), number(0.0)
        for k in range(row * ROW + lane(), row * ROW + ROW, lanes):
            of_row += weights[k]
        for other in range(lane(), rows, lanes):
            others += weights[at + other] if other != row else number(0.0)
        of_row, others = both(of_row, others)
        if lane() == 0:
            weights[at + row] = of_row
        sync()
        return (rows, real(others + of_row)), answers, P, middle

    @compiled
    def end(own, arms, workspace, rounds, eta, carry):
        _, total = carry
        if lane() == 0:
            own[arms] -= log(total) / eta
        sync()

    return StepKernel(begin, step, end)


def kind(learner: Learner[Drawn]) -> RuleKernel:
    """Describe how a ``Drawn`` rule is played, as ``dense.drawn`` (Algorithm "Exp3-IX-CA").

    Args:
        learner: its rule is a ``Drawn``.

    Returns:
        The kind, whose state is [H + 1] for each copy.
    """

    def sizes(lanes: int) -> WorkspaceSizes:
        return WorkspaceSizes(wide_sums=lambda arms: -(-arms // ROW) * (ROW + 1) + READ)

    def start(arms: int, best: NDArray[np.int32]) -> NDArray[np.float64]:
        return repeat_state(np.zeros(arms + 1), len(best))

    def dense_state(state: Any, parameters: Parameters) -> Any:
        return state[:-1]

    return RuleKernel(
        lambda target, outcomes: _loop(learner.rule, target, outcomes),
        sizes,
        start,
        middles=True,
        dense_state=dense_state,
    )
