"""Players: learners with the backend chosen for this device, and their rates."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.simulation.backends import choose_backend, with_feedback
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


class Cells(NamedTuple):
    """The cells of a learner, [cells] each, in the order of a sweep's flags; a rate that it lacks is NaN."""

    pair: NDArray[np.intp]  # number of its alpha and lambda in the sweep
    alpha: Floats
    lam: Floats
    eta_scale: Floats  # factor of eta and gamma
    gamma_scale: Floats  # further factor of gamma
    step: Floats  # the step itself, where the sweep gives steps

    @property
    def factors(self) -> tuple[Floats, Floats]:
        """The factors of the player's eta and gamma."""
        eta = np.nan_to_num(self.eta_scale, nan=1.0) * np.nan_to_num(self.step, nan=1.0)
        return eta, np.nan_to_num(self.eta_scale, nan=1.0) * np.nan_to_num(self.gamma_scale, nan=1.0)


def make_cells(sweep: Sweep, learner: Learner[Any], rates: Rates, alpha: Floats, lam: Floats) -> Cells:
    """Return a learner's cells: pairs of ``alpha`` and ``lam``, times the scales of the rates [K] that it has."""
    has_eta = learner.rate == "eta" and not np.isnan(rates.eta[0])
    has_step = learner.rate == "step" and bool(sweep.steps)
    axes = [
        np.arange(len(alpha)),
        np.array(sweep.eta_scales if has_eta else (np.nan,)),
        np.array(sweep.gamma_scales if has_eta and not np.isnan(rates.gamma[0]) else (np.nan,)),
        np.array(sweep.steps if has_step else (np.nan,)),
    ]
    pair, *scales = (x.ravel() for x in np.meshgrid(*axes, indexing="ij"))
    return Cells(pair, alpha[pair], lam[pair], *scales)


class Player(NamedTuple):
    """A learner in a sweep, with its backend, cells and rates."""

    name: str
    learner: Learner[Any]
    backend: LearnerBackend
    rates: Rates  # [K] for the blocks, before the factors of a cell; NaN if the learner has no such rate
    cells: Cells
    regret_bounds: dict[str, Floats]  # [cells] at T by field of ``RegretBounds``, NaN if nothing is proved
    feedback: Feedback = PERFECT_FEEDBACK
    first: tuple[Any, Any] = ((), ())  # as of ``start_of``

    def rates_of_cells(self) -> Iterator[tuple[NDArray[np.intp], Rates]]:
        """Yield the cells that have the same rates, by number, with these rates [K]."""
        factors, of_cell = np.unique(np.stack(self.cells.factors), axis=1, return_inverse=True)
        for number, (eta, gamma) in enumerate(factors.T):
            yield np.flatnonzero(of_cell.ravel() == number), Rates(self.rates.eta * eta, self.rates.gamma * gamma)

    @property
    def rates_at_end(self) -> tuple[Floats, Floats]:
        """Eta and gamma at T, [cells] each."""
        eta, gamma = self.cells.factors
        return self.rates.eta[-1] * eta, self.rates.gamma[-1] * gamma

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
        state, cells = self.first[0], len(self.cells.pair)
        shape = np.broadcast_shapes(answered.shape, np.shape(rounds), np.shape(alpha), (cells, 1))
        rounds, answered, alpha = (np.broadcast_to(x, shape) for x in (rounds, answered, alpha))
        bound = np.empty(shape)
        for some, rates in self.rates_of_cells():
            of_cells = type(state)(*(x[some, None] for x in state)) if state else ()
            t, many, aim = (x[..., some, :] for x in (rounds, answered, alpha))
            bound[..., some, :] = bound_risk(
                self.learner, rates, block_lengths(horizon), t, many, arms, aim, of_cells
            )
        return bound

    def with_aim(self, copies: Copies) -> Copies:
        """Return copies whose alpha is the aim, which differs if feedback is biased or flipped."""
        aim = self.feedback.aim(copies.alpha)
        # (1 + lam aim) / (1 + lam), eq. 4 at the aim
        cost = copies.abstain_cost + copies.answer_cost * (aim - copies.alpha)
        return copies._replace(alpha=aim, abstain_cost=cost)

    def start(self, copies: Copies, start: Start, arms: int, trial_records: TrialRecords) -> Simulation:
        """Start copies before round 1; arguments as of ``Simulation``."""
        return self.backend.start(self.with_aim(copies), start, arms, trial_records)

    def start_of_copies(self, arms: int, cell: NDArray[np.integer], best: NDArray[np.int32]) -> Start:
        """Return the start of B copies on H arms, from the cell of each [B], and the best arms [B]."""
        return start_copies(self.learner.rule, arms, self.first, cell, best)

    def feedback_sums(self, state: Callable[[], Any], copies: int) -> dict[str, Floats]:
        """Return the fields of ``FeedbackSums`` of B copies, [B] each; empty if feedback is perfect.

        ``state`` returns the state; it is called only if feedback is imperfect, because it may copy from a device.
        """
        if self.feedback == PERFECT_FEEDBACK:
            return {}
        sums: FeedbackSums = state().sums
        return {name: np.array(x, np.float64)[:copies] for name, x in sums._asdict().items()}


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
    """Choose the backend, the rates and the cells of a learner, for pairs of ``alpha`` and ``lam``, [pairs] each.

    ``log`` are the cuts and errors of the log from which it starts, or None.

    Raises:
        BadInput: the requested backend does not support the rates, the learner cannot learn from such feedback, or
            JAX finds no device.
    """
    # a cell multiplies these: a step is its own factor
    eta = 1.0 if learner.rate == "step" and sweep.steps else None if learner.rate == "step" else sweep.eta
    rates = block_rates(learner, horizon, arms, sweep.anytime, eta, sweep.gamma)
    cells = make_cells(sweep, learner, rates, alpha, lam)
    first = start_of(learner.rule, arms, cells.alpha, log)
    nothing = {field: np.full(cells.alpha.shape, np.nan) for field in RegretBounds._fields}
    most = Rates(*(rate * factor.max() for rate, factor in zip(rates, cells.factors, strict=True)))
    backend = choose_backend(name, learner, sweep, environment, most, horizon)
    if sweep.feedback != PERFECT_FEEDBACK and learner.feedback in ("bandit", "none"):
        backend = with_feedback(name, learner, backend, sweep, rates)
        return Player(name, learner, backend, rates, cells, nothing, sweep.feedback, first)
    player = Player(name, learner, backend, rates, cells, nothing, first=first)
    for field, bound in (learner.regret_bounds or NO_BOUNDS)._asdict().items():
        for some, known in player.rates_of_cells():
            given = block_lengths(horizon), arms, sweep.delta, cells.alpha[some], cells.lam[some]
            player.regret_bounds[field][some] = bound(*known, *given)
    return player
