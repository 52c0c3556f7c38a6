"""Learners with the backend chosen for this device, their cells and their rates.

A backend is the requested one, or the first suitable one. On devices other than a CPU it must also pass the check
of ``agreement.py``.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine import machine
from exaul.engine.checks import BadInput, check_holds, check_not_negative, check_positive
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.feedback import check_reserve
from exaul.engine.logs.log import Records
from exaul.engine.registry import FASTEST, STEPWISE_BACKENDS, backend_of, user_code_errors
from exaul.engine.simulation import agreement
from exaul.engine.sweep import Sweep
from exaul.kernels.bounds import BOUND_ARGUMENTS
from exaul.kernels.feedback import PERFECT_FEEDBACK, Feedback
from exaul.kernels.game import BLOCK, LARGEST_STEP, Copies, Rates, Start, compute_cuts
from exaul.kernels.learners.learner import (
    Fixed,
    Learner,
    Own,
    Ranked,
    has_weights,
    rates_of_horizon,
    regret_at,
    start_of,
)
from exaul.kernels.metrics import Floats
from exaul.kernels.native import NativeBackend


def check_backend(sweep: Sweep, environment: Oblivious | Adaptive) -> None:
    """Raise BadInput if the requested backend does not support the environment or the feedback of a sweep."""
    is_adaptive = isinstance(environment, Adaptive)
    if sweep.backend in (None, *STEPWISE_BACKENDS) or (not is_adaptive and sweep.feedback == PERFECT_FEEDBACK):
        return
    reason = f"{sweep.environment} is adaptive, and" if is_adaptive else "with imperfect feedback"
    raise BadInput(f"backend: {sweep.backend} found; {reason} it must be {' or '.join(STEPWISE_BACKENDS)}")


def feedback_of(sweep: Sweep, learner: Learner[Any]) -> Feedback:
    """Return the feedback that a learner gets in a sweep: perfect if it reads all errors, or those in hindsight."""
    return sweep.feedback if learner.feedback in ("bandit", "none") else PERFECT_FEEDBACK


def with_feedback(name: str, learner: Learner[Any], backend: Any, feedback: Feedback, rates: Rates) -> Any:
    """Return ``backend``, with feedback that comes late or never if it is imperfect.

    Raises:
        BadInput: the learner cannot learn from delayed or missing feedback.
    """
    if feedback == PERFECT_FEEDBACK:
        return backend
    from exaul.kernels import delayed  # which imports JAX

    if isinstance(learner.rule, Own):
        pairs = zip(feedback._asdict().items(), PERFECT_FEEDBACK, strict=True)
        given = ("feedback_rate" if field == "rate" else field for (field, x), perfect in pairs if x != perfect)
        remedy = f"leave out {' and '.join(given)}, or write a rule Sided, Drawn or Ranked"
        raise BadInput(f"learners: {name} found; in a sweep an Own rule needs perfect feedback: {remedy}")
    if feedback.reserve:
        check_reserve(name, learner)
    return delayed.make_delayed(backend, feedback, Rates(*(np.nan_to_num(x) for x in rates)))


def choose_backend(
    name: str, learner: Learner[Any], sweep: Sweep, environment: Oblivious | Adaptive, rates: Rates, horizon: int
) -> tuple[str, Any]:
    """Choose a backend, and return it after its name: the requested one if it supports the rule, else the fastest.

    The answers of a fixed arm are only counted, by the fastest, unless records or feedback depend on them.
    ``rates`` are [K] for the blocks of the horizon, NaN if the learner has no such rate.

    Raises:
        BadInput: the rates exceed the range of the requested backend.
    """
    is_stepwise = feedback_of(sweep, learner) != PERFECT_FEEDBACK or isinstance(environment, Adaptive)
    is_counted = isinstance(learner.rule, Fixed) and not is_stepwise
    request, precision = None if is_counted else sweep.backend, sweep.precision
    # ``blocks`` keeps linear weights for 256 rounds. A round shrinks their sum by at most exp(-eta), so
    # eta x rounds bounds how close they come to underflow.
    with np.errstate(over="ignore"):  # eta is unlimited, and the product may be infinite
        steps = np.nan_to_num(rates.eta).max() * min(BLOCK, horizon) if has_weights(learner) else 0.0
    out_of_range = "blocks" if steps > LARGEST_STEP[precision] else None
    if request is not None and (backend := backend_of(learner, request, precision)) is not None:
        if request == out_of_range:
            raise BadInput(
                f"backend: {request} found; at eta = {rates.eta.max():.4g} the weights of a block leave the range "
                f"of {precision}, and it must be rows or dense"
            )
        return request, backend
    platform = machine.platform()
    for fastest in ("rows",) if is_stepwise else FASTEST.get(platform, ()):
        backend = backend_of(learner, fastest, precision)
        if backend is None or fastest == out_of_range:
            continue
        if platform == "cpu" or is_counted:
            return fastest, backend
        if agreement.device_agrees(learner, name, fastest, precision):
            return fastest, backend
    return "dense", backend_of(learner, "dense", precision)


class Cells(NamedTuple):
    """The cells of a learner, [cells] each, in the order of a sweep's flags; a rate that it lacks is NaN."""

    pair: NDArray[np.intp]  # number of its alpha and lambda in the sweep
    alpha: Floats
    lam: Floats
    eta_scale: Floats  # factor of eta and gamma
    gamma_scale: Floats  # further factor of gamma
    step: Floats  # the step itself, if the sweep gives steps; ``Totals`` have that at T in its place

    @property
    def factors(self) -> tuple[Floats, Floats]:
        """The factors of the learner's eta and gamma."""
        shared = np.nan_to_num(self.eta_scale, nan=1.0)
        return shared * np.nan_to_num(self.step, nan=1.0), shared * np.nan_to_num(self.gamma_scale, nan=1.0)


