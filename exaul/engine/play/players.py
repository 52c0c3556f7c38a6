"""Players: learners with their backend, chosen for this device, and their rates."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.play.backends import check_backend, choose_backend, imperfect_backend
from exaul.engine.play.schedule import Stream
from exaul.engine.play.simulation import LearnerBackend, Simulation
from exaul.engine.sweep import Sweep
from exaul.kernels.game import Copies, Rates
from exaul.kernels.learners.learner import Learner
from exaul.kernels.metrics import Floats
from exaul.kernels.rates import block_lengths, block_rates
from exaul.kernels.thumbs import PERFECT, Sums, Thumbs


class Player(NamedTuple):
    """A learner that takes part in a sweep."""

    name: str
    learner: Learner[Any]
    backend: LearnerBackend
    rates: Rates  # [K] of the blocks, NaN where it has no such rate
    regret_bound: Floats  # [cells] at T, NaN where nothing is proved
    thumbs: Thumbs = PERFECT  # how its answers are rated

    @property
    def compares(self) -> bool:
        """Whether it is a comparator, which starts once the arm of least loss is known."""
        return self.learner.feedback == "hindsight"

    def aimed(self, copies: Copies) -> Copies:
        """Return the copies as its rule reads them: alpha is its aim if feedback is biased or flipped."""
        aim = self.thumbs.aim(copies.alpha)
        cost = copies.abstain_cost + copies.answer_cost * (aim - copies.alpha)
        return copies._replace(alpha=aim, abstain_cost=cost)

    def start(self, copies: Copies, best: NDArray[np.int32], arms: int, stream: Stream) -> Simulation:
        """Start copies of it before round 1 of a stream; arguments as of ``Simulation``."""
        return self.backend.start(self.aimed(copies), best, arms, stream)

    def heard(self, state: Any, copies: int) -> dict[str, Floats]:
        """What B copies learned from imperfect thumbs, [B] each, as of ``Sums``; nothing from perfect ones."""
        if self.thumbs == PERFECT:
            return {}
        columns = state.sums if isinstance(state.sums, Sums) else state.sums.T
        return {name: np.array(x, np.float64)[:copies] for name, x in zip(Sums._fields, columns, strict=True)}


def player_of(
    sweep: Sweep,
    name: str,
    learner: Learner[Any],
    horizon: int,
    environment: Oblivious | Adaptive,
    alpha: Floats,
    lam: Floats,
) -> Player:
    """Choose the backend and the rates of a learner, for a sweep of an environment.

    Args:
        sweep: what is run.
        name: of the learner.
        learner: who takes part.
        horizon: T.
        environment: that it meets.
        alpha: [cells].
        lam: [cells].

    Raises:
        BadInput: the backend that is wanted cannot simulate the environment, or the rates are too large for it; or
            JAX finds no device.
    """
    check_backend(sweep, environment)
    by_hand = (getattr(sweep, field) for field in learner.by_hand)
    rates = block_rates(learner, horizon, sweep.arms, sweep.anytime, *by_hand)
    if sweep.thumbs != PERFECT and learner.feedback in ("bandit", "none"):
        backend = imperfect_backend(name, learner, sweep, environment, rates)
        return Player(name, learner, backend, rates, np.full(alpha.shape, np.nan), sweep.thumbs)
    backend = choose_backend(name, learner, sweep, environment, rates, horizon)
    bound = learner.regret_bound(*rates, block_lengths(horizon), sweep.arms, sweep.delta, alpha, lam)
    return Player(name, learner, backend, rates, np.broadcast_to(bound, alpha.shape).astype(np.float64))
