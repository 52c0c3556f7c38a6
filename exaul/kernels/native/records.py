"""Records and uniforms of a chunk, made once for all learners that read the same rounds, and the best arms in them.

The records and uniforms are those of ``exaul.kernels.records`` and ``exaul.kernels.uniforms``. Each step computes
one piece of the rounds of one stream, which are grouped by their pool. The records of a pool then have consecutive
indices in its laps, whose orders are computed side by side.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.game import BLOCK
from exaul.kernels.native.backend import PADDING, run_in_tasks
from exaul.kernels.native.compile import compile_with_helpers, compiled, outermost, real, where, word
from exaul.kernels.records import Streams, compile_orders
from exaul.kernels.uniforms import compile_uniforms

_, uniform = compile_uniforms(compiled, word, real)


@outermost
def _draw_streams(first, last, key_x, key_y, blocks, out):
    for u in range(first, last):
        for k in range(blocks.size):
            for i in range(BLOCK):
                out[u, k * BLOCK + i] = uniform((key_x[u], key_y[u]), np.uint32(blocks[k]), np.uint32(i))


def draw_uniforms(key: tuple[Any, Any], blocks: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Draw the uniforms of K blocks, the same bits as ``exaul.kernels.uniforms.uniform``.

    ``key`` is the key of decisions, from ``draw_keys`` for U trials, and ``blocks`` [K] are numbers of blocks. The
    result is [U, N] in [0, 1), with N = K C + 16 columns, of which the last 16 are padding.
    """
    out = np.zeros((len(key[0]), len(blocks) * BLOCK + PADDING))
    run_in_tasks(len(out), lambda first, last: _draw_streams(first, last, *key, blocks, out))
    return out


PIECE = 512  # rounds of a piece (chosen)

_, _lap_key, _one_pass = compile_orders(compiled, where, word)


@compiled
def _find_orders(key, lap, size, shift, passes, first, count, rows, columns):
    """Fill ``rows`` [N] with the records at ``count`` indices of a lap, from ``first`` on."""
    subkey, size, shift = _lap_key(key, word(lap)), word(size), word(shift)
    for k in range(count):
        index = word(first + k)
        rows[k], columns[k] = word(index >> shift), word(index & word(word(word(1) << shift) - word(1)))
    # The loop over indices is inside that over passes, so that it vectorises.
    for number in range(passes):
        for k in range(count):
            rows[k], columns[k] = _one_pass((rows[k], columns[k]), subkey, number, size, shift)
    for k in range(count):
        rows[k] = word(word(rows[k] << shift) | columns[k])


