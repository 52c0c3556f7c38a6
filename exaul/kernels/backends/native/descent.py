"""Simulate ``Descent`` rules, which move one threshold by gradient steps (``threshold``, and the comparators).

This is projected online gradient descent (Zinkevich, "Online convex programming and generalized infinitesimal
gradient ascent", 2003). Decisions need no uniforms, so the probability of answering is 0 or 1.
"""

from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.native.arithmetic import where
from exaul.kernels.backends.native.backend import LANES, NativeBackend
from exaul.kernels.backends.native.compile import compiled, outermost
from exaul.kernels.backends.native.rounds import RecordBlocks
from exaul.kernels.backends.native.tally import CheckpointSums
from exaul.kernels.backends.native.threads import run_copies
from exaul.kernels.backends.rules import compile_with_helpers
from exaul.kernels.game import ROUNDS, TIE, Copies, Outcome, Parameters, Rates
from exaul.kernels.learners.learner import Descent, Learner


@cache  # the comparators share a gradient
def _compile(gradient_of_rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return the loop over the rounds of the copies first..last-1, at most ``LANES`` of them, side by side."""
    gradient = compile_with_helpers(compiled, gradient_of_rule)

    @outermost
    def simulate(first, last, state, records, rates, copies, tally, out):
        cuts, errors, rounds = records
        etas, gammas = rates
        alpha, answer_cost, abstain_cost, record, _ = copies
        o0, answered, probability = out
        checkpoint_rounds, totals, sums, checkpoint_answered, checkpoint_wrong = tally
        lanes = last - first
        # All float64, counts included (exact below 2**53): with one type for all lanes the loops vectorise, and
        # keeping the sums here instead of in ``add_block`` is several times as fast.
        z, cut, e, answers, count, wrong = np.empty((6, LANES))
        z[:lanes], count[:lanes], wrong[:lanes] = state[0, first:last], totals[first:last], sums[first:last]
        for i in range(rounds):
            block = i // ROUNDS
            eta, gamma = etas[block], gammas[block]
            for lane in range(lanes):
                # Gathers have a loop of their own, so that the arithmetic below vectorises.
                cut[lane] = cuts[record[first + lane], i]
                e[lane] = errors[record[first + lane], i]
            for lane in range(lanes):
                b = first + lane
                # TIE: a z that is below the cut by rounding alone counts as equal to it, on every backend.
                yes = z[lane] + TIE < cut[lane]
                own = Parameters(eta, gamma, alpha[b], answer_cost[b], abstain_cost[b])
                # z <- max(0, z - eta gradient), Zinkevich's projected step.
                z[lane] = max(z[lane] - eta * gradient(where, yes, e[lane], state[1, b], own), 0.0)
                answers[lane] = 1.0 if yes else 0.0
                count[lane] += answers[lane]
                wrong[lane] += e[lane] if yes else 0.0
            if probability.shape[0] > 1:  # else the outcome is not wanted, and has one row
                for lane in range(lanes):
                    answered[i, o0 + lane] = answers[lane] > 0.0
                    probability[i, o0 + lane] = answers[lane]
            # A checkpoint inside a block copies the sums after its first rounds.
            for s in range(checkpoint_rounds.shape[1]):
                if checkpoint_rounds[block, s] == i - block * ROUNDS + 1:
                    checkpoint_answered[block, s, first:last] = count[:lanes].astype(np.int64)
                    checkpoint_wrong[block, s, first:last] = wrong[:lanes]
        state[0, first:last], sums[first:last] = z[:lanes], wrong[:lanes]
        totals[first:last] = count[:lanes].astype(np.int64)

    return simulate


def make(learner: Learner[Descent], precision: str) -> NativeBackend:
    """Return the backend of a learner with a ``Descent`` rule, as ``dense.descent``.

    ``precision`` is ignored: the state is [2, B] float64, the thresholds z in units of arms and then H.
    """
    loop = _compile(learner.rule.gradient)

    def simulate(
        state: Any,
        rounds: RecordBlocks,
        rates: Rates,
        copies: Copies,
        tally: CheckpointSums,
        outcome: Outcome | None = None,
    ) -> list[Future[Any]]:
        records = rounds.cuts, rounds.errors, rounds.rounds  # without uniforms, which take time to draw
        return run_copies(loop, state.shape[1], LANES, (state, records, rates, copies, tally), outcome)

    def init(arms: int, best: NDArray[np.int32], streams: int) -> NDArray[np.float64]:
        state = np.full((2, len(best)), float(arms))
        state[0] = learner.rule.start(arms, best)
        return state

    return NativeBackend(init, simulate)