def make_cells(sweep: Sweep, learner: Learner[Any], rates: Rates, alpha: Floats, lam: Floats) -> Cells:
    """Return a learner's cells: pairs of ``alpha`` and ``lam``, times the scales of the rates [K] that it has."""
    has_eta = learner.rate_field == "eta" and not np.isnan(rates.eta[0])
    has_step = learner.rate_field == "step" and bool(sweep.steps)
    axes = [
        np.arange(len(alpha)),
        np.array(sweep.eta_scales if has_eta else (np.nan,)),
        np.array(sweep.gamma_scales if has_eta and not np.isnan(rates.gamma[0]) else (np.nan,)),
        np.array(sweep.steps if has_step else (np.nan,)),
    ]
    pair, *scales = (x.ravel() for x in np.meshgrid(*axes, indexing="ij"))
    return Cells(pair, alpha[pair], lam[pair], *scales)


class PreparedLearner(NamedTuple):
    """A learner in a sweep, with its backend, cells and rates."""

    name: str
    definition: Learner[Any]
    backend_name: str
    backend: Any  # from ``backend_of``; with imperfect feedback, around that
    rates: Rates  # [K] for the blocks, before the factors of a cell; NaN if the learner has no such rate
    cells: Cells
    # by field of ``RegretBounds``, NaN if not proved: ``best`` [P, cells] at the checkpoints, the others [1, cells]
    regret_bounds: dict[str, Floats]
    feedback_model: Feedback = PERFECT_FEEDBACK
    start: Start = Start(0)  # in each cell

    def cells_by_rates(self) -> Iterator[tuple[NDArray[np.intp], Rates]]:
        """Yield the cells that have the same rates, by number, with these rates [K]."""
        factors, groups = np.unique(np.stack(self.cells.factors), axis=1, return_inverse=True)
        for number, (eta, gamma) in enumerate(factors.T):
            yield np.flatnonzero(groups.ravel() == number), Rates(self.rates.eta * eta, self.rates.gamma * gamma)

    @property
    def is_native(self) -> bool:
        """Whether compiled loops simulate it, on records that the host makes."""
        return isinstance(self.backend, NativeBackend)

    @property
    def is_fixed(self) -> bool:
        """Whether the learner uses one arm in every round, perhaps the arm of least loss in hindsight."""
        return isinstance(self.definition.rule, Fixed)

    def risk_bound(self, t: Any, answered: NDArray[Any], alpha: Any) -> Floats:
        """Return the bound of R_t of a learner that has one, after t rounds and some answers.

        ``answered`` is [..., cells or 1, trials]; ``alpha``, the share of errors at which it aims, broadcasts.
        """
        state, cells, bound_of = self.start.state, len(self.cells.pair), self.definition.risk_bound
        assert bound_of is not None
        shape = np.broadcast_shapes(answered.shape, np.shape(t), np.shape(alpha), (cells, 1))
        t, answered, alpha = (np.broadcast_to(x, shape) for x in (t, answered, alpha))
        bound = np.empty(shape)
        for subset, rates in self.cells_by_rates():
            start_state = type(state)(*(x[subset, None] for x in state)) if state else ()
            end, count, aim = (x[..., subset, :] for x in (t, answered, alpha))
            bound[..., subset, :] = bound_of(rates.eta, end, count, aim, start_state)
        return bound

    def with_aim(self, copies: Copies) -> Copies:
        """Return copies whose alpha is the aim, which differs if feedback is biased or flipped."""
        aim = self.feedback_model.aim(copies.alpha)
        # (1 + lam aim) / (1 + lam), eq. 4 at the aim
        cost = copies.abstain_cost + copies.answer_cost * (aim - copies.alpha)
        return copies._replace(alpha=aim, abstain_cost=cost)


