"""Players: learners with their backend, chosen for this device, and their rates."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.simulation.backends import check_backend, choose_backend, imperfect_backend
from exaul.engine.simulation.schedule import Stream
from exaul.engine.simulation.simulation import LearnerBackend, Simulation
from exaul.engine.sweep import Sweep
from exaul.kernels.feedback import PERFECT_FEEDBACK, Feedback, FeedbackSums
from exaul.kernels.game import Copies, Rates
from exaul.kernels.learners.learner import Learner
from exaul.kernels.metrics import Floats
from exaul.kernels.rates import block_lengths, block_rates


class Player(NamedTuple):
    """A learner that takes part in a sweep."""

    name: str
    learner: Learner[Any]
    backend: LearnerBackend
    rates: Rates  # [K] of the blocks, NaN where it has no such rate
    regret_bound: Floats  # [cells] at T, NaN where nothing is proved
    feedback: Feedback = PERFECT_FEEDBACK  # how its answers are rated

    @property
    def is_comparator(self) -> bool:
        """Whether it is a comparator, which starts once the arm of least loss is known."""
        return self.learner.feedback == "hindsight"

    def with_aim(self, copies: Copies) -> Copies:
        """Return the copies as its rule reads them: alpha is its aim if feedback is biased or flipped."""
        aim = self.feedback.aim(copies.alpha)
        cost = copies.abstain_cost + copies.answer_cost * (aim - copies.alpha)
        return copies._replace(alpha=aim, abstain_cost=cost)

    def start(self, copies: Copies, best: NDArray[np.int32], arms: int, stream: Stream) -> Simulation:
        """Start copies of it before round 1 of a stream; arguments as of ``Simulation``."""
        return self.backend.start(self.with_aim(copies), best, arms, stream)

    def feedback_sums(self, state: Any, copies: int) -> dict[str, Floats]:
        """What B copies learned from imperfect feedback, [B] each: ``FeedbackSums``; nothing from perfect ones."""
        if self.feedback == PERFECT_FEEDBACK:
            return {}
        columns = state.sums if isinstance(state.sums, FeedbackSums) else state.sums.T
        return {
            name: np.array(x, np.float64)[:copies] for name, x in zip(FeedbackSums._fields, columns, strict=True)
        }


def make_player(
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
    by_hand = (getattr(sweep, field) for field in learner.manual_rates)
    rates = block_rates(learner, horizon, sweep.arms, sweep.anytime, *by_hand)
    if sweep.feedback != PERFECT_FEEDBACK and learner.feedback in ("bandit", "none"):
        backend = imperfect_backend(name, learner, sweep, environment, rates)
        return Player(name, learner, backend, rates, np.full(alpha.shape, np.nan), sweep.feedback)
    backend = choose_backend(name, learner, sweep, environment, rates, horizon)
    bound = learner.regret_bound(*rates, block_lengths(horizon), sweep.arms, sweep.delta, alpha, lam)
    return Player(name, learner, backend, rates, np.broadcast_to(bound, alpha.shape).astype(np.float64))
