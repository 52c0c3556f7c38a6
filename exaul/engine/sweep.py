"""The configuration of a sweep: its fields are the flags of ``exaul sweep`` and the argument of ``run``."""

import math
import re
from collections.abc import Iterable
from typing import Any

from exaul.engine import registry
from exaul.engine.checks import (
    INTEGER_LIMIT,
    BadInput,
    Field,
    Many,
    PathText,
    check_alpha,
    check_count,
    check_holds,
    check_known,
    check_not_negative,
    check_positive,
    number,
    setting,
)
from exaul.engine.environments.adaptive import Adaptive
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.feedback import FeedbackFlags
from exaul.engine.logs.log import Layout
from exaul.engine.logs.profiles import PROFILES
from exaul.kernels.game import ARMS, GRIDS, LOG_ARMS, LOG_GRID
from exaul.kernels.learners.learner import Learner

PRECISIONS = ("float64", "float32")
LOG_POINTS = 200  # of curves whose points are evenly spaced in log t (chosen)


class Sweep(FeedbackFlags, Layout):
    """The configuration of a sweep; every field is a flag of ``exaul sweep``.

    Logs are read and user modules imported when the sweep is prepared, not here. A field of several values takes
    a list, a tuple or a single value, such as ``alphas=0.1``, and holds a tuple; logs and folders may be paths
    (``pathlib.Path``); ``learners`` and ``environment`` take the objects, too, if they are variables of a module.

    Raises:
        BadInput: a field is out of range; the sentence names it.
    """

    logs: Field[tuple[str, ...], PathText | Iterable[PathText]] = setting(
        (),
        "log(s) of scored answers: CSV (also .gz), JSON lines or Parquet; COL=VALUE keeps the rows that match; "
        "the logs of a folder run one by one, as with --each",
        "PATH[:COL=VALUE,...]",
    )
    each: Many[str] = setting(
        (),
        "run a sweep on every combination of values of these columns (a trace), with one table over all; "
        "an environment of two logs plays each trace and the next",
        "COL",
    )
    least: int = setting(1, "least number of records of a trace; shorter ones are left out", "N")
    sources: Many[str] = setting(
        (),
        "built-in profile(s) instead of logs, see '{exaul} profiles' (default: triviaqa-like, and nq-like for an "
        "environment of two)",
        "PROFILE",
    )
    environment: Field[str, str | Oblivious | Adaptive] = setting(
        "stochastic", f"who asks: {', '.join(registry.ENVIRONMENTS)}, or MODULE:NAME of your own", "NAME"
    )
    tunables: Many[str] = setting((), "parameters of an adaptive environment, see docs/learners.md", "NAME=VALUE")
    learners: Field[tuple[str, ...], str | Learner[Any] | Iterable[str | Learner[Any]]] = setting(
        (),
        f"learners: {', '.join(registry.LEARNERS)}, or MODULE:NAME of your own (default: aci-rank and the paper's; "
        "on profiles also aci-rank-from-log, and in adaptive environments no best-fixed)",
        "NAME",
    )
    alphas: Many[float] = setting((0.05,), "target FDR(s), each in (0, 1)", "ALPHA")
    lambdas: Many[float] = setting((), "weight(s) of the FDR against abstaining, >= 0 (default: sqrt(T))", "LAMBDA")
    horizon: int | None = setting(
        None,
        "rounds T of a trial (default: as many as the log has records, or twice as many as the shorter of two; at "
        "most 30000, unless it is a replay; 30000 in an adaptive environment)",
        "T",
    )
    trials: int = setting(100, "number of trials, each with its own random draws", "N")
    warm_start: Field[str | float | None, PathText | float | None] = setting(
        None,
        "log from which learners start, with the columns of the logs; or a fraction of the records, in (0, 1), "
        "which are then not played",
        "FRACTION|LOG",
    )
    arms: int | None = setting(
        None,
        f"number H of thresholds, at least 2 (default: {ARMS}; with the grid of a log, as many as it has distinct "
        f"scores, and 2, but at most {LOG_ARMS})",
        "H",
    )
    grid: str = setting(
        "",
        "spacing of thresholds: uniform (the paper's), logit (uniform in the logit, for likelihoods near 1), log "
        "(the scores of --warm-start) or quantile (of the given records: it looks ahead) (default: uniform; log "
        "with --warm-start)",
        "NAME",
    )
    group: str | None = setting(
        None, "column of question groups, among which adversaries choose (default: one group per log)", "COL"
    )
    seed: int = setting(0, "seed of all random draws; the same seed gives the same bits", "N")
    checkpoints: Many[str | int] = setting(
        ("200",),
        "points of the curves over time: how many, evenly spaced; log, "
        f"{LOG_POINTS} that are evenly spaced in log t; or the rounds, at least two",
        "P|log|t",
    )
    delta: float = setting(0.05, "probability, in (0, 1), with which a bound may fail", "DELTA")
    anytime: bool = setting(False, "use rates for an unknown horizon, which fall over blocks of 256 rounds")
    eta: float | None = setting(None, "learning rate (default: each learner's own)", "X")
    gamma: float | None = setting(None, "implicit exploration (default: each learner's own)", "X")
    eta_scales: Many[float] = setting(
        (1.0,), "factors of eta and gamma, each a further cell of the learners that have these rates", "X"
    )
    gamma_scales: Many[float] = setting((1.0,), "further factors of gamma alone, as with --eta-scales", "X")
    steps: Many[float] = setting((), "steps of aci-rank, in (0, 1] (default: 0.025)", "X")
    precision: str = setting(
        "float64", "float64, or float32 (sums of weights in float32, losses in float64)", "NAME"
    )
    backend: str | None = setting(
        None,
        f"implementation, for the learners that it supports: {', '.join(registry.BACKENDS)} (default: the fastest "
        "for each learner and device; dense is the readable reference)",
        "NAME",
    )
    shard: str | None = setting(
        None, "run the I-th of N parts of the trials, for '{exaul} merge' (I from 1 to N)", "I/N"
    )
    out: Field[str | None, PathText | None] = setting(
        None, "new or empty folder for tables, figures and manifest", "DIR"
    )

    def __post_init__(self) -> None:
        in_memory = "paths; a table is played by run(sweep, [Records(name, scores, errors, 0, None)])"
        check_holds("logs", type(self.logs).__name__, not hasattr(self.logs, "columns"), in_memory)
        if self.grid == "":
            object.__setattr__(self, "grid", "uniform" if self.warm_start is None else LOG_GRID)
        object.__setattr__(self, "environment", registry.name_of("environment", self.environment))
        learners: Any = registry.name_of("learners", self.learners)  # a Learner is a tuple, too
        if isinstance(learners, tuple | list):
            learners = tuple(registry.name_of("learners", x) for x in learners)
        object.__setattr__(self, "learners", learners)
        super().__post_init__()
        self._check_names()
        self._check_numbers()

    @property
    def warm_fraction(self) -> float | None:
        """The fraction of the records from which learners start; None if there is none, or a log is named."""
        try:
            return None if self.warm_start is None else number(str(self.warm_start))
        except ValueError:
            return None

    @property
    def cells(self) -> int:
        """The largest number of cells of a learner."""
        rates = max(len(self.eta_scales) * len(self.gamma_scales), len(self.steps))
        return len(self.alphas) * max(1, len(self.lambdas)) * rates

    @property
    def points(self) -> int:
        """The largest number of points of a curve."""
        if len(self.checkpoints) > 1:
            return len(self.checkpoints) + 1
        return LOG_POINTS if self.checkpoints == ("log",) else int(self.checkpoints[0])

    @property
    def trial_numbers(self) -> range:
        """The numbers of the trials of this shard, or of all trials."""
        part, parts = (1, 1) if self.shard is None else map(int, self.shard.split("/"))
        return range((part - 1) * self.trials // parts, part * self.trials // parts)

    @property
    def user_code(self) -> list[str]:
        """The environment and the learners that are the user's, ``module:name``."""
        return list(filter(registry.is_user_code, (self.environment, *self.learners)))

    def _check_names(self) -> None:
        if self.logs and self.sources:
            raise BadInput("logs: given together with sources; choose one of the two")
        registry.check_names("environment", (self.environment,))
        registry.check_names("learners", self.learners)
        check_known("grid", (self.grid,), (*GRIDS, LOG_GRID))
        if self.grid == LOG_GRID and self.warm_start is None:
            raise BadInput("grid: log found; it has the scores of a log from the past, which --warm-start names")
        check_known("sources", self.sources, PROFILES)
        check_known("precision", (self.precision,), PRECISIONS)
        check_known("backend", () if self.backend is None else (self.backend,), registry.BACKENDS)
        if not self.alphas:
            raise BadInput("alphas: none given; at least one is needed")
        for text in self.tunables:
            check_holds("tunables", text, re.fullmatch(r"[^=]+=.+", text, re.DOTALL) is not None, "NAME=VALUE")
        scales = "eta_scales", "gamma_scales", "steps"
        for name in ("learners", "alphas", "lambdas", *scales, "tunables", "each"):
            values = [x.split("=")[0] if name == "tunables" else x for x in getattr(self, name)]
            repeated = [x for x in values if values.count(x) > 1]
            if repeated:
                raise BadInput(f"{name}: {repeated[0]} is given twice")

    def _check_numbers(self) -> None:
        check_alpha("alphas", *self.alphas)
        check_not_negative("lambdas", *self.lambdas)
        check_holds("delta", self.delta, 0 < self.delta < 1, "in (0, 1)")
        for name in ("trials", "least", "horizon"):
            check_count(name, getattr(self, name))
        check_holds("checkpoints", self.checkpoints, bool(self.checkpoints), "at least one")
        maximum = INTEGER_LIMIT - 1 if self.horizon is None or len(self.checkpoints) == 1 else self.horizon
        for point in () if self.checkpoints == ("log",) else self.checkpoints:
            value = int(point) if re.fullmatch("-?[0-9]{1,10}", str(point)) else point
            is_valid = isinstance(value, int) and 1 <= value <= maximum
            check_holds("checkpoints", value, is_valid, f"from 1 to {maximum}, or log alone")
        check_count("arms", self.arms, 2)
        check_holds("seed", self.seed, 0 <= self.seed < 2**64, "an integer from 0 to 2**64 - 1")
        check_positive("eta", self.eta)
        check_not_negative("gamma", self.gamma)
        check_positive("eta_scales", *self.eta_scales)
        check_not_negative("gamma_scales", *self.gamma_scales)
        gamma = max(self.gamma_scales, default=0.0)
        is_finite = max(self.eta_scales, default=0.0) * gamma < math.inf
        check_holds("gamma_scales", gamma, is_finite, "smaller, times eta_scales")
        for step in self.steps:
            check_holds("steps", step, 0 < step <= 1, "in (0, 1]")
        by_hand = "eta" if self.eta is not None else "gamma" if self.gamma is not None else None
        for name, scales in (("eta_scales", self.eta_scales), ("gamma_scales", self.gamma_scales)):
            check_holds(name, scales, bool(scales), "at least one")
            if by_hand and scales != (1.0,):
                reason = "scales are factors of the learners' own rates"
                raise BadInput(f"{name}: given together with {by_hand}; {reason}; choose one of the two")
        fraction = self.warm_fraction
        allowed = self.warm_start != "" and (fraction is None or 0 < fraction < 1)
        check_holds("warm_start", self.warm_start, allowed, "a log, or a fraction in (0, 1), such as 0.5 or 50%")
        if self.shard is None:
            return
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", self.shard)
        is_valid = match is not None and 1 <= int(match[1]) <= int(match[2]) <= self.trials
        check_holds("shard", self.shard, is_valid, f"I/N, 1 <= I <= N <= {self.trials} (the number of trials)")
