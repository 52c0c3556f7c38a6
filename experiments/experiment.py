"""What an experiment is: sweeps, the tables that they leave, and claims, which are numbers to compare."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from exaul import Result, Sweep
from exaul.engine.data.records import Records
from exaul.engine.data.tables import Table, frame, stack
from exaul.engine.results.figures import Figure
from exaul.engine.results.trials import lemma_holds
from experiments import coverage
from experiments.paper import Paper

NEAR = 0.05  # difference of inefficiencies that counts as none
MARGINAL = (
    "least loss is not most answers: where thresholds are many, the best of them stops where the *next* answer is "
    "wrong with probability alpha, so that the share of wrong ones among all answers, the FDR, is smaller"
)
LEMMA = "Lemma 1: trials of all learners that break it"


class ExperimentPart(NamedTuple):
    """A sweep and the records that it plays."""

    sweep: Sweep
    records: tuple[Records, ...]


class Tables(NamedTuple):
    """The tables of an experiment's parts, one below the other: all that figures and claims are made from."""

    trials: Table
    curves: Table
    coverage: Table  # what fixed thresholds can do: source, records, error_rate, alpha, second (share of the second
    # source, where one takes over), grid, on_grid, anywhere
    asked: Table | None = None


class Claim(NamedTuple):
    """A sentence about a number that was measured; it holds if the number is in a relation to a limit.

    A claim about ``exaul`` can be broken by an impostor (``impostors.py``). What none of them can break is a
    ``check``: a theorem, true of any decisions; a fact of the records; or what another learner does.
    """

    claim: str
    measured: float
    relation: str  # one of RELATIONS
    limit: float
    why: str = ""  # the reason, if it fails
    check: bool = False
    full: bool = False  # whether it is about runs at the full scale alone

    @property
    def holds(self) -> bool:
        """Whether the claim holds; with NaN it never does."""
        return bool(RELATIONS[self.relation](self.measured, self.limit))

    @property
    def expected(self) -> str:
        """What the number should be."""
        return f"{self.relation} {self.limit:.6g}"


RELATIONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


Parts = Callable[[Paper, tuple[Records, Records]], Sequence[ExperimentPart]]
Claims = Callable[[Tables], Sequence[Claim]]


class Experiment(NamedTuple):
    """A figure of the paper: what is played, what is drawn, and what is claimed of it.

    ``parts(paper, (easy, hard))`` returns the sweeps. ``figures(tables)``, ``claims(tables)`` and
    ``derived(tables)``, which returns further tables, are functions of the tables alone.
    """

    description: str
    parts: Parts
    figures: Callable[[Tables], Mapping[str, Figure]]
    claims: Claims
    derived: Callable[[Tables], Mapping[str, Table]] = lambda tables: {}


def join_tables(parts: Sequence[ExperimentPart], results: Sequence[Result]) -> Tables:
    """The tables of an experiment's parts."""
    asked = [result.asked for result in results if result.asked is not None]
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}  # by source, alpha and share of the second source: each once
    for sweep, records in parts:
        for one in records:
            rows |= {(one.name, alpha): coverage.of_source(sweep, one, alpha) for alpha in sweep.alphas}
        if sweep.environment == "gradual-shift":
            mixtures = (row for alpha in sweep.alphas for row in coverage.of_mixtures(sweep, records, alpha))
            rows |= {(row["source"], row["alpha"], row["second"]): row for row in mixtures}
    return Tables(
        stack([result.trials for result in results]),
        stack([result.curves for result in results]),
        frame(list(rows.values())),
        stack(asked) if asked else None,
    )


def mean(table: Table, column: str, **where: Any) -> float:
    """Mean of a column over the rows whose other columns have certain values."""
    for name, value in where.items():
        table = table[table[name] == value]
    return float(table[column].mean())


def cells(table: Table, *columns: str) -> list[dict[str, Any]]:
    """The combinations of values that some columns have, in their order."""
    return table[list(columns)].drop_duplicates().to_dict("records")


def holds_alpha(tables: Tables, learner: str = "exaul", full: bool = True) -> list[Claim]:
    """A learner's FDR at T is at most alpha in the mean, for each source and alpha."""
    claims = []
    for cell in cells(tables.trials, "source", "alpha"):
        fdr = mean(tables.trials, "fdr", learner=learner, **cell)
        text = f"{learner}: mean FDR at T is at most alpha = {cell['alpha']:g}, {cell['source']}"
        why = why_above(tables, learner, **cell)
        claims.append(Claim(text, fdr, "<=", cell["alpha"], why, check=learner != "exaul", full=full))
    return claims


