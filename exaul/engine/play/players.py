"""Players: learners with their backend, chosen for this device, and their rates."""

import math
from typing import Any, NamedTuple

import numpy as np

from exaul.engine.checks import BadInput
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.machine import devices
from exaul.engine.play.backends import backend_of, choose_backend, rated_backend_of
from exaul.engine.play.schedule import Stream
from exaul.engine.play.simulation import Copies, Simulation
from exaul.engine.registry import BY_TURNS
from exaul.engine.sweep import Sweep
from exaul.kernels.learners.learner import Learner
from exaul.kernels.metrics import Floats
from exaul.kernels.rates import block_lengths, block_rates
from exaul.kernels.thumbs import PERFECT, Sums, Thumbs


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
    thumbs: Thumbs = PERFECT  # how its answers are rated

    @property
    def compares(self) -> bool:
        """Whether it is a comparator, which plays once the arm of least loss is known."""
        return self.learner.feedback == "hindsight"

    def aimed(self, copies: Copies) -> Copies:
        """The copies with the numbers that its rule reads: where thumbs lie or are biased, alpha is its aim."""
        aim = self.thumbs.aim(copies.alpha)
        cost = copies.abstain_cost + copies.answer_cost * (aim - copies.alpha)
        return copies._replace(alpha=aim, abstain_cost=cost)

    def simulate(self, copies: Copies, arms: int, stream: Stream) -> Simulation:
        """Copies of it before round 1 of a stream."""
        return self.simulation(self.backend, self.aimed(copies), arms, stream)

    def heard(self, state: Any, copies: int) -> dict[str, Floats]:
        """What B copies learned from imperfect thumbs, [B] each, as of ``Sums``; nothing from perfect ones."""
        if self.thumbs == PERFECT:
            return {}
        columns = state.sums if isinstance(state.sums, Sums) else state.sums.T
        return {name: np.array(x, np.float64)[:copies] for name, x in zip(Sums._fields, columns, strict=True)}


def player_of(
    sweep: Sweep, name: str, learner: Learner[Any], horizon: int, environment: Oblivious | Adaptive
) -> Player:
    """A learner with its backend and its rates, for a sweep of an environment.

    Raises:
        BadInput: the backend that is wanted cannot play the environment, or the rates are too large for it; or JAX
            finds no device.
    """
    by_hand = (getattr(sweep, field) for field in learner.by_hand)
    eta, gamma = block_rates(learner, horizon, sweep.arms, sweep.anytime, *by_hand)
    reacts = isinstance(environment, Adaptive)
    able = BY_TURNS if sweep.thumbs == PERFECT else ("dense",)
    if reacts and sweep.backend not in (None, *able):
        allowed = f"{sweep.environment} plays round by round, and it must be {' or '.join(able)}"
        raise BadInput(f"backend: {sweep.backend} found; {allowed}")
    own = None
    if isinstance(environment, Oblivious) and ":" in sweep.environment:
        own = sweep.environment, environment
    platform = devices.platform()
    copies = sweep.trials * len(sweep.alphas) * max(1, len(sweep.lambdas))
    bound = learner.regret_bound(eta, gamma, block_lengths(horizon), sweep.arms, sweep.delta)
    if sweep.thumbs != PERFECT and learner.feedback in ("bandit", "none"):
        where = "dense" if reacts or sweep.backend == "dense" else "online"
        made = rated_backend_of(name, learner, where, sweep, (eta, gamma))
        return Player(name, learner, where, *made, eta, gamma, math.nan, sweep.thumbs)
    more = eta, horizon, sweep.precision, reacts, copies, own
    backend_name = choose_backend(name, learner, sweep.backend, platform, *more)
    found = backend_of(learner, backend_name, sweep.precision)
    assert found is not None
    return Player(name, learner, backend_name, *found, eta, gamma, bound)
