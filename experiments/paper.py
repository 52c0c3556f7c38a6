"""What the experiments share: flags, scale and records; tables; and claims, which are numbers to compare."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from engine import Sweep
from engine.coverage import coverage_by_grid, every_threshold, mixed_coverage
from engine.errors import BadInput
from engine.figures import Figure
from engine.flags import known, setting, within
from engine.results import lemma_holds
from engine.sources import Columns, Records, load_log, load_profile
from engine.sweep import Result
from engine.tables import Table, frame, stack
from kernels.game import GRIDS

PROFILES = ("triviaqa-like", "nq-like")  # the easy one, then the hard one
EASY, HARD, SHIFT = 0, 1, 2  # places of the alphas; the first two also of the records
LEMMA = "Lemma 1: trials of all learners that break it"
PAPER = ("exaul", "exp3-ix", "ew", "no-abstention")


@dataclass(frozen=True, kw_only=True)
class Paper(Columns):
    """How to run the paper's experiments. Every field is a flag of ``python -m experiments NAME``.

    Raises:
        BadInput: a field is out of its range; the sentence names it.
    """

    quick: bool = setting(False, "a tenth of the rounds and trials, to see that all runs")
    out: str | None = setting(None, "folder for tables, figures and the report: absent or empty", "DIR")
    redraw: str | None = setting(None, "folder of an earlier report: draw its tables again, play nothing", "DIR")
    logs: tuple[str, ...] = setting(
        (), "an easy log and a hard one, as for 'exaul sweep --logs' (default: two synthetic profiles)", "PATH"
    )
    alphas: tuple[float, ...] = setting(
        (0.05, 0.2, 0.1), "target FDR on the easy log, on the hard one, and under shift", "ALPHA"
    )
    grid: str = setting("uniform", "thresholds: uniform, logit or quantile ('beyond': always logit)", "NAME")
    data: str | None = setting(
        None, "'beyond' on all traces of a folder of logs: a dataset, model, prompt and column score*", "DIR"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, many in (("logs", 2), ("alphas", 3)):
            object.__setattr__(self, name, tuple(getattr(self, name)))
            if len(getattr(self, name)) not in ({many, 0} if name == "logs" else {many}):
                raise BadInput(f"{name}: {len(getattr(self, name))} given; {many} are needed")
        for alpha in self.alphas:
            within("alphas", alpha, 0 < alpha < 1, "in (0, 1)")
        known("grid", (self.grid,), GRIDS)
        if self.redraw is not None and self.out is None:
            raise BadInput("redraw: given without out; the new figures need a folder")

    def load(self) -> tuple[Records, Records]:
        """The easy records and the hard ones.

        Raises:
            BadInput: a log cannot be used.
        """
        if self.logs:
            easy, hard = (load_log(log, self) for log in self.logs)
        else:
            easy, hard = (load_profile(name) for name in PROFILES)
        return easy, hard

    def rounds(self, horizon: int) -> int:
        """T at this scale: in a quick run a tenth of it, of millions a thirtieth."""
        return horizon // (30 if horizon >= 10**6 else 10) if self.quick else horizon

    def sweep(self, horizon: int = 30_000, trials: int = 100, **given: Any) -> Sweep:
        """A sweep of the paper at this scale: T rounds and trials of a full run, and the fields of ``Sweep``."""
        many = max(trials // 10, 3) if self.quick else trials
        usual: dict[str, Any] = {"horizon": self.rounds(horizon), "trials": many, "grid": self.grid}
        return Sweep(**(usual | given))


MIXED = tuple((place + 0.5) / 20 for place in range(20))  # shares of the second source, while it takes over


class Part(NamedTuple):
    """A sweep and the records that it plays."""

    sweep: Sweep
    records: tuple[Records, ...]


class Tables(NamedTuple):
    """What the parts of an experiment left, one below the other: all that figures and claims are made from."""

    trials: Table
    curves: Table
    coverage: Table  # what fixed thresholds can do: source, records, error_rate, alpha, second (share of the second
    # source, where one takes over), grid, on_grid, anywhere
    asked: Table | None = None


class Claim(NamedTuple):
    """A sentence that holds if a number that was measured stands so to another."""

    claim: str
    measured: float
    relation: str  # one of RELATIONS
    limit: float
    why: str = ""  # it may fail

    @property
    def holds(self) -> bool:
        """Whether it does; NaN never holds."""
        return bool(RELATIONS[self.relation](self.measured, self.limit))

    @property
    def expected(self) -> str:
        """What the number should be."""
        return f"{self.relation} {self.limit:.6g}"


RELATIONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


Parts = Callable[[Paper, tuple[Records, Records]], Sequence[Part]]
Claims = Callable[[Tables], Sequence[Claim]]


class Experiment(NamedTuple):
    """A figure of the paper: what is played, what is drawn, and what is claimed of it.

    ``parts(paper, (easy, hard))`` are the sweeps; ``figures(tables)``, ``claims(tables)`` and ``derived(tables)``,
    further tables that sum up, see the tables alone.
    """

    title: str
    about: str
    parts: Parts
    figures: Callable[[Tables], Mapping[str, Figure]]
    claims: Claims
    derived: Callable[[Tables], Mapping[str, Table]] = lambda tables: {}


def tabled(parts: Sequence[Part], results: Sequence[Result]) -> Tables:
    """The tables of an experiment's parts."""
    asked = [result.asked for result in results if result.asked is not None]
    rows: dict[tuple, dict[str, Any]] = {}
    for sweep, records in parts:
        for one in records:
            for alpha in sweep.alphas:
                best = coverage_by_grid(sweep.arms, one.scores, one.errors, alpha)
                rows[one.name, alpha] = {
                    "source": one.name,
                    "records": len(one.scores),
                    "error_rate": one.errors.mean(),
                    "alpha": alpha,
                    "second": 0.0,
                    "grid": sweep.grid,
                    "on_grid": best[sweep.grid],
                    "anywhere": best["all thresholds"],
                }
        if sweep.environment == "gradual-shift":
            for alpha in sweep.alphas:
                rows |= {(row["source"], alpha, row["second"]): row for row in _mixed(sweep, records, alpha)}
    return Tables(
        stack([result.trials for result in results]),
        stack([result.curves for result in results]),
        frame(list(rows.values())),
        stack(asked) if asked else None,
    )


