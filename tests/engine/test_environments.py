"""The records of each environment, counted; and the arms of least loss in them are those of plain sums."""

from itertools import product

import jax
import numpy as np
import pytest

from exaul.engine.simulation import chunks
from exaul.engine.simulation.chunks import BestArmCounter
from exaul.engine.simulation.jax_chunks import DeviceBestArms
from exaul.kernels import native, uniforms
from exaul.kernels.game import BLOCK, compute_costs
from exaul.kernels.records import Pool, Streams, compile_orders, order_shape, read_block
from tests import games
from tests.games import OBLIVIOUS, stream_of


def met(name, sizes, horizon, trials=3, chunk=BLOCK):
    """Record numbers [T, trials] and pools [T, trials]: cuts carry the number, errors the pool."""
    records = numbered(name, sizes, horizon, trials)
    cuts = np.zeros((records.stream_count, horizon), np.int32)
    errors, records_read = np.zeros(cuts.shape), records.no_records_read().astype(np.int64)
    for start in range(0, horizon, chunk):
        columns, rounds = slice(start, start + chunk), min(chunk, horizon - start)
        native.fill_records(records, records_read, start, rounds, cuts[:, columns], errors[:, columns])
    return cuts.T, errors.T


def numbered(name, sizes, horizon, trials=3):
    """Streams whose cuts are the numbers of records, from 1, and whose errors are those of pools."""
    pools = [Pool(np.arange(1, n + 1, dtype=np.int32), np.full(n, float(p))) for p, n in enumerate(sizes)]
    return stream_of(pools, horizon, trials, name).streams


@pytest.mark.parametrize("name", OBLIVIOUS)
@pytest.mark.parametrize("sizes", [[300, 70], [3, 1]])
def test_jax_and_compiled_code_make_the_records_of_the_keys(name, sizes):
    """Plain Python over rounds is the reference: a pool, how many records it gave, and its order."""
    horizon, sizes = 1400 if name != "replay" else sizes[0], sizes[: OBLIVIOUS[name].pool_count]
    records = numbered(name, sizes, horizon)
    order, *_ = compile_orders(lambda function: function, np.where, np.uint32)
    expected, count = np.zeros((horizon, records.stream_count, 2), int), records.no_records_read().astype(int)
    rounds = np.arange(horizon, dtype=np.uint32)[:, None]
    drawn = uniforms.uniform(records.uniform_keys, *np.divmod(rounds, np.uint32(BLOCK)))
    places = []  # of the records of each pool in the orders of a stream, [laps, N, streams]
    for p, n in enumerate(sizes):
        laps, rank = (np.arange(x, dtype=np.uint32) for x in (-(-horizon // n), n))
        places.append(order([x[p] for x in records.order_keys], laps[:, None, None], order_shape(n), rank[:, None]))
    for t, r in product(range(horizon), range(records.stream_count)):
        p = int(OBLIVIOUS[name].choose_pool(np.where, t + 1, horizon, drawn[t, r]))
        lap, position = divmod(count[p, r], sizes[p])
        count[p, r] += 1
        expected[t, r] = (places[p][lap, position, r] if OBLIVIOUS[name].shuffled else position) + 1, p
    compiled = met(name, sizes, horizon)
    assert (met(name, sizes, horizon, trials=2, chunk=1024)[0] == compiled[0][:, :2]).all()
    blocks, counts = [], records.no_records_read()
    with jax.enable_x64(True):
        plan, *arrays = records
        block = jax.jit(lambda counts, number, arrays: read_block(Streams(plan, *arrays), counts, number))
        for number in range(-(-horizon // BLOCK)):
            cuts, errors, counts = block(counts, np.uint32(number), arrays)
            blocks.append(np.stack([cuts, errors], axis=-1))
    traced = np.concatenate(blocks)[:horizon]
    assert (np.stack(compiled, axis=-1) == expected).all()
    assert (traced == expected).all()


@pytest.mark.parametrize(("name", "count"), [("single-shift", 2), ("alternating-shift", 10)])
def test_shifts_stand_where_the_segments_end(name, count):
    for horizon in (1, 2, 999, 1000):
        _, pools = met(name, [100, 30], horizon)
        for j in range(count):
            first, last = j * horizon // count, (j + 1) * horizon // count
            assert (pools[first:last] == j % 2).all()


def test_gradual_shift_draws_the_second_pool_with_probability_t_over_horizon():
    """Hoeffding over each tenth of 2,000 rounds x 50 trials: fails by chance below 1e-9."""
    horizon, trials = 2000, 50
    _, pools = met("gradual-shift", [100, 100], horizon, trials)
    for tenth in range(10):
        rows = slice(tenth * 200, (tenth + 1) * 200)
        expected = (np.arange(1, horizon + 1) / horizon)[rows].mean()
        slack = np.sqrt(np.log(2 * 10 / 1e-9) / (2 * 200 * trials))
        assert abs(pools[rows].mean() - expected) < slack
    assert (pools[-1] == 1).all()


ARMS, HORIZON, TRIALS = 40, 3000, 5
CHECKPOINTS = np.array([1, 255, 512, 2047, HORIZON])
COSTS = compute_costs(np.array([[0.05], [0.3]]), np.array([[20.0], [1.0]]))


@pytest.mark.parametrize(("environment", "ratings"), [("gradual-shift", True), ("replay", False)])
@pytest.mark.parametrize("on_device", [False, True])
def test_the_best_arms_are_those_of_plain_sums(environment, ratings, on_device, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 1)
    rng = np.random.default_rng(0)
    sizes = (HORIZON, 77)[: games.OBLIVIOUS[environment].pool_count]
    errors = [rng.random(n) if ratings else (rng.random(n) < 0.3) * 1.0 for n in sizes]
    pools = [Pool(rng.integers(1, ARMS, len(e)).astype(np.int32), e) for e in errors]
    stream, played = games.stream_of(pools, HORIZON, TRIALS, environment), []
    new = DeviceBestArms if on_device else lambda records, *setup: BestArmCounter(records.record_stream, *setup)
    counter = new(stream, ARMS, CHECKPOINTS, *COSTS)
    for chunk in chunks.make_chunks(CHECKPOINTS, TRIALS):
        records = stream.make(chunk)
        played.append([x[:, : records.round_count] for x in (records.cuts, records.errors)])
        with jax.enable_x64(True):
            counter.submit(chunk, records)
            counter.collect()
            saved, counter = counter, new(stream, ARMS, CHECKPOINTS, *COSTS)
            list(map(np.copyto, counter.saved_arrays(), saved.saved_arrays()))  # as a save is restored
    assert len(played) > 1
    cuts, wrong = (np.concatenate(parts, axis=1)[stream.record_stream] for parts in zip(*played, strict=True))
    answers = np.arange(ARMS)[:, None, None] < cuts  # [H, trials, T]
    for cell, (answer_cost, abstain_cost) in enumerate(zip(*COSTS, strict=True)):
        losses = np.cumsum(np.where(answers, answer_cost * wrong, abstain_cost), axis=2)[..., CHECKPOINTS - 1]
        np.testing.assert_allclose(counter.best_loss[:, cell].T, losses.min(axis=0), rtol=1e-12, atol=1e-9)
        least = losses[counter.best_arm[cell], np.arange(TRIALS), -1]
        np.testing.assert_allclose(least, losses[..., -1].min(axis=0), rtol=1e-12)
