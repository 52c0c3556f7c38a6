"""Count what ``Fixed`` rules answer, which use one arm in every round: the comparators of the paper."""

from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.native.backend import NativeBackend
from exaul.kernels.backends.native.compile import outermost
from exaul.kernels.backends.native.rounds import RecordBlocks
from exaul.kernels.backends.native.tally import CheckpointSums
from exaul.kernels.backends.native.threads import run_copies
from exaul.kernels.game import ROUNDS, Copies, Outcome, Rates, Start
from exaul.kernels.learners.learner import Fixed, Learner

PART = 32  # copies of a task for one thread


@outermost
def _count(first, last, arms, cuts, errors, rounds, record, tally, out):
    """Count the answers of the copies first..last-1, and sum their errors, in the order of rounds."""
    o0, answered, probability = out
    checkpoint_rounds, totals, sums, checkpoint_answered, checkpoint_wrong = tally
    for b in range(first, last):
        o, count, wrong = o0 + b - first, totals[b], sums[b]
        for i in range(rounds):
            yes = arms[b] < cuts[record[b], i]  # an arm answers if it is below the cut
            count += 1 if yes else 0
            wrong += errors[record[b], i] if yes else 0.0
            if probability.shape[0] > 1:  # else the outcome is not wanted, and has one row
                answered[i, o], probability[i, o] = yes, 1.0 if yes else 0.0
            for s in range(checkpoint_rounds.shape[1]):
                if checkpoint_rounds[i // ROUNDS, s] == i % ROUNDS + 1:
                    checkpoint_answered[i // ROUNDS, s, b], checkpoint_wrong[i // ROUNDS, s, b] = count, wrong
        totals[b], sums[b] = count, wrong


def make(learner: Learner[Fixed], precision: str) -> NativeBackend:
    """Return the backend of a learner with a ``Fixed`` rule, as ``dense.fixed``.

    ``precision`` is ignored: the state is the arms [B], int32.
    """

    def simulate(
        state: Any,
        rounds: RecordBlocks,
        rates: Rates,
        copies: Copies,
        tally: CheckpointSums,
        outcome: Outcome | None = None,
    ) -> list[Future[Any]]:
        # without uniforms, which take time to draw
        arguments = state, rounds.cuts, rounds.errors, rounds.rounds, copies.record_stream, tally
        return run_copies(_count, len(state), PART, arguments, outcome)

    def init(arms: int, start: Start, streams: int) -> NDArray[np.int32]:
        return np.full(len(start.best), learner.rule.arm(arms, start.best), np.int32)

    return NativeBackend(init, simulate)
