"""Players: learners with their backend, chosen for this device, and their rates."""

from typing import Any, NamedTuple

from exaul.engine.machine import devices
from exaul.engine.play.backends import backend_of, choose_backend
from exaul.engine.play.rates import block_lengths, block_rates
from exaul.engine.play.schedule import Stream
from exaul.engine.play.simulation import Copies, Simulation
from exaul.engine.sweep import Sweep
from exaul.kernels.learners.learner import Learner
from exaul.kernels.metrics import Floats


class Player(NamedTuple):
    """A learner that takes part in a sweep."""

    name: str
    learner: Learner[Any]
    backend_name: str
    backend: Any  # Backend, NativeBackend or CudaBackend
    simulation: type[Simulation]  # what drives it
    eta: Floats  # [K] of the blocks, NaN where it has no such rate
    gamma: Floats  # [K]
    regret_bound: float  # at T, NaN where nothing is proved

    @property
    def compares(self) -> bool:
        """Whether it is a comparator, which plays once the arm of least loss is known."""
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
    copies = sweep.trials * len(sweep.alphas) * max(1, len(sweep.lambdas))
    more = eta, horizon, sweep.precision, reacts, copies
    backend_name = choose_backend(name, learner, sweep.backend, platform, *more)
    made = backend_of(learner, backend_name, sweep.precision)
    assert made is not None
    bound = learner.regret_bound(eta, gamma, block_lengths(horizon), sweep.arms, sweep.delta)
    return Player(name, learner, backend_name, *made, eta, gamma, bound)
