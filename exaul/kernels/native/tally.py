"""Sums over rounds: how often copies answered, and the errors of their answers.

The FDR (eq. 2), the FDR risk (eq. 1) and the cumulative loss (eq. 4) are computed from them.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.game import ROUNDS
from exaul.kernels.native.compile import compiled, disjoint


class CheckpointSums(NamedTuple):
    """Sums over the answered rounds of B copies, updated in place while K blocks are simulated.

    The sums so far are copied at up to S checkpoints of each block.
    """

    # [K, S], after how many rounds of a block the sums are copied; 0: never
    checkpoint_rounds: NDArray[np.int32]
    answered: NDArray[np.int64]  # [B], number of answered rounds so far
    wrong: NDArray[np.float64]  # [B], sum of the errors of answered rounds so far
    answered_at_checkpoints: NDArray[np.int64]  # [K, S, B], copies of ``answered``
    wrong_at_checkpoints: NDArray[np.float64]  # [K, S, B], copies of ``wrong``


@compiled
def keep_one(i, copy, tally, answered, wrong):
    """After round i of a chunk, from 0, copy the sums so far of one copy if it is a checkpoint."""
    block = i // ROUNDS
    for s in range(tally.checkpoint_rounds.shape[1]):
        if tally.checkpoint_rounds[block, s] == i % ROUNDS + 1:
            tally.answered_at_checkpoints[block, s, copy] = answered
            tally.wrong_at_checkpoints[block, s, copy] = wrong


@disjoint
def load_sums(numbers, tally, totals, wrong):
    """Copy the sums so far of some copies, by number [L], to ``totals`` and ``wrong`` [L]."""
    for c in range(numbers.size):
        totals[c], wrong[c] = tally.answered[numbers[c]], tally.wrong[numbers[c]]


@disjoint
def store_sums(numbers, tally, totals, wrong):
    """Undo ``load_sums``."""
    for c in range(numbers.size):
        tally.answered[numbers[c]], tally.wrong[numbers[c]] = totals[c], wrong[c]


@disjoint
def add_round(answered, error, totals, wrong):
    """Add the answers of a round and their errors to the sums of L copies."""
    for c in range(totals.size):
        totals[c] += answered[c]
        wrong[c] += error[c] if answered[c] else 0.0


@disjoint
def keep_sums(i, block, numbers, tally, totals, wrong):
    """After round i of a block, from 0, copy the sums so far if it is a checkpoint."""
    for s in range(tally.checkpoint_rounds.shape[1]):
        if tally.checkpoint_rounds[block, s] == i + 1:
            for c in range(numbers.size):
                tally.answered_at_checkpoints[block, s, numbers[c]] = totals[c]
                tally.wrong_at_checkpoints[block, s, numbers[c]] = wrong[c]