@cache
def _compile_fill(choose_pool: Callable[..., Any]) -> Callable[..., Any]:
    """Return the loop over the streams first..last-1, with an environment's function inlined."""
    pool_of = compile_with_helpers(choose_pool)

    @outermost
    def fill(first, last, start, rounds, horizon, shuffled, pools, keys, records_read, cuts, errors, workspace):
        pool_cuts, pool_errors, sizes, shifts, passes = pools
        draw_x, draw_y, order_x, order_y = keys
        pool_numbers, pool_rounds, rows, columns = workspace
        for r in range(first, last):
            key = draw_x[r], draw_y[r]
            for piece in range(0, rounds, PIECE):
                length = min(PIECE, rounds - piece)
                for i in range(length):
                    t = start + piece + i
                    u = uniform(key, word(t // BLOCK), word(t % BLOCK))
                    pool_numbers[i] = pool_of(where, t + 1, horizon, u)
                offset = 0
                for p in range(sizes.size):
                    count, size, filled = 0, sizes[p], 0
                    for i in range(length):
                        count += pool_numbers[i] == p
                    # List the rounds of pool p without a branch: ``pool_rounds[filled]`` is overwritten until it
                    # is a round of p.
                    if 0 < count < length:
                        for i in range(length):
                            pool_rounds[filled] = i
                            filled += pool_numbers[i] == p
                    done = 0
                    while done < count:
                        lap, index = records_read[p, r] // size, records_read[p, r] % size
                        # A lap may end within the piece; its order ends there, and the next lap has another.
                        part = min(count - done, size - index)
                        if shuffled:
                            pool_key = order_x[p, r], order_y[p, r]
                            _find_orders(pool_key, lap, size, shifts[p], passes[p], index, part, rows, columns)
                        else:
                            for k in range(part):
                                rows[k] = index + k
                        if count == length:  # all rounds are of this pool: contiguous writes vectorise
                            for k in range(part):
                                cuts[r, piece + done + k] = pool_cuts[offset + rows[k]]
                                errors[r, piece + done + k] = pool_errors[offset + rows[k]]
                        else:
                            for k in range(part):
                                i = piece + pool_rounds[done + k]
                                cuts[r, i] = pool_cuts[offset + rows[k]]
                                errors[r, i] = pool_errors[offset + rows[k]]
                        done += part
                        records_read[p, r] += part
                    offset += size

    return fill


def fill_records(
    streams: Streams,
    records_read: NDArray[np.int64],
    first_round: int,
    round_count: int,
    cuts: NDArray[np.int32],
    errors: NDArray[np.float64],
) -> None:
    """Fill in the records of some rounds of R streams, the same as those of ``exaul.kernels.records.read_block``.

    Args:
        streams: R streams.
        records_read: [P, R] int64, number of records read so far from each pool; updated.
        first_round: its number, from 0.
        round_count: number of rounds to fill.
        cuts, errors: [R, at least ``round_count``] int32 and float64, filled.
    """
    loop, plan, horizon = _compile_fill(streams.plan.choose_pool), streams.plan, int(streams.horizon)
    pools = streams.cuts, streams.errors, *np.array(plan.shapes, np.int64).T.copy()
    keys = *streams.uniform_keys, *streams.order_keys
    arguments = first_round, round_count, horizon, plan.shuffled, pools, keys, records_read, cuts, errors

    def fill_part(first: int, last: int) -> None:
        dtypes = np.int32, np.int32, np.uint32, np.uint32
        loop(first, last, *arguments, tuple(np.empty(PIECE, dtype) for dtype in dtypes))

    run_in_tasks(streams.stream_count, fill_part)


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
                # One loop fills both sums: of errors from the top arm down, of abstentions from the bottom up.
                missed[arms - 1 - k] = above
                above += wrong[r, arms - 1 - k]
                below += counts[r, k]
                abstained[k] = below
            for pair in range(losses.shape[1]):
                lowest, arm = np.inf, 0
                for k in range(arms):
                    loss = costs[0][pair, r] * missed[k] + costs[1][pair, r] * abstained[k]
                    # Strictly less, so that the lowest arm wins a tie.
                    if loss < lowest:
                        lowest, arm = loss, k
                losses[m, pair, r], best[m, pair, r] = lowest, arm


def find_best_arms(
    cuts: NDArray[np.int32],
    errors: NDArray[np.float64],
    checkpoint_rounds: NDArray[np.int64],
    round_count: int,
    costs: tuple[NDArray[np.float64], NDArray[np.float64]],
    counts: NDArray[np.float64],
    wrong: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Count some rounds of R streams by cut, and find the arms of least loss on the way (eq. 3).

    Arm k answers iff ``k < c``: it has answered the rounds whose cut is larger than k, and abstained in the others.
    Its loss is ``answer_cost * sum of E_c over c > k + abstain_cost * sum of N_c over c <= k``, where N_c is the
    number of rounds of cut c, and E_c the sum of their errors.

    Args:
        cuts, errors: as in ``RecordBlocks``.
        checkpoint_rounds: [P], rounds after which arms are found, increasing, in 1..round_count.
        round_count: number of rounds to count, at most N.
        costs: of an answer per unit of error, and of an abstention, [pairs, 1 or R] each.
        counts: [R, H], number of rounds by cut; added to.
        wrong: [R, H], sum of their errors in the order of rounds; added to.

    Returns:
        Losses [P, pairs, R], and arms [P, pairs, R] in 0..H-1, the lowest if tied.
    """
    shape = len(checkpoint_rounds), len(costs[0]), len(cuts)
    losses, best = np.empty(shape), np.empty(shape, np.int32)
    ends = np.array([*checkpoint_rounds, round_count], np.int64)
    stream_costs = tuple(np.broadcast_to(cost, shape[1:]).copy() for cost in costs)
    arrays = cuts, errors, ends, len(checkpoint_rounds), stream_costs, counts, wrong, losses, best
    run_in_tasks(len(cuts), lambda first, last: _count_cuts(first, last, *arrays))
    return losses, best
