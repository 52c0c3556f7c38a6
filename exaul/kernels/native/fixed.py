"""Count what ``Fixed`` rules answer, which use one arm in every round: the comparators of the paper."""

from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.game import Copies, Outcome, Rates, Start
from exaul.kernels.learners.learner import Fixed, Learner
from exaul.kernels.native.backend import NativeBackend
from exaul.kernels.native.compile import outermost
from exaul.kernels.native.rounds import RecordBlocks
from exaul.kernels.native.tally import CheckpointSums, keep_one
from exaul.kernels.native.threads import run_in_parts
from exaul.kernels.native.tree import outcome_arrays

PART = 32  # copies of a task for one thread


@outermost
def _count(first, last, arms, cuts, errors, rounds, record, tally, out):
    """Count the answers of the copies first..last-1, and sum their errors, in the order of rounds."""
    for b in range(first, last):
        count, wrong = tally.answered[b], tally.wrong[b]
        for i in range(rounds):
            yes = arms[b] < cuts[record[b], i]  # an arm answers if it is below the cut
            count += 1 if yes else 0
            wrong += errors[record[b], i] if yes else 0.0
            keep_one(i, b, tally, count, wrong)
            if out.answered.size:
                out.answered[i, b], out.probability[i, b] = yes, 1.0 if yes else 0.0
        tally.answered[b], tally.wrong[b] = count, wrong


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
        given = (
            state,
            rounds.cuts,
            rounds.errors,
            rounds.rounds,
            copies.record_stream,
            tally,
            outcome_arrays(outcome),
        )
        return run_in_parts(len(state), PART, lambda first, last: _count(first, last, *given))

    def init(arms: int, start: Start, streams: int) -> NDArray[np.int32]:
        return np.array(start.arm)

    return NativeBackend(init, simulate)
