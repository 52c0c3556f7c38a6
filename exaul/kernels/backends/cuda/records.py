"""The records and uniforms of one copy, block by block: generated on the device, or given.

Records are functions of integers (``exaul.kernels.orders``), so a copy needs only the number of records it has read
from each pool. Uniforms are those of ``exaul.kernels.uniforms`` (Salmon et al., "Parallel random numbers: as easy
as 1, 2, 3", 2011).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.kernels import orders, uniforms
from exaul.kernels.backends.cuda.target import Function, Target, make_where
from exaul.kernels.backends.rules import compile_with_helpers
from exaul.kernels.game import ROUNDS
from exaul.kernels.records import Streams

LAP, PLACE, FIRST, SECOND = range(4)  # rows of ``counters``: lap of each pool, place in it, key of the lap


class GeneratedRecords(NamedTuple):
    """What records and uniforms are computed from, for R streams of records and U streams of uniforms."""

    pool: Any  # [sum of N, 2] float64: the cut and the error of each record, pool after pool
    starts: Any  # [P] int64, the first record of each pool
    shapes: Any  # [P, 3] uint32, each an ``orders.OrderShape``
    horizon: Any  # [1] int64
    orders: Any  # [2, P, R] uint32, keys of the orders
    environment: Any  # [2, R] uint32, keys of the environment's uniforms
    draws: Any  # [2, U] uint32, keys of the learners' uniforms
    records_read: Any  # [P, R] uint32, records read before a launch
    records_read_after: Any  # [P, R] uint32, filled: records read after it


def record_generator(streams: Streams, draws: tuple[NDArray[np.uint32], NDArray[np.uint32]]) -> GeneratedRecords:
    """Return the arrays that records and uniforms are computed from, on the host, before round 1.

    ``streams`` has R streams; ``draws`` are the keys of the learners' uniforms, [U] each.
    """
    sizes = [shape.size for shape in streams.plan.shapes]
    return GeneratedRecords(
        np.stack([streams.cuts.astype(np.float64), streams.errors], axis=1),
        np.cumsum([0, *sizes[:-1]]).astype(np.int64),
        np.array(streams.plan.shapes, np.uint32),
        np.array([streams.horizon], np.int64),
        np.stack(streams.orders),
        np.stack(streams.draws),
        np.stack(draws),
        streams.no_records_read(),
        streams.no_records_read(),
    )


def _make_store(compiled: Function) -> Function:
    """Return ``store(workspace, i, cut, error)``, which stores the record of round i of a block."""

    @compiled
    def store(workspace, i, cut, error):
        workspace.cuts[i], workspace.errors[i] = cut, error
        if i < workspace.ranks.size:
            workspace.ranks[i] = cut

    return store


class GivenRecords(NamedTuple):
    """Given records and uniforms, K C rounds of each."""

    cuts: Any  # [K C, R] int32
    errors: Any  # [K C, R] float64
    uniforms: Any  # [K C, U] float64


class RecordSource(NamedTuple):
    """The functions that supply the records and uniforms of a copy, from ``GeneratedRecords`` or ``GivenRecords``.

    Attributes:
        begin: ``begin(source, record, counters)`` fills ``counters`` [4 P] with what stream ``record`` has read.
        fill: ``fill(source, record, k, block, rounds, workspace)`` fills ``cuts`` and ``errors`` [C] of a
            ``Workspace`` for the k-th block of the chunk, which has the number ``block``, and ``ranks`` with the
            cuts.
        draw: ``draw(source, stream, k, block, first, last, uniforms)`` fills ``uniforms`` [last - first] with those
            of the rounds first..last-1.
        end: ``end(source, record, counters)`` stores what was read.
    """

    begin: Function
    fill: Function
    draw: Function
    end: Function


def generate_records(target: Target, choose: Callable[..., Any], pools: int, shuffled: bool) -> RecordSource:
    """Return the functions that generate records and uniforms on the device, from a ``GeneratedRecords``.

    ``choose(where, t, horizon, u)`` returns the number [] of the pool of round t, in 0..pools-1. If ``shuffled``,
    each stream reads each pool in its own orders.
    """
    compiled, word, real = target.compiled, target.word, target.real
    lanes, lane, sync = target.team.lanes, target.team.lane, target.team.sync
    scan, pick = target.team.scan, target.team.pick
    store, where, own_pool = _make_store(compiled), make_where(compiled), compile_with_helpers(compiled, choose)
    lap_key, *_, in_lap, _ = orders.compile_for(compiled, where, word)
    uniform = uniforms.compile_for(compiled, word, real).uniform

    @compiled
    def find_key(source, p, record, counters):
        key = lap_key((source.orders[0, p, record], source.orders[1, p, record]), word(counters[LAP * pools + p]))
        counters[FIRST * pools + p], counters[SECOND * pools + p] = key

    @compiled
    def begin(source, record, counters):
        for p in range(pools):
            size = source.shapes[p, 0]
            counters[LAP * pools + p] = word(source.records_read[p, record] // size)
            counters[PLACE * pools + p] = word(source.records_read[p, record] % size)
            find_key(source, p, record, counters)

    @compiled
    def fill(source, record, k, block, rounds, workspace):
        sync()  # all have read the block before
        counters, first = workspace.counters, word(0)
        while first < rounds:
            i = word(first + lane())
            # All lanes run every pass, those beyond the last round with ``inside`` false: scans exchange between
            # all lanes.
            inside = i < rounds
            p = word(0)
            if pools > 1 and inside:
                u = uniform((source.environment[0, record], source.environment[1, record]), word(block), word(i))
                # Rounds count from 1 in environments.
                p = word(own_pool(where, int(block) * ROUNDS + i + 1, source.horizon[0], u))
            lap, place = word(0), word(0)
            key = counters[FIRST * pools + p], counters[SECOND * pools + p]
            for q in range(pools):
                mine = inside and p == q
                # Place in pool q: its counter, plus the number of lower lanes that read from q in this pass.
                up_to = scan(1 if mine else 0)
                if mine:
                    lap, place = counters[LAP * pools + q], word(counters[PLACE * pools + q] + up_to - 1)
                next_place, size = word(counters[PLACE * pools + q] + pick(up_to, lanes - 1)), source.shapes[q, 0]
                # Every lane updates its own copy of the counters alike. They now hold the next lap; lanes with
                # records of the lap before have loaded its number and key already.
                if next_place >= size:
                    counters[LAP * pools + q] = word(counters[LAP * pools + q] + word(next_place // size))
                    next_place = word(next_place % size)
                    find_key(source, q, record, counters)
                counters[PLACE * pools + q] = next_place
            if inside:
                shape = orders.OrderShape(source.shapes[p, 0], source.shapes[p, 1], int(source.shapes[p, 2]))
                if place >= shape.size:  # this record is in a later lap than the first of this pass
                    lap, place = word(lap + word(place // shape.size)), word(place % shape.size)
                    key = lap_key((source.orders[0, p, record], source.orders[1, p, record]), lap)
                at_all = source.starts[p] + (in_lap(key, shape, place) if shuffled else place)
                # Cut and error are neighbours in memory: records are read in random order, and each read costs a
                # transfer.
                store(workspace, i, int(source.pool[at_all, 0]), source.pool[at_all, 1])
            first = word(first + lanes)
        sync()

    @compiled
    def draw(source, stream, k, block, first, last, uniforms):
        sync()
        key = source.draws[0, stream], source.draws[1, stream]
        for i in range(first + lane(), last, lanes):
            uniforms[i - first] = uniform(key, word(block), word(i))
        sync()

    @compiled
    def end(source, record, counters):
        for p in range(lane(), pools, lanes):
            lap, place = counters[LAP * pools + p], counters[PLACE * pools + p]
            # All copies of a stream store the same number, and not where ``begin`` reads: copies that start later
            # in this launch must not see it.
            source.records_read_after[p, record] = word(word(lap * source.shapes[p, 0]) + place)

    return RecordSource(begin, fill, draw, end)


def read_given_records(target: Target) -> RecordSource:
    """Return the functions that read the records and uniforms of a ``GivenRecords``, for a device check."""
    compiled = target.compiled
    lanes, lane, sync, store = target.team.lanes, target.team.lane, target.team.sync, _make_store(compiled)

    @compiled
    def nothing(source, record, counters):
        pass

    @compiled
    def fill(source, record, k, block, rounds, workspace):
        sync()  # all have read the block before
        for i in range(lane(), rounds, lanes):
            row = k * ROUNDS + i
            store(workspace, i, source.cuts[row, record], source.errors[row, record])
        sync()

    @compiled
    def draw(source, stream, k, block, first, last, uniforms):
        sync()
        for i in range(first + lane(), last, lanes):
            uniforms[i - first] = source.uniforms[k * ROUNDS + i, stream]
        sync()

    return RecordSource(nothing, fill, draw, nothing)
