"""A sweep is resolved once: names become players, with their backend and rates, and a world; logs become pools.

Nothing that comes after looks up a name, asks what a learner or a backend is, or computes rates again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from exaul.engine import registry
from exaul.engine.checks import BadInput
from exaul.engine.data.logs import load_log, named_apart
from exaul.engine.data.profiles import load_profile
from exaul.engine.data.records import Records
from exaul.engine.data.settings import with_values
from exaul.engine.environments.adaptive import Adaptive, Aim, World, choices_of
from exaul.engine.environments.adaptive import world as make_world
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.machine import devices
from exaul.engine.machine.memory import check
from exaul.engine.play import own
from exaul.engine.play.players import Player, player_of
from exaul.engine.play.proof import WORLD, decisions
from exaul.engine.play.schedule import Stream
from exaul.engine.rated import described
from exaul.engine.sweep import Sweep
from exaul.kernels import uniforms
from exaul.kernels.backends import native
from exaul.kernels.game import GRIDS, Copies, costs, cuts
from exaul.kernels.learners.learner import Learner
from exaul.kernels.metrics import Floats
from exaul.kernels.records import Pool, streams
from exaul.kernels.thumbs import PERFECT

Environment = Oblivious | Adaptive
HORIZON = 30_000  # by default


@dataclass(frozen=True)
class Prepared:
    """A sweep made ready: who plays what, and the numbers of its cells and copies."""

    sweep: Sweep
    world_name: str  # of the environment, with the values that were set for its tunables
    environment: Environment
    tuning: Floats  # [tunables] of an environment that answers back
    players: tuple[Player, ...]
    horizon: int
    checkpoints: NDArray[np.int64]  # [P] rounds, the last the horizon
    grid: Floats  # [H]
    records: tuple[Records, ...]
    trials: NDArray[np.int64]
    alpha: Floats  # [cells]
    lam: Floats  # [cells]
    answer_cost: Floats  # [cells], loss of an answer per unit of error
    abstain_cost: Floats  # [cells], loss of an abstention

    @property
    def reacts(self) -> bool:
        """Whether the world answers back."""
        return isinstance(self.environment, Adaptive)

    @property
    def rounds(self) -> int:
        """The rounds of all copies that are played here."""
        return self.horizon * len(self.alpha) * len(self.trials) * len(self.players)

    @property
    def own_records(self) -> bool:
        """Whether each trial has records of its own, in a world that does not react."""
        return isinstance(self.environment, Oblivious) and self.environment.shuffled

    @cached_property
    def pools(self) -> tuple[Pool, ...]:
        """The records as the game sees them."""
        return tuple(Pool(cuts(self.grid, r.scores), r.errors) for r in self.records)

    def stream(self) -> Stream:
        """The records of every trial in a world that does not react, before round 1."""
        assert isinstance(self.environment, Oblivious)
        world, horizon, seed = self.environment, self.horizon, self.sweep.seed
        trials = self.trials if self.own_records else self.trials[:1]
        records = streams(world.pool, world.shuffled, self.pools, horizon, seed, trials)
        return Stream(records, horizon, seed, self.trials, self.sweep.thumbs != PERFECT)

    def world(self) -> World:
        """What an environment that answers back may ask."""
        assert isinstance(self.environment, Adaptive)
        key = uniforms.trial_keys(self.sweep.seed, uniforms.ENVIRONMENT, np.array([2**32 - 1]))
        return make_world(
            self.grid,
            [r.scores for r in self.records],
            [r.errors for r in self.records],
            [self._groups if r.groups is None else r.groups for r in self.records],
            self.horizon if self.environment.spends else None,
            (key[0][0], key[1][0]),
        )

    @property
    def _groups(self) -> str:
        """What the groups of records are where the logs name none."""
        assert isinstance(self.environment, Adaptive)
        for x, value in zip(self.environment.tunables, self.tuning, strict=True):
            if x.name == "groups":
                return x.words[int(value)]
        return "source"

    def copies(self, column: NDArray[np.int32] | None = None) -> Copies:
        """The copies of any player, cell after cell.

        Args:
            column: [trials], which stream of records a trial meets; None if each copy has its own.
        """
        cells, trials = len(self.alpha), len(self.trials)
        trial = np.tile(np.arange(trials, dtype=np.int32), cells)
        return Copies(
            np.repeat(self.alpha, trials),
            np.repeat(self.answer_cost, trials),
            np.repeat(self.abstain_cost, trials),
            np.arange(len(trial), dtype=np.int32) if column is None else column[trial],
            trial,
        )

    def padded_copies(self, column: NDArray[np.int32]) -> Copies:
        """The same, with the first of them again at the end, so that every device gets whole tiles."""
        copies = self.copies(column)
        return copies.take(devices.padded(len(copies.draw)))


def prepare(
    sweep: Sweep, records: Sequence[Records] | None = None, trials: NDArray[np.int64] | None = None
) -> Prepared:
    """Resolve a sweep.

    Args:
        sweep: what to play.
        records: in memory, instead of the sweep's logs or sources, in their order.
        trials: by number; None for those that are played here.

    Raises:
        BadInput: a name, a log, the horizon or a rate cannot be used; the sentence says why.
    """
    environment = registry.find("environment", sweep.environment, registry.ENVIRONMENTS, (Oblivious, Adaptive))
    learners = _learners(sweep, isinstance(environment, Adaptive))
    cells = len(sweep.alphas) * max(1, len(sweep.lambdas))
    _check_memory(sweep, HORIZON if sweep.horizon is None else sweep.horizon, cells, len(learners))
    found = _load(sweep, environment, records)
    horizon = _horizon(sweep, environment, found)
    if isinstance(environment, Oblivious) and ":" in sweep.environment:
        _check_pool(sweep, environment, horizon)
    lambdas = sweep.lambdas or (math.sqrt(horizon),)
    alpha, lam = (x.ravel() for x in np.meshgrid(sweep.alphas, lambdas, indexing="ij"))
    steps = min(sweep.checkpoints, horizon)
    values = _world_values(sweep, environment)
    tunables = environment.tunables if isinstance(environment, Adaptive) else ()
    prepared = Prepared(
        sweep,
        with_values(sweep.environment, values | described(sweep)),
        environment,
        np.array([x.value(values[x.name]) if x.name in values else x.default for x in tunables]),
        tuple(_player(sweep, name, one, horizon, environment, alpha, lam) for name, one in learners.items()),
        horizon,
        -(-np.arange(1, steps + 1) * horizon // steps),
        GRIDS[sweep.grid](sweep.arms, np.concatenate([r.scores for r in found])),
        found,
        trials_here(sweep) if trials is None else trials,
        alpha,
        lam,
        *costs(alpha, lam),
    )
    if prepared.reacts and ":" in sweep.environment:
        _check_world(prepared)
    return prepared


def _check_memory(sweep: Sweep, horizon: int, cells: int, learners: int) -> None:
    """Refuse a sweep that cannot fit the host whatever the batches, before anything is allocated.

    Raises:
        BadInput: its tables and a tile of copies are larger than what is free.
    """
    marks = min(sweep.checkpoints, horizon)
    least = 8 * (devices.TILE * sweep.arms + sweep.trials * (1 + 2 * cells * marks * learners))
    check(f"trials, arms, checkpoints: {sweep.trials}, {sweep.arms}, {sweep.checkpoints} found", least)


def trials_here(sweep: Sweep) -> NDArray[np.int64]:
    """The trials that are played here, by number: all, or those of the shard."""
    part, parts = (1, 1) if sweep.shard is None else map(int, sweep.shard.split("/"))
    return np.arange((part - 1) * sweep.trials // parts, part * sweep.trials // parts)


def _check_pool(sweep: Sweep, environment: Oblivious, horizon: int) -> None:
    """Try the function of an environment of one's own, on arrays and compiled.

    Raises:
        BadInput: it fails, or names a pool that is not there.
    """
    t, u = np.linspace(1, horizon, 1000).astype(np.int64), np.linspace(0, 1, 1000, endpoint=False)
    nothing = Pool(np.ones(1, np.int32), np.zeros(1))
    one = streams(environment.pool, False, [nothing] * environment.sources, horizon, 0, np.zeros(1, np.int64))
    played = one.none_played().astype(np.int64)
    with own.refused("environment: pool of", sweep.environment):
        chosen = np.asarray(environment.pool(np.where, t, horizon, u))
        native.fill(one, played, 0, 1, np.ones((1, 1), np.int32), np.zeros((1, 1)))
    outside = chosen[(chosen < 0) | (chosen >= environment.sources)]
    if outside.size:
        wanted = f"it must be one of 0 to {environment.sources - 1}"
        raise BadInput(f"environment: pool of {sweep.environment} is {outside.flat[0]}; {wanted}")


def _check_world(prepared: Prepared) -> None:
    """Try the functions of an environment of one's own that reacts, compiled, on one round of two copies.

    Raises:
        BadInput: one fails, or what it returns cannot be played.
    """
    name, environment, arms = prepared.sweep.environment, prepared.environment, len(prepared.grid)
    assert isinstance(environment, Adaptive)
    numbers = prepared.alpha[0], prepared.answer_cost[0], prepared.abstain_cost[0], prepared.tuning
    aim = Aim(*numbers, choices_of(environment, prepared.tuning))

    def turn(world: World, aim: Aim, answered: Any) -> tuple[Any, Any, Any, Any]:
        state = jax.tree.map(jnp.asarray, environment.init(world))
        coins, masses = jnp.full(environment.draws, 0.5), jnp.full(arms, 1 / arms)
        question = environment.ask(state, world, aim, coins, masses if environment.sees_masses else None)
        return question.cut, question.error, state, environment.see(state, question, answered)

    with own.refused("environment: functions of", name, own.TRACED), jax.enable_x64(True):
        games = jax.jit(jax.vmap(turn, in_axes=(None, None, 0)))
        cut, error, before, after = games(prepared.world(), aim, np.array([True, False]))
        form, other = (jax.tree.map(lambda x: (x.shape[1:], str(x.dtype)), state) for state in (before, after))
    here = f"environment: {name}"
    if form != other:
        raise BadInput(f"{here}: see returns a state of another form than init: {other}, not {form}")
    for what, found, kind, low, high in (("cut", cut, "iu", 1, arms - 1), ("error", error, "f", 0, 1)):
        if found.shape != (2,) or found.dtype.kind not in kind:
            kinds = f"{found.dtype} of shape {found.shape[1:]}"
            raise BadInput(f"{here}: ask returns {what} as {kinds}; Question says what it must be")
        if not np.all((found >= low) & (found <= high)):
            raise BadInput(
                f"{here}: ask returns {what} {np.asarray(found).tolist()}; it must be from {low} to {high}"
            )


def _player(
    sweep: Sweep,
    name: str,
    learner: Learner[Any],
    horizon: int,
    environment: Environment,
    alpha: Floats,
    lam: Floats,
) -> Player:
    """A learner with its backend and rates; one of one's own is tried, for its rule is compiled where it is played.

    Raises:
        BadInput: its code fails, or its rates are too large for the backend that is wanted.
    """
    if ":" not in name:
        return player_of(sweep, name, learner, horizon, environment, alpha, lam)
    with own.refused("learners:", name), jax.enable_x64(True):
        player = player_of(sweep, name, learner, horizon, environment, alpha, lam)
        world = environment if isinstance(environment, Oblivious) else WORLD
        decisions(learner, player.backend, world, player.thumbs != PERFECT)
    return player


def _learners(sweep: Sweep, reacts: bool) -> dict[str, Learner[Any]]:
    """The learners by name; by default those of which comparators cannot play in a world that reacts.

    Raises:
        BadInput: one is named that cannot.
    """
    names = sweep.learners or registry.DEFAULT
    found = {name: registry.find("learners", name, registry.LEARNERS, (Learner,)) for name in names}
    if not reacts:
        return found
    comparators = [name for name, learner in found.items() if learner.feedback == "hindsight"]
    if comparators and sweep.learners:
        raise BadInput(
            f"learners: {comparators[0]} found; what {sweep.environment} asks is known only while it is played, "
            "and no threshold is known to be that of least loss beforehand"
        )
    return {name: learner for name, learner in found.items() if name not in comparators}


def _load(sweep: Sweep, environment: Environment, records: Sequence[Records] | None) -> tuple[Records, ...]:
    """The records of a sweep, in the order of its flags; or those in memory, if there are any.

    Raises:
        BadInput: a log cannot be used, or the environment needs another number of them.
    """
    for name in ("each", "least"):
        if getattr(sweep, name) != getattr(Sweep, name):
            raise BadInput(f"{name}: given, but what is played here is one sweep, not one for each trace")
    needed = environment.sources
    names = sweep.logs or sweep.sources or ("triviaqa-like", "nq-like")[:needed]
    kind, many = ("logs" if sweep.logs else "sources", len(names)) if records is None else ("records", len(records))
    if many != needed:
        raise BadInput(f"{kind}: {many} given; {sweep.environment} needs {needed}")
    if sweep.group is not None and isinstance(environment, Oblivious):
        raise BadInput(f"group: given, but {sweep.environment} does not choose among groups")
    if sweep.group is not None and any(text.startswith("groups=") for text in sweep.world):
        raise BadInput("group: given together with a value for groups; choose one of the two")
    if records is not None:
        if sweep.logs or sweep.sources:
            raise BadInput("records: given together with logs or sources; choose one of the two")
        return tuple(records)
    if not sweep.logs and sweep.group is not None:
        raise BadInput("group: given without logs; a built-in profile has no such column")
    if not sweep.logs:
        return tuple(load_profile(name) for name in names)
    return named_apart([load_log(log, sweep, sweep.group) for log in names])


def _horizon(sweep: Sweep, environment: Environment, records: Sequence[Records]) -> int:
    """The rounds T: a log in its own order is played once, at most to its end.

    Raises:
        BadInput: the log is shorter.
    """
    if isinstance(environment, Adaptive) or environment.shuffled or environment.sources > 1:
        return HORIZON if sweep.horizon is None else sweep.horizon
    length = len(records[0].scores)
    if sweep.horizon is not None and sweep.horizon > length:
        whole = f"{sweep.environment} of {records[0].name} has {length} rounds"
        raise BadInput(f"horizon: {sweep.horizon} found; {whole}")
    return length if sweep.horizon is None else sweep.horizon


def _world_values(sweep: Sweep, environment: Environment) -> dict[str, str]:
    """The values that a sweep gives to tunables of its world, by name.

    Raises:
        BadInput: the world has no such tunable, or the value is outside its bounds.
    """
    tunables = {x.name: x for x in environment.tunables} if isinstance(environment, Adaptive) else {}
    found = dict(text.split("=", 1) for text in sweep.world)
    for name, text in found.items():
        if name not in tunables:
            names = ", ".join(tunables) or "none"
            raise BadInput(f"world: {sweep.environment} has nothing called {name!r} to be set; it has: {names}")
        value = tunables[name].value(text)
        if not tunables[name].low <= value <= tunables[name].high:
            raise BadInput(f"world: {name}={text} found; it must be {tunables[name].allowed}")
    return found
