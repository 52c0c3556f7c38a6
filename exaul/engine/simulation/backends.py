"""The backend of a learner: the one that is asked for, or the fastest that this device can be trusted with."""

import sys
from functools import cache
from typing import Any

import numpy as np

from exaul.engine import registry
from exaul.engine.checks import BadInput
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.feedback import check_reserve
from exaul.engine.machine import devices
from exaul.engine.registry import BACKENDS
from exaul.engine.simulation.device_check import device_agrees
from exaul.engine.simulation.simulation import LearnerBackend
from exaul.engine.sweep import Sweep
from exaul.kernels.feedback import PERFECT_FEEDBACK
from exaul.kernels.game import ROUNDS, Rates
from exaul.kernels.learners.learner import Learner


@cache
def backend_of(learner: Learner[Any], name: str, precision: str) -> LearnerBackend | None:
    """Make a learner's kernels on a named backend; None if this machine or the learner's rule does not suit it.

    Every call returns the same object, so that programs compile once.
    """
    spec = BACKENDS[name]
    kernels = None if unavailable_because(name) is not None else registry.load_object(spec.make)(learner, precision)
    return None if kernels is None else LearnerBackend(name, kernels, registry.load_object(spec.simulation))


def unavailable_because(name: str) -> str | None:
    """Find out why this machine cannot use a backend; None if it can."""
    check = BACKENDS[name].problem
    return None if check is None else registry.load_object(check)()


def able(adaptive: bool, imperfect: bool) -> list[str]:
    """The backends that simulate such an environment and feedback, the fastest first."""
    suits = {name: (x.adaptive or not adaptive) and (x.imperfect or not imperfect) for name, x in BACKENDS.items()}
    return [name for name, suitable in suits.items() if suitable]


def candidates(platform: str, adaptive: bool, copies: int) -> list[str]:
    """The backends that may be chosen for a sweep with perfect feedback, the fastest first.

    Args:
        platform: of the device, as JAX calls it.
        adaptive: whether the environment is; then every backend that can simulate it is a candidate.
        copies: of the whole sweep, whatever part of it runs here.
    """
    names = able(adaptive, imperfect=False)
    return [x for x in names if (adaptive or platform in BACKENDS[x].platforms) and copies < BACKENDS[x].copies]


def check_backend(sweep: Sweep, environment: Oblivious | Adaptive) -> None:
    """Refuse a backend that cannot simulate the environment or the feedback of a sweep.

    Raises:
        BadInput: the sweep names such a backend.
    """
    adaptive, imperfect = isinstance(environment, Adaptive), sweep.feedback != PERFECT_FEEDBACK
    allowed = able(adaptive, imperfect)
    if sweep.backend in (None, *allowed):
        return
    wanted = " or ".join(allowed)
    if adaptive:
        reason = f"{sweep.environment} plays round by round, and it must be {wanted}"
    else:
        reason = f"where thumbs are imperfect it must be {wanted}"
    raise BadInput(f"backend: {sweep.backend} found; {reason}")


def imperfect_backend(
    name: str, learner: Learner[Any], sweep: Sweep, environment: Oblivious | Adaptive, rates: Rates
) -> LearnerBackend:
    """Choose the backend of a learner whose feedback is imperfect.

    Args:
        name: of the learner.
        learner: who takes part.
        sweep: its feedback, and the backend that is wanted.
        environment: that it meets.
        rates: [K] of the horizon's blocks, NaN where there are none.

    Raises:
        BadInput: the learner cannot learn from such feedback.
    """
    chosen = sweep.backend or able(isinstance(environment, Adaptive), imperfect=True)[0]
    spec, known = BACKENDS[chosen], Rates(*(np.nan_to_num(x) for x in rates))
    assert spec.imperfect is not None
    kernels = registry.load_object(spec.imperfect)(learner, sweep.precision, sweep.feedback, known)
    if kernels is None:
        raise BadInput(f"learners: {name} found; it cannot learn from thumbs that come late or never")
    if sweep.reserve:
        check_reserve(name, learner)
    return LearnerBackend(chosen, kernels, registry.load_object(spec.simulation))


@cache
def _report_once(text: str) -> None:
    print(text, file=sys.stderr)


def choose_backend(
    name: str,
    learner: Learner[Any],
    sweep: Sweep,
    environment: Oblivious | Adaptive,
    rates: Rates,
    horizon: int,
) -> LearnerBackend:
    """Choose the backend of a learner with perfect feedback: the one wanted if it suits the rule, else the fastest.

    Backends other than ``dense`` hold linear weights in a block; their sum shrinks by at most exp(-eta) a round.

    Args:
        name: of the learner.
        learner: who takes part.
        sweep: its precision and size, and the backend that is wanted.
        environment: that the learner meets.
        rates: [K], NaN where there are none.
        horizon: T.

    Raises:
        BadInput: the backend that is wanted needs what is not here, or has too little range for these rates.
    """
    wanted, precision = sweep.backend, sweep.precision
    with np.errstate(over="ignore"):  # it may be infinite
        steps = np.nan_to_num(rates.eta).max() * min(ROUNDS, horizon)
    if wanted is not None:
        if (missing := unavailable_because(wanted)) is not None:
            raise BadInput(f"backend: {wanted} found; it needs an NVIDIA device and numba-cuda, but {missing}")
        backend = backend_of(learner, wanted, precision)
        if backend is not None and steps > backend.kernels.largest_step:
            raise BadInput(
                f"backend: {wanted} found; at eta = {rates.eta.max():.4g} the weights of a block leave the range "
                f"of {precision}, and it must be dense"
            )
        if backend is not None:
            return backend
    user_environment = None
    if isinstance(environment, Oblivious) and ":" in sweep.environment:
        user_environment = sweep.environment, environment
    copies = sweep.trials * len(sweep.alphas) * max(1, len(sweep.lambdas))
    for fastest in candidates(devices.platform(), isinstance(environment, Adaptive), copies):
        if (missing := unavailable_because(fastest)) is not None:
            _report_once(f"the cuda backends are not used: {missing}")
            continue
        backend = backend_of(learner, fastest, precision)
        if backend is None:
            continue
        if steps > backend.kernels.largest_step:
            break
        if BACKENDS[fastest].problem is None or _device_agrees(learner, name, fastest, user_environment):
            return backend
    dense = backend_of(learner, "dense", precision)
    assert dense is not None
    return dense


@cache
def _device_agrees(
    learner: Learner[Any], name: str, backend_name: str, user_environment: tuple[str, Oblivious] | None
) -> bool:
    backend, oracle = (backend_of(learner, where, "float64") for where in (backend_name, "dense"))
    assert backend is not None
    assert oracle is not None
    return device_agrees(learner, name, backend, oracle, user_environment)