def abstains_as_ew(tables: Tables, *more: str) -> list[Claim]:
    """``exaul`` abstains as often as ``ew``, which sees every label, at every alpha, by source and ``more``."""
    claims = []
    for place in cells(tables.trials, "source", *more):
        apart = {}
        for cell in cells(tables.trials, "source", "alpha", *more):
            if place.items() <= cell.items():
                both = [mean(tables.trials, "inefficiency", learner=name, **cell) for name in ("exaul", "ew")]
                apart[abs(both[0] - both[1])] = f"{both[0]:.3f} against {both[1]:.3f} at alpha = {cell['alpha']:g}"
        text = "exaul abstains as often as ew, which sees every label: largest difference of mean inefficiency"
        where, most = ", ".join(place.values()), max(apart)
        claims.append(Claim(f"{text}, {where}", most, "<=", NEAR, apart[most], full=True))
    return claims


def near_best(tables: Tables) -> Claim:
    """``exaul`` answers nearly what the best threshold that holds alpha does, on every source that has one."""
    shares = []
    for row in tables.coverage[tables.coverage["second"] == 0].to_dict("records"):
        if row["on_grid"] > 0 and row["source"] in set(tables.trials["source"]):
            idle = mean(tables.trials, "inefficiency", learner="exaul", source=row["source"], alpha=row["alpha"])
            shares.append((1 - idle) / row["on_grid"])
    text = "exaul answers nearly what the best threshold that holds alpha answers: least share of it"
    why = MARGINAL if shares else "no threshold of the grid holds alpha on these records"
    return Claim(text, min(shares, default=math.nan), ">=", 0.9, why, full=True)


def why_above(tables: Tables, learner: str, source: str, alpha: float) -> str:
    """Why an FDR may be above alpha: what fixed thresholds can do, and what theory promises at this T."""
    words = []
    for row in tables.coverage[tables.coverage["alpha"] == alpha].to_dict("records"):
        if row["source"] in source.split(" -> "):
            words.append(
                f"on {row['source']} the best threshold of the {row['grid']} grid that holds alpha answers "
                f"{row['on_grid']:.1%} (any threshold: {row['anywhere']:.1%})"
            )
    bound = mean(tables.trials, "fdr_bound", learner=learner, source=source, alpha=alpha)
    return "; ".join(words) + f"; what is promised at this T is an FDR of at most {bound:.3g} (mean fdr_bound)"


def ends_farther(tables: Tables, learner: str = "exp3-ix", than: str = "exaul") -> list[Claim]:
    """A learner ends with a larger FDR than another, for each source and alpha."""
    claims = []
    for cell in cells(tables.trials, "source", "alpha"):
        a, b = (mean(tables.trials, "fdr", learner=name, **cell) for name in (learner, than))
        text = f"{learner}, which learns from one arm a round, has a larger mean FDR at T than {than}"
        claims.append(Claim(f"{text}, {cell['source']}, alpha = {cell['alpha']:g}", a, ">", b, full=True))
    return claims


def lemma(tables: Tables) -> Claim:
    """Lemma 1 holds in every trial."""
    broken = int((~lemma_holds(tables.trials)).sum())
    why = "it is true of any decisions: the accounting is wrong; please report this"
    return Claim(LEMMA, broken, "<=", 0, why, check=True)


def theory_claims(tables: Tables, delta: float = Sweep.delta) -> list[Claim]:
    """Lemma 1 holds in every trial, and the regret is above its bound in at most a share delta of them."""
    bounded = tables.trials[tables.trials["regret_bound"] > 0]
    bounded = bounded[bounded["regret_bound"] < bounded["horizon"]]  # no regret is larger than T
    above = (bounded["regret"] > bounded["regret_bound"]).groupby(bounded["learner"]).mean()
    text = f"share of the {len(bounded):,} trials of a bound below T whose regret is above it, worst learner"
    return [lemma(tables), Claim(text, float(above.max()) if len(above) else 0.0, "<=", delta, full=True)]
