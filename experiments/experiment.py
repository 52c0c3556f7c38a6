"""The parts of an experiment: sweeps, their tables, and claims, which compare a number with a limit."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from exaul import Result, Sweep
from exaul.engine.logs.files import Table, frame, stack
from exaul.engine.logs.log import Records
from exaul.engine.results.figures import Figure
from exaul.engine.results.trials import lemma_holds
from experiments import coverage
from experiments.paper import Paper

CLAIM, CHECK, REGRESSION = "claim", "check", "regression limit"  # kinds of ``Claim``
NEAR = 0.05  # regression limit of the difference of two inefficiencies
# Sentences of the paper.
CONTROLS = "ExAUL robustly controls the FDR while maintaining competitive answering coverage."
NEEDS_LONGER = "Exp3-IX-CA only observes l_t(tau_t), requiring a much longer horizon T."
REGRET = (
    "Alg. 1 with eta = 2 gamma = sqrt(ln|H| / T) provides the following regret bound with probability at least "
    "1 - delta."
)
MARGINAL = (
    "the least loss is not the most answers: on a fine grid the best threshold stops where the *next* answer is "
    "wrong with probability alpha, so the FDR of all its answers is below alpha"
)
LEMMA = "Lemma 1: trials that violate it, of all learners"


class ExperimentPart(NamedTuple):
    """A sweep and its records."""

    sweep: Sweep
    records: tuple[Records, ...]


class Tables(NamedTuple):
    """The concatenated tables of an experiment's parts: the only input of figures and claims."""

    trials: Table
    curves: Table
    coverage: Table  # coverage of the best fixed thresholds: source, records, error_rate, alpha, second (share of
    # the second source in a mixture), grid, on_grid, anywhere
    asked: Table | None = None
    advice: Table | None = None


class Claim(NamedTuple):
    """A sentence about a measured number; it holds if the number has the relation to the limit.

    There are three kinds. A ``CLAIM`` about ``exaul`` is the paper's (``quote``), or ours beyond the paper. Its
    limit is a number of the paper, of a theorem or of another measurement, and an impostor (``impostors.py``)
    breaks it. A ``CHECK`` is a theorem, true for any decisions; a fact of the records; or the behaviour of another
    learner. A ``REGRESSION`` limit is a number that was chosen after a run with the default records: a run with
    them that breaks it shows that something changed, and nothing follows for other records.
    """

    claim: str
    measured: float
    relation: str  # one of RELATIONS
    limit: float
    why: str = ""  # likely reason if it fails
    kind: str = CLAIM
    quote: str = ""  # the sentence of the paper

    @property
    def holds(self) -> bool:
        """Whether the claim holds; false for NaN."""
        return bool(RELATIONS[self.relation](self.measured, self.limit))

    @property
    def expected(self) -> str:
        """The relation and the limit, as text."""
        return f"{self.relation} {self.limit:.6g}"


RELATIONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


Parts = Callable[[Paper, tuple[Records, Records]], Sequence[ExperimentPart]]
Claims = Callable[[Tables], Sequence[Claim]]


class Experiment(NamedTuple):
    """A figure of the paper.

    ``parts(paper, (easy, hard))`` returns the sweeps. ``figures(tables)``, ``claims(tables)`` and
    ``derived(tables)``, which returns further tables, are functions of the tables alone. ``impostors`` are further
    impostors, which run nothing: each returns the claims as they would be of the same tables. ``advised`` says
    whether the tables have the advice, which takes time.
    """

    description: str
    parts: Parts
    figures: Callable[[Tables], Mapping[str, Figure]]
    claims: Claims
    derived: Callable[[Tables], Mapping[str, Table]] = lambda tables: {}
    impostors: Mapping[str, Claims] = MappingProxyType({})
    advised: bool = False


def join_tables(parts: Sequence[ExperimentPart], results: Sequence[Result], advised: bool = False) -> Tables:
    """Concatenate the tables of an experiment's parts."""
    asked = [result.asked for result in results if result.asked is not None]
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}  # by source, alpha and share of the second source: each once
    for sweep, records in parts:
        for one in records:
            rows |= {(one.name, alpha): coverage.of_source(sweep, one, alpha) for alpha in sweep.alphas}
        if sweep.environment == "gradual-shift":
            mixtures = (row for alpha in sweep.alphas for row in coverage.of_mixtures(sweep, records, alpha))
            rows |= {(row["source"], row["alpha"], row["second"]): row for row in mixtures}
    trials = stack([result.trials for result in results])
    return Tables(
        trials.assign(fdr=trials["fdr"].fillna(trials["alpha"])),  # without answers, as in the paper
        stack([result.curves for result in results]),
        frame(list(rows.values())),
        stack(asked) if asked else None,
        stack([result.advice for result in results]) if advised else None,
    )


def mean(table: Table, column: str, **where: Any) -> float:
    """Return the mean of a column over the rows in which the columns ``where`` have the given values."""
    for name, value in where.items():
        table = table[table[name] == value]
    return float(table[column].mean())


