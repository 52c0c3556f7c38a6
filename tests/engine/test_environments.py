"""What each environment plays, counted."""

import numpy as np
import pytest

from exaul.engine.environments.oblivious import Pool, Stream
from exaul.kernels.game import ROUNDS
from tests.games import OBLIVIOUS


def played(name, sizes, horizon, trials=3, seed=0, chunk=ROUNDS):
    """Record numbers [T, trials] and pools [T, trials]: cuts carry the number, errors the pool."""
    pools = [Pool(np.arange(1, n + 1, dtype=np.int32), np.full(n, float(p))) for p, n in enumerate(sizes)]
    stream = Stream(OBLIVIOUS[name], pools, horizon, seed, np.arange(trials))
    taken = [stream.take(start, min(chunk, horizon - start)) for start in range(0, horizon, chunk)]
    return np.concatenate([a.T for a, _ in taken]), np.concatenate([b.T for _, b in taken])


@pytest.mark.parametrize("size", [1, 7, 300, 5000])
def test_stochastic_plays_each_lap_without_replacement(size):
    records, _ = played("stochastic", [size], 1000)
    for i in range(3):
        for lap in range(0, 1000, size):
            part = records[lap : lap + size, i]
            assert len(set(part)) == len(part)
    if size == 300:
        assert (records[:300, 0] != records[300:600, 0]).any()
        assert (records[:300, 0] != records[:300, 1]).any()


def test_replay_keeps_the_order_of_the_log():
    records, _ = played("replay", [900], 900)
    assert (records == np.arange(1, 901)[:, None]).all()


@pytest.mark.parametrize("horizon", [1, 2, 999, 1000])
@pytest.mark.parametrize(("name", "count"), [("single-shift", 2), ("alternating-shift", 10)])
def test_shifts_stand_where_the_segments_end(name, count, horizon):
    _, pools = played(name, [100, 30], horizon)
    for j in range(count):
        first, last = j * horizon // count, (j + 1) * horizon // count
        assert (pools[first:last] == j % 2).all()


@pytest.mark.parametrize("name", [name for name, x in OBLIVIOUS.items() if x.shuffled and x.sources == 2])
def test_shifts_play_each_pool_in_its_own_order_until_spent(name):
    records, pools = played(name, [100, 30], 1000)
    for p, size in enumerate([100, 30]):
        mine = records[pools[:, 0] == p, 0]
        for lap in range(0, len(mine), size):
            part = mine[lap : lap + size]
            assert len(set(part)) == len(part)


def test_gradual_shift_draws_the_second_pool_with_probability_t_over_horizon():
    """Hoeffding over each tenth of 2,000 rounds x 50 trials: fails by chance below 1e-9."""
    horizon, trials = 2000, 50
    _, pools = played("gradual-shift", [100, 100], horizon, trials)
    for tenth in range(10):
        rows = slice(tenth * 200, (tenth + 1) * 200)
        expected = (np.arange(1, horizon + 1) / horizon)[rows].mean()
        slack = np.sqrt(np.log(2 * 10 / 1e-9) / (2 * 200 * trials))
        assert abs(pools[rows].mean() - expected) < slack
    assert (pools[-1] == 1).all()


@pytest.mark.parametrize("name", OBLIVIOUS)
def test_records_do_not_depend_on_chunks_or_other_trials(name):
    sizes = [2000, 150][: OBLIVIOUS[name].sources]
    one, many = played(name, sizes, 1500, trials=2, chunk=256), played(name, sizes, 1500, trials=9, chunk=1024)
    for a, b in zip(one, many, strict=True):
        assert (a == b[:, :2]).all()


def test_seeds_differ():
    assert (played("stochastic", [500], 500, seed=0)[0] != played("stochastic", [500], 500, seed=1)[0]).any()
