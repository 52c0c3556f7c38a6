"""Players: learners with the backend chosen for this device, and their rates."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.simulation.backends import choose_backend, imperfect_backend
from exaul.engine.simulation.schedule import TrialRecords
from exaul.engine.simulation.simulation import LearnerBackend, Simulation
from exaul.engine.sweep import Sweep
from exaul.kernels.feedback import PERFECT_FEEDBACK, Feedback, FeedbackSums
from exaul.kernels.game import Copies, Rates, Start
from exaul.kernels.learners.learner import Fixed, Learner, bound_risk
from exaul.kernels.learners.start import start_copies, start_of
from exaul.kernels.metrics import Floats
from exaul.kernels.rates import block_lengths, block_rates
from exaul.kernels.regret_bounds import RegretBounds


def _no_bound(*args: object) -> float:
    return np.nan


NO_BOUNDS = RegretBounds(_no_bound, _no_bound, _no_bound)


class Player(NamedTuple):
    """A learner in a sweep, with its backend and rates."""

    name: str
    learner: Learner[Any]
    backend: LearnerBackend
    rates: Rates  # [K] for the blocks, NaN if the learner has no such rate
    regret_bounds: dict[str, Floats]  # [cells] at T by field of ``RegretBounds``, NaN if nothing is proved
    feedback: Feedback = PERFECT_FEEDBACK
    first: tuple[Any, Any] = ((), ())  # as of ``start_of``

    @property
    def is_fixed(self) -> bool:
        """Whether the learner uses one arm in every round, perhaps that of least loss in hindsight."""
        return isinstance(self.learner.rule, Fixed)

    def bound_by_answers(self, arms: int, horizon: int) -> bool:
        """Return whether the bound of R_T depends on the number of answers, beside T."""
        if self.learner.risk_bound is None:
            return False
        bounds = self.risk_bound(arms, horizon, horizon, np.array([[0, horizon]]), 0.5)
        return bool(np.ptp(bounds, axis=-1).any())

    def risk_bound(self, arms: int, horizon: int, rounds: Any, answered: NDArray[Any], alpha: Any) -> Floats:
        """Return the bound of R_t of the learner, which has one, after some rounds and answers.

        ``answered`` is [..., cells or 1, trials]; ``alpha``, the share of errors at which it aims, broadcasts.
        """
        state = self.first[0]
        of_cells = type(state)(*(x[:, None] for x in state)) if state else ()
        bound = bound_risk(
            self.learner, self.rates, block_lengths(horizon), rounds, answered, arms, alpha, of_cells
        )
        return np.asarray(bound, np.float64) + np.zeros(answered.shape)

    def with_aim(self, copies: Copies) -> Copies:
        """Return copies whose alpha is the aim, which differs if feedback is biased or flipped."""
        aim = self.feedback.aim(copies.alpha)
        # (1 + lam aim) / (1 + lam), eq. 4 at the aim
        cost = copies.abstain_cost + copies.answer_cost * (aim - copies.alpha)
        return copies._replace(alpha=aim, abstain_cost=cost)

    def start(self, copies: Copies, start: Start, arms: int, trial_records: TrialRecords) -> Simulation:
        """Start copies before round 1; arguments as of ``Simulation``."""
        return self.backend.start(self.with_aim(copies), start, arms, trial_records)

    def start_of_copies(self, cell: NDArray[np.integer], best: NDArray[np.int32]) -> Start:
        """Return the start of B copies, from the cell of each [B], and the best arms [B]."""
        return start_copies(self.first, cell, best)

    def feedback_sums(self, state: Callable[[], Any], copies: int) -> dict[str, Floats]:
        """Return the fields of ``FeedbackSums`` of B copies, [B] each; empty if feedback is perfect.

        ``state`` returns the state; it is called only if feedback is imperfect, because it may copy from a device.
        """
        if self.feedback == PERFECT_FEEDBACK:
            return {}
        # JAX keeps named arrays [B], compiled backends one array [B, fields]
        sums = state().sums
        columns = sums if isinstance(sums, FeedbackSums) else sums.T
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
    arms: int,
    log: tuple[NDArray[np.int32], Floats] | None,
) -> Player:
    """Choose the backend and the rates of a learner for cells of ``alpha`` and ``lam``, [cells] each.

    ``log`` are the cuts and errors of the log from which it starts, or None.

    Raises:
        BadInput: the requested backend does not support the rates, the learner cannot learn from such feedback, or
            JAX finds no device.
    """
    eta = sweep.step if learner.rate == "step" else sweep.eta
    rates = block_rates(learner, horizon, arms, sweep.anytime, eta, sweep.gamma)
    first = start_of(learner.rule, arms, alpha, log)
    if sweep.feedback != PERFECT_FEEDBACK and learner.feedback in ("bandit", "none"):
        backend = imperfect_backend(name, learner, sweep, environment, rates)
        unknown = np.full(alpha.shape, np.nan)
        return Player(
            name, learner, backend, rates, dict.fromkeys(RegretBounds._fields, unknown), sweep.feedback, first
        )
    backend = choose_backend(name, learner, sweep, environment, rates, horizon)
    bounds = {}
    for field, bound in (learner.regret_bounds or NO_BOUNDS)._asdict().items():
        at_end = bound(*rates, block_lengths(horizon), arms, sweep.delta, alpha, lam)
        bounds[field] = np.broadcast_to(at_end, alpha.shape).astype(np.float64)
    return Player(name, learner, backend, rates, bounds, first=first)
