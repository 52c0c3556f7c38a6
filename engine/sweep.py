"""A sweep: learners x alphas x lambdas x trials over one environment, checked once, played in one call."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from engine import figures, hosts, memory, output, plugins, summary, tables
from engine.devices import TILE
from engine.environments import ENVIRONMENTS
from engine.environments.adaptive import Adaptive
from engine.environments.oblivious import Environment
from engine.errors import BadInput
from engine.flags import known, setting, within
from engine.game import Game, load, prepare
from engine.learners import BACKENDS, LEARNERS, PAPER, by_hand
from engine.playing import play
from engine.progress import Progress
from engine.results import (
    Played,
    asked_table,
    curves_table,
    lemma_holds,
    risk_holds,
    save_played,
    trials_table,
)
from engine.session import Session, read_manifest, refuse_changes
from engine.sources import PROFILES, Columns, Records
from engine.tables import Table
from kernels.game import GRIDS
from kernels.learner import Learner
from kernels.threshold import DRIFT, STEP

PRECISIONS = ("float64", "float32")


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
        PAPER,
        "learners to play: {learners}, or MODULE:NAME of your own (default: those of the paper that can)",
        "NAME",
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
    step: str | None = setting(
        None,
        f"step of threshold, in shares of the grid: a number, or X/sqrt for X / sqrt(t) (default: {STEP})",
        "X",
    )
    drift: str | None = setting(None, f"drift of threshold while it abstains, likewise (default: {DRIFT})", "X")
    precision: str = setting(
        "float64", "float64, or float32: losses in float64 and sums of weights in float32", "NAME"
    )
    backend: str | None = setting(
        None,
        "how weights are held, for the learners that it can hold: {backends} (default: the fastest for each "
        "learner and device; dense is the readable reference)",
        "NAME",
    )
    shard: str | None = setting(
        None, "play the I-th of N parts of the trials, for 'exaul merge' (I from 1 to N)", "I/N"
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
        for name in ("step", "drift"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, str(getattr(self, name)))
                self._check_rate(name)
        self._check_shard()
        self._check_size()
        if self.gamma is not None:
            within("gamma", self.gamma, 0 <= self.gamma < math.inf, "a finite number >= 0")

    def _check_rate(self, name: str) -> None:
        text, allowed = getattr(self, name), f"{'0 <' if name == 'step' else '0 <='} X <= 1"
        try:
            rate = by_hand(text)(1)
        except ValueError:
            rate = math.nan
        within(name, repr(text), 0 <= rate <= 1 and (rate > 0 or name == "drift"), f"X or X/sqrt, {allowed}")

    def _check_size(self) -> None:
        """Refuse what cannot fit whatever the batches, before anything is allocated."""
        cells = len(self.alphas) * max(1, len(self.lambdas))
        marks = min(self.checkpoints, 30_000 if self.horizon is None else self.horizon)
        least = 8 * (TILE * self.arms + self.trials * (1 + 2 * cells * marks * len(self.learners)))
        if least > memory.on_host():
            raise BadInput(
                f"trials, arms, checkpoints: {self.trials}, {self.arms}, {self.checkpoints} found; they need "
                f"{memory.size(least)} of memory at least, and {memory.size(memory.on_host())} is free"
            )

    def _check_shard(self) -> None:
        if self.shard is None:
            return
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", self.shard)
        if match is None or not 1 <= int(match[1]) <= int(match[2]) <= self.trials:
            raise BadInput(
                f"shard: {self.shard!r} found; it must be I/N, 1 <= I <= N <= {self.trials} (the number of trials)"
            )

    def numbers(self) -> NDArray[np.int64]:
        """The trials that are played here, by number: all, or those of the shard, shared among the hosts.

        Raises:
            BadInput: there are fewer than hosts.
        """
        part, parts = (1, 1) if self.shard is None else map(int, self.shard.split("/"))
        return hosts.share(np.arange((part - 1) * self.trials // parts, part * self.trials // parts))

    def _check_whether_it_reacts(self) -> None:
        if not isinstance(ENVIRONMENTS[self.environment], Adaptive):
            if self.group is not None:
                raise BadInput(f"group: given, but {self.environment} does not choose among groups")
            return
        hindsight = [name for name in self.learners if LEARNERS[name].feedback == "hindsight"]
        if self.learners == PAPER:
            object.__setattr__(self, "learners", tuple(x for x in PAPER if x not in hindsight))
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

    def write(self, folder: Path, played: Played) -> None:
        """Write tables and figures into a folder that is there, and of a shard the counts that are merged."""
        drawn = figures.draw(self.trials, self.curves, getattr(ENVIRONMENTS[self.sweep.environment], "parts", 1))
        tabled = {"trials": self.trials, "curves": self.curves}
        if self.asked is not None:
            tabled |= {"asked": self.asked}
            drawn |= {"asked": figures.asked(self.asked)}
        output.fill(folder, tabled, drawn)
        if self.sweep.shard is not None:
            with (folder / "counts.npz").open("wb") as stream:
                save_played(played, stream)

    @property
    def lemma_holds(self) -> bool:
        """Whether Lemma 1 held in every trial; if not, the accounting is wrong."""
        return bool(lemma_holds(self.trials).all())

    @property
    def risk_holds(self) -> bool:
        """Whether R_T was within the bound of every learner that has one, in every trial."""
        return bool(risk_holds(self.trials).all())

    def summary(self) -> str:
        """The figures that matter, as text."""
        sweep = self.sweep
        dropped = [f"{r.name}: {r.dropped} rows without score or label left out" for r in self.records if r.dropped]
        feasible = summary.feasibility(self.records, sweep.grid, sweep.arms, sweep.alphas)
        parts = [summary.summarize(self.trials), summary.explain(self.trials, sweep.delta), feasible, *dropped]
        return "\n\n".join(part for part in parts if part)


def run(
    sweep: Sweep, records: Sequence[Records] | None = None, *, progress: str = "quiet", save_every: float = 60
) -> Result:
    """Play a sweep, and write its folder if it names one.

    Args:
        sweep: what to play.
        records: in memory, instead of the sweep's logs or sources, in their order.
        progress: what is told on stderr: ``bar``, ``json`` (a line now and then) or ``quiet``.
        save_every: seconds between saves of the state, from which ``resume`` goes on.

    Raises:
        BadInput: a log or the output folder cannot be used; nothing was written.
    """
    start = _now()
    game = prepare(sweep, load(sweep, records), sweep.numbers())
    return _start(game, output.manifest(sweep, game.records, game.horizon, start), progress, save_every)


def resume(
    folder: str, given: Sweep | None = None, *, progress: str = "quiet", save_every: float = 60
) -> Result | None:
    """Go on with a sweep that was interrupted, to the same bits; None if it had ended, and nothing changes.

    Args:
        folder: that it writes to.
        given: fields of it that are not at their defaults must be those of the folder.
        progress: as in ``run``.
        save_every: as in ``run``.

    Raises:
        BadInput: there is no sweep, another process plays it, or its configuration, a log or a version has changed.
    """
    there = read_manifest(Path(folder))
    if given is not None:
        if given.out is not None:
            raise BadInput("out: given together with resume, which names the folder")
        for f in fields(Sweep):
            value, kept = tables.as_json(getattr(given, f.name)), there["configuration"].get(f.name)
            if getattr(given, f.name) != f.default and value != kept:
                raise BadInput(f"resume: {f.name} is {value!r} here, {kept!r} in {folder}")
    if there.get("end") is not None:
        return None
    game, about = _recalled(there, folder, "resume")
    with Session.again(Path(folder), save_every) as session:
        return _finish(game, session, about | {key: there[key] for key in ("start", "batch")}, progress)


def rerun(folder: str, out: str | None = None, *, progress: str = "quiet", save_every: float = 60) -> Result:
    """Play the sweep of a folder again, to the same bits.

    Args:
        folder: with its manifest.
        out: where it is written this time, or None.
        progress: as in ``run``.
        save_every: as in ``run``.

    Raises:
        BadInput: there is no sweep, or a log or a version has changed; or the output folder cannot be used.
    """
    game, about = _recalled(read_manifest(Path(folder)), out, "rerun")
    return _start(game, about, progress, save_every)


def _recalled(there: dict[str, Any], out: str | None, field: str) -> tuple[Game, dict[str, Any]]:
    """The game of a manifest, and its manifest here and now.

    Raises:
        BadInput: what the bits depend on differs; the sentence says what.
    """
    known(f"{field}: configuration", there["configuration"], [f.name for f in fields(Sweep)])
    try:
        sweep = Sweep(**(there["configuration"] | {"out": out}))
    except TypeError as error:
        raise BadInput(f"{field}: the configuration of the manifest cannot be used ({error})") from error
    game = prepare(sweep, load(sweep), sweep.numbers())
    about = output.manifest(sweep, game.records, game.horizon, _now())
    refuse_changes(there, about, field)
    return game, about


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _start(game: Game, about: dict[str, Any], progress: str, save_every: float) -> Result:
    """Play a sweep from its first round, in a folder of its own if it names one."""
    about = about | {"batch": memory.batch(game)}
    with Session.begin(game.sweep.out, save_every, about) as session:
        return _finish(game, session, about, progress)


def _finish(game: Game, session: Session, about: dict[str, Any], progress: str) -> Result:
    """Play what is left of a sweep, and write its results, once if several hosts play it."""
    sweep = game.sweep
    total = game.horizon * len(game.alpha) * len(game.trials) * len(sweep.learners)
    with jax.enable_x64(True), Progress(progress, total) as bar:
        played = play(game, memory.batches(game, about["batch"]), session, bar.update)
    played = hosts.joined(played)
    result = result_of(sweep, played, game.records, about | {"end": _now()})
    session.close(lambda folder: result.write(folder, played), result.manifest)
    return result


def result_of(sweep: Sweep, played: Played, records: Sequence[Records], about: dict[str, Any]) -> Result:
    """The tables of what was played."""
    return Result(sweep, trials_table(played), curves_table(played), asked_table(played), about, tuple(records))
