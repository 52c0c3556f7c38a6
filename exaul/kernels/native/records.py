"""Records and uniforms of a chunk, made once for all learners that read the same rounds.

They are those of ``exaul.kernels.records`` and ``exaul.kernels.uniforms``, compiled: a piece of the rounds of one
stream at a time. The rounds of a piece are grouped by their pool. The records of a pool then have consecutive
places in its laps, whose orders (``orders.py``, after Luby and Rackoff 1988) are computed side by side.
"""

from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels import orders
from exaul.kernels.game import ROUNDS
from exaul.kernels.native.compile import compile_with_helpers, compiled, outermost, real, where, word
from exaul.kernels.native.threads import run_in_parts, scratch
from exaul.kernels.records import Streams
from exaul.kernels.uniforms import Draws, compile_for

PADDING = 16  # columns (chosen): rows that are a power of two long compete for the same cache sets


class RecordBlocks:
    """K blocks of rounds of R streams.

    Uniforms are drawn when a learner first asks for them.

    Attributes:
        rounds: number of rounds that are simulated; they come first.
        cuts: [R, N] int32 in 1..H-1, as of ``Block``; N = K C + 16, and the last 16 columns are padding.
        errors: [R, N] float64 in [0, 1].
    """

    def __init__(self, streams: int, size: int, rounds: int, draw: Callable[[], Draws]) -> None:
        """Allocate records with cuts 1 and errors 0; the caller fills them in.

        Args:
            streams: R.
            size: K C.
            rounds: number of rounds that are simulated.
            draw: returns the uniforms, [K, C, U] in [0, 1) each.
        """
        shape = streams, size + PADDING
        self.rounds, self.cuts, self.errors = rounds, np.ones(shape, np.int32), np.zeros(shape)
        self._draw = draw

    @cached_property
    def draws(self) -> Draws:
        """The uniforms, [K C, U] in [0, 1) each."""
        drawn = self._draw()
        return Draws(*(x if x is None else np.ascontiguousarray(x.reshape(-1, x.shape[-1])) for x in drawn))


threefry, uniform = compile_for(compiled, word, real)


@outermost
def _draw(key_x, key_y, block, out):
    for i in range(out.shape[0]):
        for u in range(out.shape[1]):
            out[i, u] = uniform((key_x[u], key_y[u]), np.uint32(block), np.uint32(i))


def draws(keys: Draws, blocks: NDArray[np.uint32]) -> Draws:
    """Draw the uniforms of some blocks, the same bits as ``exaul.kernels.uniforms.draws``.

    Args:
        keys: from ``exaul.kernels.uniforms.draw_keys``, [U] each.
        blocks: [K], numbers of the blocks of 256 rounds.

    Returns:
        [K, C, U] float64 in [0, 1) from each stream that has keys.
    """

    def of_stream(key: tuple[NDArray[np.uint32], NDArray[np.uint32]]) -> NDArray[np.float64]:
        out = np.empty((len(blocks), ROUNDS, len(key[0])))
        run_in_parts(len(blocks), 1, lambda k, _: _draw(*key, blocks[k], out[k]))
        return out

    return Draws(*(None if key is None else of_stream(key) for key in keys))


PIECE = 512  # rounds of a piece (chosen)
EACH = 8  # streams of a task for one thread (chosen)

_lap_key, _cell_of, _number_of, _one_pass, *_ = orders.compile_for(compiled, where, word)


@compiled
def _find_orders(key, lap, size, shift, passes, first, count, rows, columns):
    """Fill ``rows`` [N] with the records at ``count`` places of a lap, from ``first`` on."""
    own, size, shift = _lap_key(key, word(lap)), word(size), word(shift)
    for k in range(count):
        rows[k], columns[k] = _cell_of(word(first + k), shift)
    # Passes outside, places inside, so that the loop over places vectorises.
    for number in range(passes):
        for k in range(count):
            rows[k], columns[k] = _one_pass((rows[k], columns[k]), own, number, size, shift)
    for k in range(count):
        rows[k] = _number_of((rows[k], columns[k]), shift)


@cache
def _compile(choose: Callable[..., Any]) -> Callable[..., Any]:
    """Return the loop over the streams first..last-1, with an environment's function inlined."""
    chosen = compile_with_helpers(choose)

    @outermost
    def fill(first, last, start, rounds, horizon, shuffled, pools, keys, records_read, cuts, errors, workspace):
        pool_cuts, pool_errors, sizes, shifts, passes = pools
        draw_x, draw_y, order_x, order_y = keys
        which, at, rows, columns = workspace
        for r in range(first, last):
            key = draw_x[r], draw_y[r]
            for piece in range(0, rounds, PIECE):
                many = min(PIECE, rounds - piece)
                for i in range(many):
                    t = start + piece + i
                    u = uniform(key, word(t // ROUNDS), word(t % ROUNDS))
                    which[i] = chosen(where, t + 1, horizon, u)
                offset = 0
                for p in range(sizes.size):
                    count, size, found = 0, sizes[p], 0
                    for i in range(many):
                        count += which[i] == p
                    # The rounds of pool p, compressed without a branch: ``at[found]`` is overwritten until its
                    # round belongs to p.
                    if 0 < count < many:
                        for i in range(many):
                            at[found] = i
                            found += which[i] == p
                    done = 0
                    while done < count:
                        lap, place = records_read[p, r] // size, records_read[p, r] % size
                        # A lap may end within the piece; its order ends there, and the next lap has another.
                        here = min(count - done, size - place)
                        if shuffled:
                            own = order_x[p, r], order_y[p, r]
                            _find_orders(own, lap, size, shifts[p], passes[p], place, here, rows, columns)
                        else:
                            for k in range(here):
                                rows[k] = place + k
                        if count == many:  # all rounds are of this pool: contiguous writes vectorise
                            for k in range(here):
                                cuts[r, piece + done + k] = pool_cuts[offset + rows[k]]
                                errors[r, piece + done + k] = pool_errors[offset + rows[k]]
                        else:
                            for k in range(here):
                                i = piece + at[done + k]
                                cuts[r, i] = pool_cuts[offset + rows[k]]
                                errors[r, i] = pool_errors[offset + rows[k]]
                        done += here
                        records_read[p, r] += here
                    offset += size

    return fill


def _record_arrays(rounds: int) -> tuple[Any, ...]:
    kinds = np.int32, np.int32, np.uint32, np.uint32
    return tuple(np.empty(rounds, kind) for kind in kinds)


def fill(
    streams: Streams,
    records_read: NDArray[np.int64],
    start: int,
    rounds: int,
    cuts: NDArray[np.int32],
    errors: NDArray[np.float64],
) -> None:
    """Fill in the records of some rounds of R streams, the same as ``exaul.kernels.records.read_block``.

    Args:
        streams: R of them.
        records_read: [P, R] int64, number of records read so far from each pool; updated.
        start: number of rounds before the first.
        rounds: number of rounds to fill.
        cuts: [R, at least ``rounds``] int32, filled.
        errors: [R, at least ``rounds``] float64, filled.
    """
    loop = _compile(streams.plan.choose_pool)
    pools = streams.cuts, streams.errors, *np.array(streams.plan.shapes, np.int64).T.copy()
    keys = *streams.draws, *streams.orders
    given = start, rounds, int(streams.horizon), streams.plan.shuffled, pools, keys, records_read, cuts, errors

    def some(first: int, last: int) -> None:
        loop(first, last, *given, scratch(_record_arrays, PIECE))

    run_in_parts(streams.stream_count, EACH, some)
