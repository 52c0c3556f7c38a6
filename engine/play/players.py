"""Players: learners with their backend, chosen for this device, and their rates."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from exaul.engine import registry
from exaul.engine.checks import BadInput
from exaul.engine.machine import devices
from exaul.engine.play.rates import block_lengths, block_rates
from exaul.engine.play.schedule import Stream
from exaul.engine.play.simulation import Copies, Simulation
from exaul.engine.sweep import Sweep
from exaul.kernels.game import ROUNDS
from exaul.kernels.learners.learner import Learner
from exaul.kernels.metrics import Floats


class Player(NamedTuple):
    """A learner that takes part in a sweep."""

    name: str
    learner: Learner[Any]
    backend_name: str
    backend: Any  # Backend or NativeBackend
    simulation: type[Simulation]  # what drives it
    eta: Floats  # [K] of the blocks, NaN where it has no such rate
    gamma: Floats  # [K]
    regret_bound: float  # at T, NaN where nothing is proved

    @property
    def compares(self) -> bool:
        """Whether it is a comparator, which plays once the best fixed arm is known."""
        return self.learner.feedback == "hindsight"

    def simulate(self, copies: Copies, arms: int, stream: Stream) -> Simulation:
        """Copies of it before round 1 of a stream."""
        return self.simulation(self.backend, copies, arms, stream)


def player_of(sweep: Sweep, name: str, learner: Learner[Any], horizon: int, reacts: bool) -> Player:
    """A learner with its backend and its rates.

    Raises:
        BadInput: the rates are too large for the backend that is wanted; or JAX finds no device.
    """
    by_hand = (getattr(sweep, field) for field in learner.by_hand)
    eta, gamma = block_rates(learner, horizon, sweep.arms, sweep.anytime, *by_hand)
    platform = devices.platform()
    backend_name = choose_backend(learner, sweep.backend, platform, eta, horizon, sweep.precision, reacts)
    made = backend_of(learner, backend_name, sweep.precision)
    assert made is not None
    bound = learner.regret_bound(eta, gamma, block_lengths(horizon), sweep.arms, sweep.delta)
    return Player(name, learner, backend_name, *made, eta, gamma, bound)


@cache
def backend_of(learner: Learner[Any], name: str, precision: str) -> tuple[Any, type[Simulation]] | None:
    """A learner on a named backend, and what drives it; None where the backend has no loop for its rule.

    The same object on every call, so that it compiles once.
    """
    maker, simulation = registry.BACKENDS[name]
    backend = registry.load(maker)(learner, precision)
    return None if backend is None else (backend, registry.load(simulation))


def choose_backend(
    learner: Learner[Any],
    wanted: str | None,
    platform: str,
    eta: Floats,
    rounds: int,
    precision: str,
    by_turns: bool = False,
) -> str:
    """The backend that a learner plays on: the one wanted if it has a loop for it, else the platform's best.

    Backends but ``dense`` have linear weights within a block, whose sum shrinks by at most exp(-eta) a round.

    Args:
        learner: who plays.
        wanted: a name, or None.
        platform: of the device, as JAX calls it.
        eta: [K] learning rates, NaN where there are none.
        rounds: T.
        precision: of the sums.
        by_turns: whether the game is played round by round.

    Raises:
        BadInput: the rates are too large for the backend that is wanted.
    """
    with np.errstate(over="ignore"):  # it may be infinite
        steps = np.nan_to_num(eta).max() * min(ROUNDS, rounds)
    order = registry.BY_TURNS if by_turns else registry.PREFERRED.get(platform, ("dense",))
    if wanted is not None and (wanted in registry.BY_TURNS or not by_turns):
        made = backend_of(learner, wanted, precision)
        if made is not None and steps > made[0].largest_step:
            raise BadInput(
                f"backend: {wanted} found; at eta = {eta.max():.4g} the weights of a block leave the range of "
                f"{precision}, and it must be dense"
            )
        if made is not None:
            return wanted
    best, made = next((name, made) for name in order if (made := backend_of(learner, name, precision)) is not None)
    return best if steps <= made[0].largest_step else "dense"
