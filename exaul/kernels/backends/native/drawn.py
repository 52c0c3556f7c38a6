"""Simulate ``Drawn`` rules, which charge only the drawn arm (``exp3-ix``).

Within a block, linear weights are stored in rows of 32 arms, with the sum of each row. A round walks along the
sums, then along one row, and changes one weight (Algorithm "Exp3-IX-CA"): O(H / 32 + 32) steps instead of O(H).
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.native.arithmetic import exp, where
from exaul.kernels.backends.native.backend import NativeBackend
from exaul.kernels.backends.native.compile import compiled, outermost
from exaul.kernels.backends.native.rounds import RecordBlocks
from exaul.kernels.backends.native.tally import CheckpointSums, add_block
from exaul.kernels.backends.native.threads import run_copies
from exaul.kernels.backends.rules import compile_with_helpers
from exaul.kernels.game import LARGEST_STEP, ROUNDS, Copies, Outcome, Parameters, Rates, Start
from exaul.kernels.learners.learner import Drawn, Learner

ROW = 32  # arms of a row
PART = 16  # copies of a task for one thread


@compiled
def _sum_row(weights, sums, row):
    # Summed anew in the order of arms: subtracting the change would accumulate rounding errors.
    total = weights[0] * 0
    for k in range(row * ROW, row * ROW + ROW):
        total += weights[k]
    sums[row] = total


def _compile(rule: Drawn) -> Callable[..., Any]:
    """Return the loop over the rounds of the copies first..last-1, one copy after the other."""
    charge = compile_with_helpers(compiled, rule.charge)

    @outermost
    def simulate(first, last, losses, records, rates, copies, tally, out, scratch):
        cuts, errors, uniforms, rounds = records
        etas, gammas = rates
        alpha, answer_cost, abstain_cost, record, draw = copies
        o0, answered, probability, middle = out
        weights, sums = scratch
        arms = losses.shape[1]
        for b in range(first, last):
            o = o0 + b - first
            for i in range(rounds):
                eta, gamma = etas[i // ROUNDS], gammas[i // ROUNDS]
                if i % ROUNDS == 0:
                    # Once per block: w_k = exp(-eta (L_k - min L)), so the largest weight is 1. LARGEST_STEP limits
                    # eta x 256 rounds, so that linear weights do not underflow before they are computed anew.
                    least = losses[b, 0]
                    for k in range(arms):
                        least = min(least, losses[b, k])
                    for k in range(arms):
                        weights[k] = exp(eta * (least - losses[b, k]))
                    for row in range(sums.size):
                        _sum_row(weights, sums, row)
                # A zero of the weights' dtype: starting from 0.0 would sum float32 weights in float64.
                total = sums[0] * 0
                for row in range(sums.size):
                    total += sums[row]
                target = uniforms[i, draw[b]] * total
                # The drawn arm is the first whose cumulative weight exceeds u * total. Rounding can leave the last
                # cumulative weight at or below the target, so both walks stop at the last row and the last arm.
                row, below = 0, np.float64(0.0)
                while row < sums.size - 1 and below + sums[row] <= target:
                    below += sums[row]
                    row += 1
                arm, end = row * ROW, min(row * ROW + ROW, arms) - 1
                while arm < end and below + weights[arm] <= target:
                    below += weights[arm]
                    arm += 1
                cut = cuts[record[b], i]
                # P, the mass below the cut, must be summed before this round's charge changes a weight.
                mass = np.float64(0.0)
                for above in range(cut // ROW):
                    mass += sums[above]
                for k in range(cut // ROW * ROW, cut):
                    mass += weights[k]
                p = np.float64(weights[arm]) / total
                yes = arm < cut
                error = errors[record[b], i] if yes else 0.0
                mine = Parameters(eta, gamma, alpha[b], answer_cost[b], abstain_cost[b], 1.0)
                charged = charge(where, p, yes, error, mine)
                answered[i % answered.shape[0], o] = yes
                probability[i % probability.shape[0], o] = mass / total
                # The middle of the uniforms that draw this arm: another backend that gets it repeats the draw,
                # whatever its rounding.
                middle[i % middle.shape[0], o] = below / total + p / 2
                # Only the drawn arm is charged. Its loss is kept in float64; the weight is the same update in
                # linear form.
                losses[b, arm] += charged
                weights[arm] *= exp(-eta * charged)
                _sum_row(weights, sums, row)
                if i % ROUNDS == ROUNDS - 1 or i == rounds - 1:
                    start = i // ROUNDS * ROUNDS
                    add_block(answered, errors, start, i + 1, i // ROUNDS, tally, o, b, record[b : b + 1])

    return simulate


def _row_arrays(arms: int, precision: str) -> tuple[Any, ...]:
    """Allocate weights in whole rows, with zeros beyond the last arm, and the sums of rows."""
    rows = -(-arms // ROW)
    return np.zeros(rows * ROW, precision), np.zeros(rows, precision)


def make(learner: Learner[Drawn], precision: str) -> NativeBackend:
    """Return the backend of a learner with a ``Drawn`` rule, as ``dense.drawn``.

    ``precision`` is the dtype of the weights and their sums; the state is the cumulative losses, [B, H] float64.
    """
    loop = _compile(learner.rule)

    def simulate(
        losses: Any,
        rounds: RecordBlocks,
        rates: Rates,
        copies: Copies,
        tally: CheckpointSums,
        outcome: Outcome | None = None,
    ) -> list[Future[Any]]:
        count, arms = losses.shape
        arguments = losses, rounds.arrays, rates, copies, tally
        return run_copies(loop, count, PART, arguments, outcome, 2, (_row_arrays, arms, precision))

    def init(arms: int, start: Start, streams: int) -> NDArray[np.float64]:
        return np.zeros((len(start.best), arms))

    return NativeBackend(
        init,
        simulate,
        middles=True,
        dense_state=lambda state, _: np.array(state.T),
        largest_step=LARGEST_STEP[precision],
    )
