"""The arm of least loss of every stream in hindsight (eq. 3), and what fixed arms answer."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.game import Start
from exaul.kernels.learners.learner import Fixed, Learner
from exaul.kernels.native.backend import Loop, NativeBackend, compile_loop, simulate_tiles
from exaul.kernels.native.compile import disjoint, outermost
from exaul.kernels.native.threads import run_in_parts

PART = 32  # streams of a task for one thread (chosen)


@outermost
def _count_cuts(first, last, cuts, errors, ends, checkpoint_count, costs, counts, wrong, losses, best):
    """Count the streams first..last-1 up to each end, and find their best arms at each checkpoint."""
    arms = counts.shape[1]
    missed, abstained = np.empty(arms), np.empty(arms)
    for r in range(first, last):
        done = 0
        for m in range(ends.size):
            for i in range(done, ends[m]):
                counts[r, cuts[r, i]] += 1
                wrong[r, cuts[r, i]] += errors[r, i]
            done = ends[m]
            if m >= checkpoint_count:
                continue
            above, below = 0.0, 0.0
            for k in range(arms):
                # One pass fills both sums: of errors from the top arm down, of abstentions from the bottom up.
                missed[arms - 1 - k] = above
                above += wrong[r, arms - 1 - k]
                below += counts[r, k]
                abstained[k] = below
            for cell in range(losses.shape[1]):
                least, arm = np.inf, 0
                for k in range(arms):
                    loss = costs[0][cell] * missed[k] + costs[1][cell] * abstained[k]
                    # Strictly less, so that the lowest arm wins a tie.
                    if loss < least:
                        least, arm = loss, k
                losses[m, cell, r], best[m, cell, r] = least, arm


def find_best_arms(
    cuts: NDArray[np.int32],
    errors: NDArray[np.float64],
    checkpoint_rounds: NDArray[np.int64],
    rounds: int,
    costs: tuple[NDArray[np.float64], NDArray[np.float64]],
    counts: NDArray[np.int64],
    wrong: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Count some rounds of R streams by cut, and find the arms of least loss on the way (eq. 3).

    Arm k answers iff ``k < c``: it has answered the rounds whose cut is larger than k, and abstained in the others.
    Its loss is ``answer_cost * sum of E_c over c > k + abstain_cost * sum of N_c over c <= k``, where N_c is the
    number of rounds of cut c, and E_c the sum of their errors.

    Args:
        cuts: [R, N] int32 in 1..H-1.
        errors: [R, N] float64 in [0, 1].
        checkpoint_rounds: [P], rounds after which arms are found, increasing, in 1..rounds.
        rounds: number of rounds to count, at most N.
        costs: of an answer per unit of error, and of an abstention, [cells] each.
        counts: [R, H], number of rounds by cut; added to.
        wrong: [R, H], sum of their errors in the order of rounds; added to.

    Returns:
        Losses [P, cells, R], and arms [P, cells, R] in 0..H-1, the lowest if tied.
    """
    shape = len(checkpoint_rounds), len(costs[0]), len(cuts)
    losses, best = np.empty(shape), np.empty(shape, np.int32)
    ends = np.array([*checkpoint_rounds, rounds], np.int64)
    arrays = cuts, errors, ends, len(checkpoint_rounds), costs, counts, wrong, losses, best
    run_in_parts(len(cuts), PART, lambda first, last: _count_cuts(first, last, *arrays))
    return losses, best


@disjoint
def _answer_below(first, count, every, arm, cut, error, u, eta, gamma, copies, given, arrays, answered):
    for i in range(count):
        for c in range(answered.shape[1]):
            answered[i, c] = arm[c, 0] < cut[i, c]  # an arm answers if it is below the cut


LOOP = Loop(compile_loop(_answer_below), lambda *sizes: ())


def make(learner: Learner[Fixed], precision: str) -> NativeBackend:
    """Return the backend of a learner with a ``Fixed`` rule, as ``FixedGame``.

    ``precision`` is ignored: the state is the arms [B, 1], int32.
    """

    def init(arms: int, start: Start, streams: int) -> NDArray[np.int32]:
        return start.arm[:, None]

    return NativeBackend(init, partial(simulate_tiles, [LOOP], "float64", (), draws=False))