def cells(table: Table, *columns: str) -> list[dict[str, Any]]:
    """Return the distinct combinations of values of some columns, in order of appearance."""
    return table[list(columns)].drop_duplicates().to_dict("records")


def holds_alpha(tables: Tables, learner: str = "exaul", quote: str = CONTROLS) -> list[Claim]:
    """Claim that a learner's mean FDR at T is at most alpha, for each source and alpha."""
    claims, kind = [], CLAIM if learner == "exaul" else CHECK
    for cell in cells(tables.trials, "source", "alpha"):
        fdr = mean(tables.trials, "fdr", learner=learner, **cell)
        text = f"{learner}: mean FDR at T is at most alpha = {cell['alpha']:g}, {cell['source']}"
        why = why_above(tables, learner, **cell)
        claims.append(Claim(text, fdr, "<=", cell["alpha"], why, kind, quote=quote))
    return claims


def abstains_as_ew(tables: Tables, *more: str) -> list[Claim]:
    """Limit how much ``exaul`` and ``ew`` differ in abstaining, over alphas, by source and value of ``more``."""
    claims = []
    for place in cells(tables.trials, "source", *more):
        apart = {}
        for cell in cells(tables.trials, "source", "alpha", *more):
            if place.items() <= cell.items():
                both = [mean(tables.trials, "inefficiency", learner=name, **cell) for name in ("exaul", "ew")]
                apart[abs(both[0] - both[1])] = f"{both[0]:.3f} against {both[1]:.3f} at alpha = {cell['alpha']:g}"
        text = "exaul abstains as often as ew, which sees every label: largest difference of mean inefficiency"
        where, most = ", ".join(place.values()), max(apart)
        claims.append(Claim(f"{text}, {where}", most, "<=", NEAR, apart[most], REGRESSION))
    return claims


def near_best(tables: Tables) -> Claim:
    """Claim that ``exaul`` answers nearly as often as the best threshold with FDR at most alpha, on all sources.

    The paper gives no number; nine tenths is our reading of "efficient", set beforehand (it fails).
    """
    shares = []
    for row in tables.coverage[tables.coverage["second"] == 0].to_dict("records"):
        if row["on_grid"] > 0 and row["source"] in set(tables.trials["source"]):
            idle = mean(tables.trials, "inefficiency", learner="exaul", source=row["source"], alpha=row["alpha"])
            shares.append((1 - idle) / row["on_grid"])
    text = "exaul answers nearly as often as the best threshold with FDR at most alpha: smallest ratio"
    why = MARGINAL if shares else "no threshold of the grid has an FDR of at most alpha on these records"
    quote = "Our algorithm finds efficient conformal abstainers with FDR guarantees."
    return Claim(text, min(shares, default=math.nan), ">=", 0.9, why, quote=quote)


def why_above(tables: Tables, learner: str, source: str, alpha: float) -> str:
    """Explain an FDR above alpha: the coverage of the best fixed thresholds, and the bound at this T."""
    words = []
    for row in tables.coverage[tables.coverage["alpha"] == alpha].to_dict("records"):
        if row["source"] in source.split(" -> "):
            words.append(
                f"on {row['source']} the best threshold of the {row['grid']} grid with FDR at most alpha answers "
                f"{row['on_grid']:.1%} (of all thresholds: {row['anywhere']:.1%})"
            )
    bound = mean(tables.trials, "fdr_bound", learner=learner, source=source, alpha=alpha)
    return "; ".join(words) + f"; the FDR bound at this T is {bound:.3g} (mean fdr_bound)"


def ends_farther(tables: Tables, learner: str = "exp3-ix", than: str = "exaul") -> list[Claim]:
    """Claim that a learner ends with a larger FDR than another, for each source and alpha."""
    claims = []
    for cell in cells(tables.trials, "source", "alpha"):
        a, b = (mean(tables.trials, "fdr", learner=name, **cell) for name in (learner, than))
        text = f"{learner}, which updates one arm per round, has a larger mean FDR at T than {than}"
        where = f"{text}, {cell['source']}, alpha = {cell['alpha']:g}"
        claims.append(Claim(where, a, ">", b, quote=NEEDS_LONGER))
    return claims


def lemma(tables: Tables) -> Claim:
    """Claim that Lemma 1 holds in every trial."""
    broken = int((~lemma_holds(tables.trials)).sum())
    why = "the lemma is true for any decisions, so the accounting is wrong; please report this"
    return Claim(LEMMA, broken, "<=", 0, why, CHECK)


def theory_claims(tables: Tables, delta: float = Sweep.delta) -> list[Claim]:
    """Claim that Lemma 1 holds, and that the regret exceeds its bound in at most a share delta of the trials."""
    bounded = tables.trials[tables.trials["regret_bound"] > 0]
    bounded = bounded[bounded["regret_bound"] < bounded["horizon"]]  # a bound above T is vacuous
    above = (bounded["regret"] > bounded["regret_bound"]).groupby(bounded["learner"]).mean()
    text = f"share of the {len(bounded):,} trials with a bound below T whose regret exceeds it, worst learner"
    share = float(above.max()) if len(above) else 0.0
    return [lemma(tables), Claim(text, share, "<=", delta, quote=REGRET)]
