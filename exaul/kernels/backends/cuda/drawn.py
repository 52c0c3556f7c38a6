"""Simulate ``Drawn`` rules, which charge only the drawn arm (``exp3-ix``).

The state of a copy is the cumulative losses L and a number r that keeps the weights ``exp(eta (r - L_k))`` from
underflowing together. Within a block, the weights are stored in rows of 32 arms, with the sum of each row. A
round walks along the sums, then along one row, and changes one weight (Algorithm "Exp3-IX-CA").
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.cuda.loops import RuleKernel, StepKernel, WorkspaceSizes, repeat_state, whole_blocks
from exaul.kernels.backends.cuda.target import Target, make_where
from exaul.kernels.backends.rules import compile_with_helpers
from exaul.kernels.game import Parameters, Start
from exaul.kernels.learners.learner import Drawn, Learner

ROW, READ = 32, 8  # arms of a row; weights that a single lane reads at a time, a divisor of ROW


def _loop(rule: Drawn, target: Target, outcomes: bool) -> StepKernel:
    """Return the functions of a round: draw an arm, and charge it alone (Algorithm "Exp3-IX-CA").

    The carry is the number of rows of weights, and the sum of all weights. The lanes of a copy share its weights
    and the sums of rows, in ``wide_sums``. They sum them together; in a round lane 0 alone changes them.
    """
    compiled, word, real, number = target.compiled, target.word, target.real, target.number
    exp, log, add, reciprocal = target.exp, target.log, target.add, target.reciprocal
    lanes, lane, sum_over, both, scan, pick, count, sync = target.team
    where, charge = make_where(compiled), compile_with_helpers(compiled, rule.charge)

    @compiled
    def read_many(weights, k):
        """Return READ weights from k on, whose loads do not wait for each other; arrays are padded with zeros."""
        w = weights[k : word(k + READ)]
        return w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]

    @compiled
    def part(weights, first, last, skip):
        """Sum the weights first..last-1 that are the caller's, without one of them."""
        total, k = number(0.0), word(first + lane())
        while k < last:
            if lanes == 1:
                read = read_many(weights, k)
                for j in range(READ):
                    total += read[j] if word(k + j) < last and word(k + j) != skip else number(0.0)
                k = word(k + READ)
            else:
                total += weights[k] if k != skip else number(0.0)
                k = word(k + lanes)
        return total

    @compiled
    def summed(weights, first, last):
        """Sum weights over all lanes."""
        return sum_over(part(weights, first, last, last))

    @compiled
    def walk_alone(weights, first, last, below, goal):
        """``walk`` for a single lane."""
        at, k, up_to = word(first), word(first), below
        while k < last:
            many = word(0)
            read = read_many(weights, k)
            for j in range(READ):
                up_to += real(read[j])
                # Rounding can leave the whole sum at or below the goal: the last item is never passed.
                if word(k + j + 1) < last and up_to <= goal:
                    many = word(many + 1)
                    below = up_to
            at = word(at + many)
            if many < READ:
                break
            k = word(k + READ)
        return at, below

    @compiled
    def walk(weights, first, last, below, goal):
        """Return the item at which the running sum passes a goal, at most the last, and the sum below it."""
        if lanes == 1:
            return walk_alone(weights, first, last, below, goal)
        at = word(first)
        while at < last:
            # All lanes take part in every exchange, those beyond the end with weight 0.
            k = word(at + lane())
            up_to = below + real(scan(weights[k] if k < last else number(0.0)))
            passed = count(word(k + 1) < last and up_to <= goal)
            reached = pick(up_to, lanes - 1)
            if passed < lanes:
                before = pick(up_to, max(passed - 1, 0))
                return word(at + passed), before if passed > 0 else below
            at, below = word(at + lanes), reached
        return at, below

    @compiled
    def begin(own, arms, workspace, rounds, eta):
        rows, weights = word(word(arms + (ROW - 1)) // word(ROW)), workspace.wide_sums
        at = word(rows * ROW)  # where the sums of rows are
        r = own[arms]
        for row in range(lane(), rows, lanes):
            total = number(0.0)
            for k in range(row * ROW, row * ROW + ROW):
                weight = number(exp(eta * (r - own[k]))) if k < arms else number(0.0)
                weights[k] = weight
                total += weight
            weights[at + row] = total
        # Padding for ``walk_alone``.
        for row in range(rows + lane(), -(-rows // READ) * READ, lanes):
            weights[at + row] = number(0.0)
        sync()
        return rows, real(summed(weights, at, word(at + rows)))

    @compiled
    def step(own, arms, workspace, i, cut, u, e, carry, parameters):
        rows, total = carry
        weights, at = workspace.wide_sums, word(rows * ROW)
        row, below = walk(weights, at, word(at + rows), 0.0, u * total)
        row = word(row - at)
        first = word(row * ROW)
        arm, below = walk(weights, first, word(min(word(first + ROW), word(arms))), below, u * total)
        P, middle = 0.0, 0.0
        p = real(weights[arm]) * reciprocal(total)
        # P needs a sum over all rows below the cut, which the decision itself does not need.
        if outcomes:
            mass = real(summed(weights, at, at + cut // ROW)) + real(summed(weights, cut // ROW * ROW, cut))
            P, middle = mass / total, below / total + p / 2
        answers = arm < cut
        charged = charge(where, p, answers, e if answers else 0.0, parameters)
        sync()  # all lanes have read the weight that lane 0 changes now
        if lane() == 0:
            add(own, arm, charged)
            weights[arm] *= number(exp(-parameters.eta * charged))
        sync()
        # Sum the row and the rows anew: subtracting the change would accumulate rounding errors. ``others`` skips
        # this row, whose stored sum is out of date until lane 0 writes it.
        of_row, others = (
            part(weights, first, word(first + ROW), at),
            part(weights, at, word(at + rows), word(at + row)),
        )
        of_row, others = both(of_row, others, lanes)
        if lane() == 0:
            weights[word(at + row)] = of_row
        sync()
        return (rows, real(others + of_row)), answers, P, middle

    @compiled
    def end(own, arms, workspace, rounds, eta, carry):
        _, total = carry
        if lane() == 0:
            # Choose r so that the weights, at this eta, sum to 1.
            own[arms] -= log(total) / eta
        sync()

    return whole_blocks(compiled, begin, step, end)


def kind(learner: Learner[Drawn]) -> RuleKernel:
    """Describe how a ``Drawn`` rule is simulated, as ``dense.drawn``; the state of a copy is L and r, [H + 1]."""

    def sizes(lanes: int) -> WorkspaceSizes:
        return WorkspaceSizes(wide_sums=lambda arms: -(-arms // ROW) * (ROW + 1) + READ)

    def first(arms: int, start: Start) -> NDArray[np.float64]:
        return repeat_state(np.zeros(arms + 1), len(start.best))

    def dense_state(state: Any, parameters: Parameters) -> Any:
        return state[:-1]

    return RuleKernel(
        lambda target, outcomes: _loop(learner.rule, target, outcomes),
        sizes,
        first,
        middles=True,
        dense_state=dense_state,
    )
