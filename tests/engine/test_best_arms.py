"""The arms of least loss are those of plain sums over the records, chunk after chunk, and after a save."""

from copy import deepcopy

import numpy as np
import pytest

from exaul.engine.simulation import schedule
from exaul.engine.simulation.schedule import BestArmCounter
from exaul.kernels.game import compute_costs
from exaul.kernels.records import Pool
from tests import games

ARMS, HORIZON, TRIALS = 40, 3000, 5
CHECKPOINTS = np.array([1, 255, 512, 2047, HORIZON])
COSTS = compute_costs(np.array([0.05, 0.3]), np.array([20.0, 1.0]))


@pytest.mark.parametrize("ratings", [False, True])
@pytest.mark.parametrize("environment", ["gradual-shift", "replay"])
def test_the_best_arms_are_those_of_plain_sums(environment, ratings, monkeypatch):
    monkeypatch.setattr(schedule, "CHUNK", 1)
    rng = np.random.default_rng(0)
    sizes = (HORIZON, 77)[: games.OBLIVIOUS[environment].sources]
    errors = [rng.random(n) if ratings else (rng.random(n) < 0.3) * 1.0 for n in sizes]
    pools = [Pool(rng.integers(1, ARMS, len(e)).astype(np.int32), e) for e in errors]
    stream, seen = games.stream_of(pools, HORIZON, TRIALS, environment), []
    counter = BestArmCounter(stream.record_stream, ARMS, CHECKPOINTS, *COSTS)
    for chunk in schedule.make_chunks(CHECKPOINTS, TRIALS):
        made = stream.make(chunk)
        seen.append([x[:, : made.rounds] for x in (made.cuts, made.errors)])
        counter.count(chunk, made.cuts, made.errors)
        saved = iter(deepcopy(schedule.save(counter)))
        counter = schedule.restore(BestArmCounter(stream.record_stream, ARMS, CHECKPOINTS, *COSTS), saved)
    assert len(seen) > 1
    cuts, wrong = (np.concatenate(parts, axis=1)[stream.record_stream] for parts in zip(*seen, strict=True))
    answers = np.arange(ARMS)[:, None, None] < cuts  # [H, trials, T]
    for cell, (answer_cost, abstain_cost) in enumerate(zip(*COSTS, strict=True)):
        losses = np.cumsum(np.where(answers, answer_cost * wrong, abstain_cost), axis=2)[..., CHECKPOINTS - 1]
        np.testing.assert_allclose(counter.best_loss[:, cell].T, losses.min(axis=0), rtol=1e-12, atol=1e-9)
        least = losses[counter.best_arm[cell], np.arange(TRIALS), -1]
        np.testing.assert_allclose(least, losses[..., -1].min(axis=0), rtol=1e-12)
