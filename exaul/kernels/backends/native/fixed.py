"""Simulate ``Fixed`` rules, which always use one arm: the comparators, and line "answer iff tau <= f"."""

from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.native.backend import NativeBackend
from exaul.kernels.backends.native.compile import outermost
from exaul.kernels.backends.native.rounds import RecordBlocks
from exaul.kernels.backends.native.tally import CheckpointSums
from exaul.kernels.backends.native.threads import outcome_arrays, run_in_parts
from exaul.kernels.game import ROUNDS, Copies, Outcome, Rates
from exaul.kernels.learners.learner import Fixed, Learner

PART = 16  # copies of a task for one thread


@outermost
def _simulate_copies(first, last, arm, records, record, tally, out):
    """Simulate the copies first..last-1 one by one, with the sums of ``add_block`` kept in registers."""
    cuts, errors, rounds = records
    o0, answered, probability = out
    checkpoint_rounds, totals, sums, checkpoint_answered, checkpoint_wrong = tally
    for b in range(first, last):
        count, wrong, own, r = totals[b], sums[b], arm[b], record[b]
        for block in range(checkpoint_rounds.shape[0]):
            start = block * ROUNDS
            for i in range(start, min(start + ROUNDS, rounds)):
                yes = own < cuts[r, i]
                count += yes
                wrong += errors[r, i] if yes else 0.0
                if probability.shape[0] > 1:  # else the outcome is not wanted, and has one row
                    answered[i, o0 + b - first] = yes
                    probability[i, o0 + b - first] = 1.0 if yes else 0.0
                for s in range(checkpoint_rounds.shape[1]):
                    if checkpoint_rounds[block, s] == i - start + 1:
                        checkpoint_answered[block, s, b], checkpoint_wrong[block, s, b] = count, wrong
        totals[b], sums[b] = count, wrong


def make(learner: Learner[Fixed], precision: str) -> NativeBackend:
    """Return the backend of a ``Fixed`` rule, as ``dense.fixed``; the state is the arms [B] int32."""

    def simulate(
        arm: Any,
        rounds: RecordBlocks,
        rates: Rates,
        copies: Copies,
        tally: CheckpointSums,
        outcome: Outcome | None = None,
    ) -> list[Future[Any]]:
        records = rounds.cuts, rounds.errors, rounds.rounds

        def simulate_part(first: int, last: int) -> None:
            _simulate_copies(
                first, last, arm, records, copies.record_stream, tally, outcome_arrays(outcome, first, PART, 1)
            )

        return run_in_parts(len(arm), PART, simulate_part)

    def init(arms: int, best: NDArray[np.int32], streams: int) -> NDArray[np.int32]:
        return np.array(np.broadcast_to(learner.rule.arm(arms, best), best.shape), np.int32)

    return NativeBackend(init, simulate)
