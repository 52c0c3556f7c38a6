"""Choose the backend of a learner: the requested one, or the fastest that passes the device check here."""

import math
from functools import cache
from typing import Any

import numpy as np

from exaul.engine import machine, registry
from exaul.engine.checks import BadInput
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.feedback import check_reserve
from exaul.engine.registry import BACKENDS
from exaul.engine.simulation.simulation import LearnerBackend
from exaul.engine.sweep import Sweep
from exaul.kernels.feedback import PERFECT_FEEDBACK
from exaul.kernels.game import ROUNDS, Rates
from exaul.kernels.learners.learner import Fixed, Learner, Own, has_weights


@cache
def backend_of(learner: Learner[Any], name: str, precision: str) -> LearnerBackend | None:
    """Make a learner's kernels on a backend; None if it does not support the learner's rule.

    The cache returns the same object each time: programs are compiled once per object.
    """
    spec = BACKENDS[name]
    kernels = registry.load_object(spec.make)(learner, precision)
    return None if kernels is None else LearnerBackend(name, kernels, registry.load_object(spec.simulation))


def supporting_backends(by_rounds: bool) -> list[str]:
    """Return the backends, the fastest first; ``by_rounds`` leaves out those that compute whole blocks."""
    return [name for name, spec in BACKENDS.items() if spec.by_rounds or not by_rounds]


def candidates(platform: str, by_rounds: bool) -> list[str]:
    """Return the backends that may be chosen by default, the fastest first."""
    return [x for x in supporting_backends(by_rounds) if by_rounds or platform in BACKENDS[x].platforms]


def check_backend(sweep: Sweep, environment: Oblivious | Adaptive) -> None:
    """Raise BadInput if the requested backend does not support the environment or the feedback of a sweep."""
    adaptive = isinstance(environment, Adaptive)
    allowed = supporting_backends(adaptive or sweep.feedback != PERFECT_FEEDBACK)
    if sweep.backend in (None, *allowed):
        return
    wanted = " or ".join(allowed)
    if adaptive:
        reason = f"{sweep.environment} is adaptive, and it must be {wanted}"
    else:
        reason = f"with imperfect feedback it must be {wanted}"
    raise BadInput(f"backend: {sweep.backend} found; {reason}")


def with_feedback(
    name: str, learner: Learner[Any], inner: LearnerBackend, sweep: Sweep, rates: Rates
) -> LearnerBackend:
    """Return the backend of a learner whose feedback is imperfect, around that of perfect feedback.

    Raises:
        BadInput: the learner cannot learn from delayed or missing feedback.
    """
    from exaul.kernels import delayed  # which imports JAX

    if isinstance(learner.rule, Own):
        raise BadInput(f"learners: {name} found; it cannot learn from delayed or missing feedback")
    if sweep.reserve:
        check_reserve(name, learner)
    known = Rates(*(np.nan_to_num(x) for x in rates))
    return inner._replace(kernels=delayed.make(inner.kernels, sweep.feedback, known))


def _largest_step(backend: LearnerBackend, learner: Learner[Any], precision: str) -> float:
    """Return the largest eta x (rounds of a block) of a learner on a backend."""
    limits = BACKENDS[backend.name].largest_step
    return math.inf if limits is None or not has_weights(learner) else limits[precision]


def choose_backend(
    name: str,
    learner: Learner[Any],
    sweep: Sweep,
    environment: Oblivious | Adaptive,
    rates: Rates,
    horizon: int,
) -> LearnerBackend:
    """Choose a backend: the requested one if it supports the rule, else the fastest.

    A fixed arm is only counted, from the records that the host makes, unless the records depend on its answers.

    ``rates`` are [K] for the blocks of the horizon, NaN if the learner has no such rate.

    Raises:
        BadInput: the rates exceed the range of the requested backend.
    """
    wanted, precision = sweep.backend, sweep.precision
    late = sweep.feedback != PERFECT_FEEDBACK and learner.feedback in ("bandit", "none")
    by_rounds = late or isinstance(environment, Adaptive)
    if isinstance(learner.rule, Fixed) and not by_rounds:
        counted = backend_of(learner, "native", precision)
        assert counted is not None
        return counted
    # ``blocks`` keeps linear weights for 256 rounds. A round shrinks their sum by at most exp(-eta), so
    # eta x rounds bounds how close they come to underflow.
    with np.errstate(over="ignore"):  # eta is unlimited, and the product may be infinite
        steps = np.nan_to_num(rates.eta).max() * min(ROUNDS, horizon)
    if wanted is not None:
        backend = backend_of(learner, wanted, precision)
        if backend is not None and steps > _largest_step(backend, learner, precision):
            raise BadInput(
                f"backend: {wanted} found; at eta = {rates.eta.max():.4g} the weights of a block leave the range "
                f"of {precision}, and it must be rows or dense"
            )
        if backend is not None:
            return backend
    # The pool function of a user's environment is compiled into the device's program, so the device check uses it.
    user_environment = None
    if isinstance(environment, Oblivious) and ":" in sweep.environment:
        user_environment = sweep.environment, environment
    platform = machine.platform()
    for fastest in candidates(platform, by_rounds):
        backend = backend_of(learner, fastest, precision)
        if backend is None or steps > _largest_step(backend, learner, precision):
            continue
        is_known = platform == "cpu" or not BACKENDS[fastest].device_checked
        if is_known or _device_agrees(learner, name, fastest, user_environment):
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
    from exaul.engine.simulation.device_check import device_agrees  # which imports JAX

    return device_agrees(learner, name, backend, oracle, user_environment)