def prepare_learner(
    sweep: Sweep,
    name: str,
    learner: Learner[Any],
    checkpoints: NDArray[np.int64],
    environment: Oblivious | Adaptive,
    alpha: Floats,
    lam: Floats,
    grid: Floats,
    warm_log: Records | None,
) -> PreparedLearner:
    """Choose the backend, the rates and the cells of a learner, for pairs of ``alpha`` and ``lam``, [pairs] each.

    ``warm_log`` is the log from which it starts, or None.

    Raises:
        BadInput: the requested backend does not support the rates, the learner cannot learn from such feedback, or
            JAX finds no device.
    """
    arms, horizon = len(grid), int(checkpoints[-1])
    eta = sweep.eta
    if learner.rate_field == "step":  # a cell multiplies eta by its factor, the step itself if there are steps
        eta = 1.0 if sweep.steps else None
    check_anytime(name, learner, arms, horizon, sweep.anytime)
    rates = rates_of_horizon(learner, horizon, arms, sweep.anytime, eta, sweep.gamma)
    cells = make_cells(sweep, learner, rates, alpha, lam)
    cuts_and_errors = None if warm_log is None else (compute_cuts(grid, warm_log.scores), warm_log.errors)
    start = start_of(learner.rule, arms, cells.alpha, cuts_and_errors)
    ends = {"best": checkpoints, "abstaining": checkpoints[-1:], "paper": checkpoints[-1:]}
    nans = {field: np.full((len(t), len(cells.pair)), np.nan) for field, t in ends.items()}
    largest = Rates(*(rate * factor.max() for rate, factor in zip(rates, cells.factors, strict=True)))
    backend_name, backend = choose_backend(name, learner, sweep, environment, largest, horizon)
    feedback = feedback_of(sweep, learner)
    backend = with_feedback(name, learner, backend, feedback, rates)
    prepared = PreparedLearner(name, learner, backend_name, backend, rates, cells, nans, feedback, start)
    bounds = learner.regret_bounds if feedback == PERFECT_FEEDBACK else None
    for field, bound in () if bounds is None else bounds._asdict().items():
        requirement = f"it must be a function of ({BOUND_ARGUMENTS})"
        with user_code_errors(f"learners: regret_bounds.{field} of", name, requirement):
            for subset, cell_rates in prepared.cells_by_rates():
                arguments = arms, sweep.delta, cells.alpha[subset], cells.lam[subset]
                for row, t in zip(prepared.regret_bounds[field], ends[field], strict=True):
                    row[subset] = regret_at(bound, cell_rates, int(t), *arguments)
    return prepared


def rates_of_game(
    name: str, learner: Learner[Any], arms: int, horizon: int | None, eta: Any, gamma: Any, anytime: bool
) -> tuple[Any, Any]:
    """Return eta and gamma of one game, as given or the learner's own; None if it follows from a missing horizon.

    They are [K] if ``anytime``. Raise BadInput if one is out of range, or given although the learner has none.
    """
    check_positive("eta", eta)
    check_not_negative("gamma", gamma)
    check_anytime(name, learner, arms, horizon or 1, anytime)
    rule, defaults = learner.rule, None if learner.rates is None else learner.rates(horizon or 1, arms)
    lacks_gamma = isinstance(rule, Fixed) or (defaults is not None and defaults.gamma is None)
    for field, value, lacks in (("eta", eta, isinstance(rule, Fixed)), ("gamma", gamma, lacks_gamma)):
        if value is not None and lacks:
            raise BadInput(f"{field}: given, but {name} has none")
    is_step = isinstance(rule, Ranked)
    check_holds("eta", eta, eta is None or eta <= 1 or not is_step, f"in (0, 1], a step of {name}")
    if learner.anytime is not None and (anytime or (defaults is None and horizon is not None)):
        rates = rates_of_horizon(learner, required("horizon", horizon), arms, True, eta, gamma)
        return rates.eta, np.nan_to_num(rates.gamma)
    gamma = 0.0 if lacks_gamma else gamma
    if defaults is None and learner.anytime is None and isinstance(rule, Own | Ranked):
        defaults = Rates(math.nan, math.nan)  # which it may not read
    elif defaults is None or not (horizon or is_step):  # a step depends on no horizon
        return eta, gamma
    return defaults.eta if eta is None else eta, (defaults.gamma or 0.0) if gamma is None else gamma


def check_anytime(name: str, learner: Learner[Any], arms: int, horizon: int, is_asked: bool) -> None:
    """Raise BadInput if rates for an unknown horizon are asked, and those of the learner follow from T alone."""
    rates_at = learner.rates if is_asked and learner.anytime is None else None
    if rates_at is not None and rates_at(horizon, arms) != rates_at(2 * horizon, arms):
        raise BadInput(f"anytime: given, but {name} has no rates for an unknown T (Learner(anytime=...))")


def required(field: str, value: Any) -> Any:
    """Return the value, or raise BadInput if it is None."""
    if value is None:
        follows = "it follows" + " if the Learner has rates=" * (field == "eta")
        raise BadInput(f"{field}: not given; give it, or the horizon, from which {follows}")
    return value
