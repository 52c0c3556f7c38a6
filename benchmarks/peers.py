"""Peers of the backends: other implementations of one copy."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numba as nb
import numpy as np

from exaul.engine import registry
from exaul.kernels.game import compute_costs

HORIZON, ALPHA = 30_000, 0.05  # they determine rates and costs
Call = Callable[[], object]  # plays the rounds of a case; the first one compiles


class PeerCase(NamedTuple):
    """A case; ``order`` is ``shared`` if all copies have the same records, ``own``, or ``adaptive``."""

    learner: str
    backend: str
    order: str
    copies: int
    arms: int
    rounds: int = 1024  # of a call


def game(case: PeerCase) -> tuple[Any, ...]:
    """Return the rounds of one copy: cuts, errors, uniforms, eta, gamma and the costs of answer and abstention."""
    rng = np.random.default_rng(0)
    cuts = rng.integers(1, case.arms, case.rounds)
    errors = (rng.random(case.rounds) * case.arms > cuts).astype(np.float64)
    rates = registry.load_object(registry.LEARNERS[case.learner]).rates
    eta, gamma = (0.0, None) if rates is None else rates(HORIZON, case.arms)
    costs = map(float, compute_costs(ALPHA, math.sqrt(HORIZON)))
    return cuts, errors, rng.random(case.rounds), eta, gamma or 0.0, *costs


def transcription(case: PeerCase) -> Call:
    """Return the paper's pseudo-code in NumPy, as in the tests."""
    from tests import reference

    grid = np.arange(case.arms) / (case.arms - 1)
    cuts, errors, uniforms, eta, gamma, *_ = game(case)
    rates = np.full(case.rounds, eta), np.full(case.rounds, gamma)
    records = grid, grid[cuts - 1], errors, uniforms
    return lambda: reference.simulate(case.learner, *records, ALPHA, math.sqrt(HORIZON), *rates)


@nb.njit
def _exaul(losses, cuts, errors, uniforms, eta, gamma, answer_cost, abstain_cost):  # type: ignore[no-untyped-def]
    for t in range(cuts.size):
        smallest, low, high = losses.min(), 0.0, 0.0
        for k in range(cuts[t]):
            low += math.exp(eta * (smallest - losses[k]))
        for k in range(cuts[t], losses.size):
            high += math.exp(eta * (smallest - losses[k]))
        if uniforms[t] < low / (low + high):
            losses[: cuts[t]] += answer_cost * errors[t] / (gamma + low / (low + high))
        else:
            losses[cuts[t] :] += abstain_cost / (gamma + high / (low + high))


def numba_dense(case: PeerCase) -> Call:
    """Return ``exaul`` as one would write it by hand: a compiled loop over all arms."""
    losses, rounds = np.zeros(case.arms), game(case)
    return lambda: _exaul(losses, *rounds)


def _step_by_step(case: PeerCase, pull: Callable[[], int], update: Callable[[int, float], object]) -> Call:
    """Return a bandit of a package, step by step; its reward is one minus the loss."""
    cuts, errors, *_, answer_cost, abstain_cost = game(case._replace(learner="exp3-ix"))
    rounds = list(zip(cuts.tolist(), errors.tolist(), strict=True))

    def call() -> None:
        for cut, error in rounds:
            arm = pull()
            update(arm, 1 - (answer_cost * error if arm < cut else abstain_cost))

    return call


def pymab(case: PeerCase) -> Call:
    """Return Exp3 of PyMAB."""
    from pymab.policies import EXP3Policy

    policy, rng = EXP3Policy(n_arms=case.arms), np.random.default_rng(0)
    pull = partial(policy.select_action, rng=rng)
    return _step_by_step(case, pull, lambda arm, reward: policy.update(action=arm, reward=reward))


def river(case: PeerCase) -> Call:
    """Return Exp3 of River."""
    from river.bandit import Exp3

    policy: Any = Exp3(gamma=0.07, seed=0)
    return _step_by_step(case, partial(policy.pull, range(case.arms)), policy.update)


PEERS = {"numpy": transcription, "numba-dense": numba_dense, "pymab": pymab, "river": river}
