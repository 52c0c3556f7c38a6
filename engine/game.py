"""A sweep made ready: its records, its cells and copies, and which backend each learner plays on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import numpy as np
from numpy.typing import NDArray

from engine.environments import ENVIRONMENTS
from engine.environments.adaptive import Adaptive, World
from engine.environments.adaptive import world as make_world
from engine.environments.oblivious import Environment, Pool, Stream
from engine.errors import BadInput
from engine.learners import LEARNERS, backend, block_rates, choose_backend
from engine.metrics import Floats
from engine.rollout import Copies
from engine.sources import Records, load_log, load_profile
from kernels import uniforms
from kernels.game import GRIDS, costs, cuts

if TYPE_CHECKING:
    from engine.sweep import Sweep


def load(sweep: "Sweep", records: Sequence[Records] | None = None) -> tuple[Records, ...]:
    """The records of a sweep, in the order of its flags; those in memory, where they are given.

    Raises:
        BadInput: a log cannot be used, or the environment needs another number of them.
    """
    needed = ENVIRONMENTS[sweep.environment].sources
    names = sweep.logs or sweep.sources or ("triviaqa-like", "nq-like")[:needed]
    kind, many = ("logs" if sweep.logs else "sources", len(names)) if records is None else ("records", len(records))
    if many != needed:
        raise BadInput(f"{kind}: {many} given; {sweep.environment} needs {needed}")
    if records is not None:
        if sweep.logs or sweep.sources:
            raise BadInput("records: given together with logs or sources; choose one of the two")
        return tuple(records)
    if not sweep.logs and sweep.group is not None:
        raise BadInput("group: given without logs; a built-in profile has no such column")
    if not sweep.logs:
        return tuple(load_profile(name) for name in names)
    return tuple(load_log(log, sweep, sweep.group) for log in names)


def _horizon(sweep: "Sweep", records: Sequence[Records]) -> int:
    if sweep.environment != "replay":
        return 30_000 if sweep.horizon is None else sweep.horizon
    length = len(records[0].scores)
    if sweep.horizon is not None and sweep.horizon > length:
        raise BadInput(f"horizon: {sweep.horizon} found; replay of {records[0].name} has {length} rounds")
    return length if sweep.horizon is None else sweep.horizon


@dataclass(frozen=True)
class Game:
    """A sweep made ready: what is played, and the numbers of its cells and copies."""

    sweep: "Sweep"
    horizon: int
    grid: Floats  # [H]
    pools: tuple[Pool, ...]
    trials: NDArray[np.int64]
    records: tuple[Records, ...]
    alpha: Floats  # [cells]
    lam: Floats  # [cells]
    answer: Floats  # [cells], cost of an answer per unit of error
    abstain: Floats  # [cells], cost of an abstention

    @property
    def environment(self) -> Environment | Adaptive:
        """The environment that is played."""
        return ENVIRONMENTS[self.sweep.environment]

    def stream(self) -> Stream:
        """The records of every trial in a world that does not react, before round 1."""
        assert isinstance(self.environment, Environment)
        return Stream(self.environment, self.pools, self.horizon, self.sweep.seed, self.trials)

    def world(self) -> World:
        """What an environment that answers back may ask."""
        assert isinstance(self.environment, Adaptive)
        key = uniforms.trial_keys(self.sweep.seed, uniforms.ENVIRONMENT, np.array([2**32 - 1]))
        return make_world(
            self.grid,
            [r.scores for r in self.records],
            [r.errors for r in self.records],
            [r.groups for r in self.records],
            self.horizon if self.environment.spends else None,
            (key[0][0], key[1][0]),
        )

    def rates(self, name: str) -> tuple[Floats, Floats]:
        """A learner's eta and gamma by block."""
        sweep, learner = self.sweep, LEARNERS[name]
        hand = (sweep.step, sweep.drift) if learner.kind == "descent" else (sweep.eta, sweep.gamma)
        return block_rates(learner, self.horizon, sweep.arms, sweep.anytime, *hand)

    def backend(self, name: str) -> str:
        """The backend that a learner plays on."""
        eta, precision = self.rates(name)[0], self.sweep.precision
        platform = jax.default_backend()
        given = LEARNERS[name], self.sweep.backend, platform, eta, self.horizon, precision
        return choose_backend(*given, by_turns=isinstance(self.environment, Adaptive))

    def copies(self, name: str, where: str, precision: str, best: NDArray[np.int32] | None = None) -> Copies:
        """A learner's copies on a backend, cell after cell; ``best`` [cells, trials] is for comparators."""
        cells, trials = len(self.alpha), len(self.trials)
        return Copies(
            backend(LEARNERS[name], where, precision),
            *self.rates(name),
            np.repeat(self.alpha, trials),
            np.repeat(self.answer, trials),
            np.repeat(self.abstain, trials),
            np.tile(np.arange(trials, dtype=np.int32), cells),
            np.zeros(cells * trials, np.int32) if best is None else best.ravel(),
        )


def prepare(sweep: "Sweep", records: Sequence[Records], trials: NDArray[np.int64]) -> Game:
    """Make a sweep ready for some trials, by number.

    Raises:
        BadInput: the horizon is longer than the log that is replayed, or the rates too large for the backend.
    """
    horizon = _horizon(sweep, records)
    grid = GRIDS[sweep.grid](sweep.arms, np.concatenate([r.scores for r in records]))
    lambdas = sweep.lambdas or (math.sqrt(horizon),)
    alpha, lam = (x.ravel() for x in np.meshgrid(sweep.alphas, lambdas, indexing="ij"))
    pools = tuple(Pool(cuts(grid, r.scores), r.errors) for r in records)
    game = Game(sweep, horizon, grid, pools, trials, tuple(records), alpha, lam, *costs(alpha, lam))
    for name in sweep.learners:
        game.backend(name)
    return game
