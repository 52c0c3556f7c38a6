"""The backend of a learner: by name, or the fastest that this device can be trusted with."""

import math
import sys
from functools import cache, partial
from typing import Any

import numpy as np

from exaul.engine import registry
from exaul.engine.checks import BadInput
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.play.proof import proved
from exaul.engine.play.simulation import Simulation
from exaul.engine.rated import check_reserve
from exaul.engine.sweep import Sweep
from exaul.kernels.backends.backend import Backend
from exaul.kernels.game import ROUNDS
from exaul.kernels.learners.learner import Learner
from exaul.kernels.metrics import Floats


@cache
def backend_of(learner: Learner[Any], name: str, precision: str) -> tuple[Any, type[Simulation]] | None:
    """A learner on a named backend, and what drives it; None where it cannot play, or has no loop for the rule.

    The same object on every call, so that it compiles once.
    """
    if problem(name) is not None:
        return None
    maker, simulation = registry.BACKENDS[name]
    backend = registry.load(maker)(learner, precision)
    return None if backend is None else (backend, registry.load(simulation))


def rated_backend_of(
    name: str, learner: Learner[Any], backend_name: str, sweep: Sweep, rates: tuple[Floats, Floats]
) -> tuple[Any, type[Simulation]]:
    """A learner whose answers are rated as a sweep says, on a backend, and what drives it.

    Args:
        name: of the learner.
        learner: who plays.
        backend_name: of ``registry.RATED``.
        sweep: whose thumbs.
        rates: eta [K] and gamma [K] of the horizon's blocks, NaN where there are none.

    Raises:
        BadInput: the learner cannot learn from such thumbs, or another backend is wanted.
    """
    if sweep.backend not in (None, *registry.RATED):
        wanted = " or ".join(registry.RATED)
        raise BadInput(f"backend: {sweep.backend} found; where thumbs are imperfect it must be {wanted}")
    made = registry.load(registry.RATED[backend_name])(learner, sweep.precision, sweep.thumbs)
    if made is None:
        raise BadInput(f"learners: {name} found; it cannot learn from thumbs that come late or never")
    if sweep.reserve:
        check_reserve(name, learner)
    eta, gamma = (np.nan_to_num(x) for x in rates)
    if isinstance(made, Backend):
        made = made._replace(shared=made.shared._replace(eta=eta, gamma=gamma))
    else:
        made = made._replace(init=partial(made.init, eta=eta, gamma=gamma))
    return made, registry.load(registry.BACKENDS[backend_name][1])


def problem(name: str) -> str | None:
    """Find out why a backend cannot be used here; None where its device and libraries are here."""
    return registry.load(registry.NEEDED[name])() if name in registry.NEEDED else None


@cache
def _report_once(text: str) -> None:
    print(text, file=sys.stderr)


def choose_backend(
    name: str,
    learner: Learner[Any],
    wanted: str | None,
    platform: str,
    eta: Floats,
    rounds: int,
    precision: str,
    by_turns: bool = False,
    copies: int = 1,
    own: tuple[str, Oblivious] | None = None,
) -> str:
    """The backend that a learner plays on: the one wanted if it has a loop for it, else the platform's best.

    Backends but ``dense`` have linear weights within a block, whose sum shrinks by at most exp(-eta) a round.

    Args:
        name: of the learner.
        learner: who plays.
        wanted: a name, or None.
        platform: of the device, as JAX calls it.
        eta: [K] learning rates, NaN where there are none.
        rounds: T.
        precision: of the sums.
        by_turns: whether the game is played round by round.
        copies: of the whole sweep, whatever part of it is played here.
        own: as of ``proved``.

    Raises:
        BadInput: what the backend that is wanted needs is not here; or the rates are too large for it.
    """
    with np.errstate(over="ignore"):  # it may be infinite
        steps = np.nan_to_num(eta).max() * min(ROUNDS, rounds)
    if wanted is not None:
        if (missing := problem(wanted)) is not None:
            raise BadInput(f"backend: {wanted} found; it needs an NVIDIA device and numba-cuda, but {missing}")
        made = backend_of(learner, wanted, precision)
        if made is not None and steps > made[0].largest_step:
            raise BadInput(
                f"backend: {wanted} found; at eta = {eta.max():.4g} the weights of a block leave the range of "
                f"{precision}, and it must be dense"
            )
        if made is not None:
            return wanted
    order = registry.BY_TURNS if by_turns else registry.PREFERRED.get(platform, ("dense",))
    for best in order:
        if (missing := problem(best)) is not None:
            _report_once(f"the cuda backends are not used: {missing}")
            continue
        made = backend_of(learner, best, precision)
        if made is None or copies >= registry.BELOW.get(best, math.inf):
            continue
        if steps > made[0].largest_step:
            return "dense"
        if best not in registry.NEEDED or _proved(learner, name, best, own):
            return best
    return "dense"


@cache
def _proved(learner: Learner[Any], name: str, backend_name: str, own: tuple[str, Oblivious] | None) -> bool:
    made, oracle = (backend_of(learner, where, "float64") for where in (backend_name, "dense"))
    assert made is not None
    assert oracle is not None
    return proved(learner, name, backend_name, made, oracle, own)
