"""A sweep: learners x alphas x lambdas x trials over one environment, checked once, played in one call."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from engine import figures, output, plugins, summary
from engine.environments import ENVIRONMENTS
from engine.environments.adaptive import Adaptive, World
from engine.environments.adaptive import world as make_world
from engine.environments.oblivious import Environment, Pool, Stream
from engine.errors import BadInput
from engine.flags import known, setting, within
from engine.interaction import Met, meet
from engine.learners import BACKENDS, LEARNERS, backend, block_lengths, block_rates, choose_backend
from engine.metrics import Floats
from engine.results import Played, asked_table, curves_table, lemma_holds, trials_table
from engine.rollout import Copies, Rollout, Survey, play_all
from engine.sources import PROFILES, Columns, Records, load_log, load_profile
from engine.tables import Table
from kernels import uniforms
from kernels.game import GRIDS, costs, cuts
from kernels.learner import Learner

PRECISIONS = ("float64", "float32")
EVERY = tuple(LEARNERS)


@dataclass(frozen=True, kw_only=True)
class Sweep(Columns):
    """What to play. Every field is a flag of ``exaul sweep``.

    Raises:
        BadInput: a field is out of its range; the sentence names it.
    """

    logs: tuple[str, ...] = setting(
        (),
        "log(s) of scored answers: CSV (also .gz), JSON lines or Parquet; COL=VALUE keeps the rows that match",
        "PATH[:COL=VALUE,...]",
    )
    sources: tuple[str, ...] = setting(
        (),
        "built-in profile(s) instead of logs, see 'exaul profiles' (default: triviaqa-like; the shifts: "
        "triviaqa-like, then nq-like)",
        "PROFILE",
    )
    environment: str = setting(
        "stochastic", "how records follow one another: {environments}; or MODULE:NAME of your own", "NAME"
    )
    learners: tuple[str, ...] = setting(
        EVERY, "learners to play: {learners}, or MODULE:NAME of your own (default: all that can)", "NAME"
    )
    alphas: tuple[float, ...] = setting((0.05,), "target FDR(s), each in (0, 1)", "ALPHA")
    lambdas: tuple[float, ...] = setting(
        (), "weight(s) of the FDR against abstaining, >= 0 (default: sqrt(T))", "LAMBDA"
    )
    horizon: int | None = setting(None, "rounds T of a trial (default: 30000; replay: the whole log)", "T")
    trials: int = setting(100, "trials, each with its own draws", "N")
    arms: int = setting(1000, "thresholds H of the grid, at least 2", "H")
    grid: str = setting(
        "uniform",
        "thresholds: uniform (the paper's), logit (even in logit, for likelihoods that crowd near 1), or "
        "quantile (of the given records: it looks ahead)",
        "NAME",
    )
    group: str | None = setting(
        None, "column of question groups, which adversaries tell apart (default: ten bins of the score)", "COL"
    )
    seed: int = setting(0, "of all draws; the same seed gives the same bits", "N")
    checkpoints: int = setting(200, "points of the curves over time", "P")
    delta: float = setting(0.05, "the bounds hold with probability 1 - delta", "DELTA")
    anytime: bool = setting(False, "rates for an unknown horizon, falling over blocks of 256 rounds")
    eta: float | None = setting(None, "learning rate by hand (default: each learner's own)", "X")
    gamma: float | None = setting(None, "implicit exploration by hand (default: each learner's own)", "X")
    precision: str = setting(
        "float64", "float64, or float32: losses in float64 and sums of weights in float32", "NAME"
    )
    backend: str | None = setting(
        None,
        "how weights are held, for the learners that it can hold: {backends} (default: the fastest for each "
        "learner and device; dense is the readable reference)",
        "NAME",
    )
    out: str | None = setting(None, "folder for tables, figures and manifest: absent or empty", "DIR")

    def __post_init__(self) -> None:
        super().__post_init__()
        for f in fields(self):
            if isinstance(f.default, tuple):
                given = getattr(self, f.name)
                object.__setattr__(self, f.name, (given,) if isinstance(given, str) else tuple(given))
        if self.logs and self.sources:
            raise BadInput("logs: given together with sources; choose one of the two")
        plugins.find("environment", (self.environment,), ENVIRONMENTS, (Environment, Adaptive))
        plugins.find("learners", self.learners, LEARNERS, (Learner,))
        self._check_whether_it_reacts()
        known("grid", (self.grid,), GRIDS)
        known("sources", self.sources, PROFILES)
        known("precision", (self.precision,), PRECISIONS)
        known("backend", () if self.backend is None else (self.backend,), BACKENDS)
        for name in ("learners", "alphas"):
            if not getattr(self, name):
                raise BadInput(f"{name}: none given; at least one is needed")
        for name in ("learners", "alphas", "lambdas"):
            twice = [x for x in getattr(self, name) if getattr(self, name).count(x) > 1]
            if twice:
                raise BadInput(f"{name}: {twice[0]} is given twice")
        for alpha in self.alphas:
            within("alphas", alpha, 0 < alpha < 1, "in (0, 1)")
        for lam in self.lambdas:
            within("lambdas", lam, 0 <= lam < math.inf, "a finite number >= 0")
        within("delta", self.delta, 0 < self.delta < 1, "in (0, 1)")
        within("trials", self.trials, 1 <= self.trials < 2**31, "at least 1")
        within("checkpoints", self.checkpoints, self.checkpoints >= 1, "at least 1")
        within("arms", self.arms, 2 <= self.arms < 2**31, "at least 2")
        within("seed", self.seed, 0 <= self.seed < 2**64, "an integer from 0 to 2**64 - 1")
        if self.horizon is not None:
            within("horizon", self.horizon, 1 <= self.horizon < 2**31, "at least 1")
        if self.eta is not None:
            within("eta", self.eta, 0 < self.eta < math.inf, "a finite number > 0")
        if self.gamma is not None:
            within("gamma", self.gamma, 0 <= self.gamma < math.inf, "a finite number >= 0")

    def _check_whether_it_reacts(self) -> None:
        if not isinstance(ENVIRONMENTS[self.environment], Adaptive):
            if self.group is not None:
                raise BadInput(f"group: given, but {self.environment} does not choose among groups")
            return
        hindsight = [name for name in self.learners if LEARNERS[name].feedback == "hindsight"]
        if self.learners == EVERY:
            object.__setattr__(self, "learners", tuple(x for x in EVERY if x not in hindsight))
        elif hindsight:
            raise BadInput(
                f"learners: {hindsight[0]} found; what {self.environment} asks depends on the learner, and no arm "
                "is known to be best beforehand"
            )


@dataclass(frozen=True)
class Result:
    """What a sweep showed.

    ``trials`` has a row a learner, alpha, lambda and trial; ``curves`` a row a checkpoint; ``asked``
    the same of what a world that answers back asked, None elsewhere; ``manifest`` what it
    takes to run it again; ``records`` the logs or profiles that were played.
    """

    sweep: Sweep
    trials: Table
    curves: Table
    asked: Table | None
    manifest: dict[str, Any]
    records: tuple[Records, ...]

    @property
    def lemma_holds(self) -> bool:
        """Whether Lemma 1 held in every trial; if not, the accounting is wrong."""
        return bool(lemma_holds(self.trials).all())

    def summary(self) -> str:
        """The figures that matter, as text."""
        sweep = self.sweep
        dropped = [f"{r.name}: {r.dropped} rows without score or label left out" for r in self.records if r.dropped]
        feasible = summary.feasibility(self.records, sweep.grid, sweep.arms, sweep.alphas)
        parts = [summary.summarize(self.trials), summary.explain(sweep.delta), feasible, *dropped]
        return "\n\n".join(parts)


def load(sweep: Sweep, records: Sequence[Records] | None = None) -> tuple[Records, ...]:
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


def _horizon(sweep: Sweep, records: Sequence[Records]) -> int:
    if sweep.environment != "replay":
        return 30_000 if sweep.horizon is None else sweep.horizon
    length = len(records[0].scores)
    if sweep.horizon is not None and sweep.horizon > length:
        raise BadInput(f"horizon: {sweep.horizon} found; replay of {records[0].name} has {length} rounds")
    return length if sweep.horizon is None else sweep.horizon


def run(sweep: Sweep, records: Sequence[Records] | None = None, *, progress: bool = False) -> Result:
    """Play a sweep, and write its folder if it names one.

    Args:
        sweep: what to play.
        records: in memory, instead of the sweep's logs or sources, in their order.
        progress: show a bar on stderr with rounds a second and the time left.

    Raises:
        BadInput: a log or the output folder cannot be used; nothing was written.
    """
    start = datetime.now(UTC)
    records = load(sweep, records)
    game = prepare(sweep, records, sweep.trials)
    folder = None if sweep.out is None else output.claim(sweep.out)
    with jax.enable_x64(True):
        played = _play(game, " -> ".join(r.name for r in records), progress)
    result = Result(
        sweep,
        trials_table(played),
        curves_table(played),
        asked_table(played),
        output.manifest(sweep, records, game.horizon, start),
        records,
    )
    if folder is not None:
        drawn = figures.draw(result.trials, result.curves, getattr(game.environment, "parts", 1))
        tabled = {"trials": result.trials, "curves": result.curves}
        if result.asked is not None:
            tabled |= {"asked": result.asked}
            drawn |= {"asked": figures.asked(result.asked)}
        output.write(folder, tabled, drawn, result.manifest)
    return result


@dataclass(frozen=True)
class Game:
    """A sweep made ready: what is played, and the numbers of its cells and copies."""

    sweep: Sweep
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
        sweep = self.sweep
        return block_rates(LEARNERS[name], self.horizon, sweep.arms, sweep.anytime, sweep.eta, sweep.gamma)

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
            np.repeat(self.answer, trials),
            np.repeat(self.abstain, trials),
            np.tile(np.arange(trials, dtype=np.int32), cells),
            np.zeros(cells * trials, np.int32) if best is None else best.ravel(),
        )


def prepare(sweep: Sweep, records: Sequence[Records], trials: int) -> Game:
    """Make a sweep ready for some trials.

    Raises:
        BadInput: the horizon is longer than the log that is replayed, or the rates too large for the backend.
    """
    horizon = _horizon(sweep, records)
    grid = GRIDS[sweep.grid](sweep.arms, np.concatenate([r.scores for r in records]))
    lambdas = sweep.lambdas or (math.sqrt(horizon),)
    alpha, lam = (x.ravel() for x in np.meshgrid(sweep.alphas, lambdas, indexing="ij"))
    pools = tuple(Pool(cuts(grid, r.scores), r.errors) for r in records)
    game = Game(sweep, horizon, grid, pools, np.arange(trials), tuple(records), alpha, lam, *costs(alpha, lam))
    for name in sweep.learners:
        game.backend(name)
    return game


def _play(game: Game, source: str, progress: bool) -> Played:
    sweep, horizon = game.sweep, game.horizon
    steps = min(sweep.checkpoints, horizon)
    checkpoints = -(-np.arange(1, steps + 1) * horizon // steps)
    copies, hide = len(game.alpha) * len(game.trials), None if progress else True  # None: hide unless on a terminal
    total = horizon * copies * len(sweep.learners)
    with tqdm(total=total, unit=" rounds", unit_scale=True, disable=hide, desc="all copies") as bar:
        how = _meet if isinstance(ENVIRONMENTS[sweep.environment], Adaptive) else _roll
        met = how(game, checkpoints, lambda learners, rounds: bar.update(learners * copies * rounds))

    shape = len(checkpoints), len(game.alpha), len(game.trials)
    rates, lengths = {name: game.rates(name) for name in sweep.learners}, block_lengths(horizon)
    return Played(
        learners=sweep.learners,
        environment=sweep.environment,
        source=source,
        grid_name=sweep.grid,
        grid=game.grid,
        alphas=game.alpha,
        lambdas=game.lam,
        trials=game.trials,
        checkpoints=checkpoints,
        answer=game.answer,
        abstain=game.abstain,
        best_loss={name: met[name].best_loss.reshape(shape) for name in met},
        best_arm={name: met[name].best_arm.reshape(shape[1:]) for name in met},
        eta={name: float(rates[name][0][-1]) for name in rates},
        gamma={name: float(rates[name][1][-1]) for name in rates},
        regret_bound={
            name: LEARNERS[name].regret_bound(*rates[name], lengths, sweep.arms, sweep.delta) for name in rates
        },
        answered={name: met[name].answered.reshape(shape) for name in met},
        wrong={name: met[name].wrong.reshape(shape) for name in met},
        asked={
            name: {kind: sums.reshape(shape) for kind, sums in met[name].asked.items()}
            for name in met
            if met[name].asked
        },
    )


def _roll(game: Game, checkpoints: NDArray[np.int64], tell: Callable[[int, int], object]) -> dict[str, Met]:
    """Every learner over the records of a world that does not react; comparators once the best arm is known."""
    sweep = game.sweep
    survey = Survey(game.stream().column, sweep.arms, checkpoints, game.answer, game.abstain)
    hindsight = [name for name in sweep.learners if LEARNERS[name].feedback == "hindsight"]
    others = [name for name in sweep.learners if name not in hindsight]
    met: dict[str, Met] = {}
    for names, finder in ((others, survey), (hindsight, None)):
        copies = {name: game.copies(name, game.backend(name), sweep.precision, survey.best_arm) for name in names}
        playing = {name: Rollout(copies[name], game.stream(), sweep.arms, len(checkpoints)) for name in names}
        if names or finder is not None:
            play_all(list(playing.values()), game.stream(), checkpoints, partial(tell, len(names)), finder)
        for name, rollout in playing.items():
            met[name] = Met(rollout.answered, rollout.wrong, survey.best_loss, survey.best_arm, {})
    return met


def _meet(game: Game, checkpoints: NDArray[np.int64], tell: Callable[[int, int], object]) -> dict[str, Met]:
    """Every learner against an environment that answers back, each in games of its own."""
    sweep, environment = game.sweep, game.environment
    assert isinstance(environment, Adaptive)
    world, alpha = game.world(), np.repeat(game.alpha, len(game.trials))
    defaults = np.array([x.default for x in environment.tunables])
    tuning = np.broadcast_to(defaults[:, None], (len(defaults), len(alpha)))
    met = {}
    for name in sweep.learners:
        copies = game.copies(name, game.backend(name), sweep.precision)
        given = copies, environment, world, alpha, tuning, game.trials, sweep.seed, checkpoints
        met[name] = meet(*given, partial(tell, 1))
    return met