def _mixed(sweep: Sweep, records: Sequence[Records], alpha: float) -> list[dict[str, Any]]:
    """What fixed thresholds can do while a source takes over from another."""
    first, second = records
    scores = np.concatenate([first.scores, second.scores])
    grids = {"on_grid": GRIDS[sweep.grid](sweep.arms, scores), "anywhere": every_threshold(scores)}
    shares = np.array(MIXED)
    best = {name: mixed_coverage(grid, first[1:3], second[1:3], shares, alpha) for name, grid in grids.items()}
    return [
        {
            "source": " -> ".join(one.name for one in records),
            "records": len(scores),
            "error_rate": (1 - share) * first.errors.mean() + share * second.errors.mean(),
            "alpha": alpha,
            "second": share,
            "grid": sweep.grid,
        }
        | {name: shown[place] for name, shown in best.items()}
        for place, share in enumerate(MIXED)
    ]


def mean(table: Table, column: str, **where: Any) -> float:
    """Mean of a column over the rows whose other columns have the values that are given."""
    for name, value in where.items():
        table = table[table[name] == value]
    return float(table[column].mean())


def cells(table: Table, *columns: str) -> list[dict[str, Any]]:
    """The combinations of values that some columns have, in their order."""
    return table[list(columns)].drop_duplicates().to_dict("records")


def holds_alpha(tables: Tables, learner: str = "exaul") -> list[Claim]:
    """A learner's FDR at T is at most alpha in the mean, for each source and alpha."""
    claims = []
    for cell in cells(tables.trials, "source", "alpha"):
        fdr = mean(tables.trials, "fdr", learner=learner, **cell)
        text = f"{learner}: mean FDR at T is at most alpha = {cell['alpha']:g}, {cell['source']}"
        claims.append(Claim(text, fdr, "<=", cell["alpha"], why_above(tables, learner, **cell)))
    return claims


def why_above(tables: Tables, learner: str, source: str, alpha: float) -> str:
    """Why an FDR may stand above alpha: what thresholds can do, and what is promised at all."""
    words = []
    for row in tables.coverage[tables.coverage["alpha"] == alpha].to_dict("records"):
        if row["source"] in source.split(" -> "):
            words.append(
                f"on {row['source']} the best fixed threshold of the {row['grid']} grid that holds alpha answers "
                f"{row['on_grid']:.1%} (any threshold: {row['anywhere']:.1%})"
            )
    bound = mean(tables.trials, "fdr_bound", learner=learner, source=source, alpha=alpha)
    return "; ".join(words) + f"; what is promised at this T is an FDR of at most {bound:.3g} (mean fdr_bound)"


def farther(tables: Tables, learner: str = "exp3-ix", than: str = "exaul") -> list[Claim]:
    """A learner ends with a larger FDR than another, for each source and alpha."""
    claims = []
    for cell in cells(tables.trials, "source", "alpha"):
        a, b = (mean(tables.trials, "fdr", learner=name, **cell) for name in (learner, than))
        text = f"{learner}, which learns from one arm a round, has a larger mean FDR at T than {than}"
        claims.append(Claim(f"{text}, {cell['source']}, alpha = {cell['alpha']:g}", a, ">", b))
    return claims


def lemma(tables: Tables) -> Claim:
    """Lemma 1 holds in every trial."""
    broken = int((~lemma_holds(tables.trials)).sum())
    return Claim(LEMMA, broken, "<=", 0, "it is true of any decisions: the accounting is wrong; please report this")


def theory(tables: Tables, delta: float = Sweep.delta) -> list[Claim]:
    """Lemma 1 holds in every trial, and the regret is above its bound in at most a share delta of them."""
    bounded = tables.trials[tables.trials["regret_bound"] > 0]
    above = (bounded["regret"] > bounded["regret_bound"]).groupby(bounded["learner"]).mean().max()
    return [
        lemma(tables),
        Claim("share of trials with a regret above its bound, worst learner", float(above), "<=", delta),
    ]
