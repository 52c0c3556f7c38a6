"""Claims: each is one line of data, and ``judge`` compares what it measures in every cell with its limit."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from exaul import Sweep
from exaul.engine.logs.files import Table
from exaul.engine.results.trials import lemma_holds, risk_holds

CLAIM, CHECK, REGRESSION = "claim", "check", "regression limit"  # kinds of ``Claim``
RELATIONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
MAX_GAP = 0.05  # regression limit of the difference of two inefficiencies
# Sentences of the paper.
CONTROLS = "ExAUL robustly controls the FDR while maintaining competitive answering coverage."
EFFICIENT = "Our algorithm finds efficient conformal abstainers with FDR guarantees."
NEEDS_LONGER = "Exp3-IX-CA only observes l_t(tau_t), requiring a much longer horizon T."
REGRET = (
    "Alg. 1 with eta = 2 gamma = sqrt(ln|H| / T) provides the following regret bound with probability at least "
    "1 - delta."
)
MARGINAL = (
    "the least loss is not the most answers: on a fine grid its threshold stops where the *next* answer is "
    "wrong with probability alpha + 1/lambda, so the FDR of all its answers is below alpha"
)


# The concatenated tables of an experiment's parts, by name, and those that it derives from them: the only input of
# figures and claims. ``experiment.join_tables`` makes the first.
Tables = Mapping[str, Table]


def rows_where(table: Table, where: Mapping[str, Any]) -> Table:
    """Return the rows with the values ``where``, which may name columns that it lacks; a tuple has any of them."""
    for column, value in where.items():
        if column in table:
            table = table[table[column].isin(value) if isinstance(value, tuple) else table[column] == value]
    return table


class Cell(NamedTuple):
    """Where a claim is measured: the tables, the name of the claim's table, and values of columns."""

    tables: Tables
    table: str
    values: Mapping[str, Any]

    def rows(self, table: str = "", **where: Any) -> Table:
        """Return the rows of a table (of the claim's by default) in this cell."""
        return rows_where(self.tables[table or self.table], {**self.values, **where})

    def mean(self, column: str, learner: str = "exaul", **where: Any) -> float:
        """Return the mean of a column over a learner's rows."""
        return float(self.rows(learner=learner, **where)[column].mean())


WithWords = tuple[float, Mapping[str, Any]]
Measurement = float | WithWords | None
Measure = Callable[[Cell], Measurement]


class Claim(NamedTuple):
    """What a sentence says of a number that is measured in every cell: its relation to a limit.

    There are three kinds. A ``CLAIM`` about ``exaul`` is the paper's (``quote``), or ours beyond the paper. Its
    limit is a number of the paper, of a theorem or of another measurement, and an impostor (``impostors.py``)
    breaks it. A ``CHECK`` is a theorem, true for any decisions; a fact of the records; or the behaviour of another
    learner. A ``REGRESSION`` limit is a number that was chosen after a run with the default records: a run with
    them that breaks it shows that something changed, and nothing follows for other records.

    ``measure`` returns the number; or None, if nothing can be claimed; or the number and words for the braces of
    the sentence. The braces also take the cell's values. A word ``why`` is the likely reason if the claim fails.
    """

    measure: Measure
    relation: str  # one of RELATIONS
    limit: float | Measure
    columns: str = ""  # one cell per combination of the values of these columns
    quote: str = ""  # the sentence of the paper
    kind: str = CLAIM  # a claim about another learner than ``exaul`` is a check
    where: Mapping[str, Any] = MappingProxyType({})  # only these rows
    table: str = "trials"
    why: str = ""  # likely reason if it fails


Claims = Mapping[str, Claim]  # by sentence


def judge(claims: Claims, tables: Tables) -> Table:
    """Measure claims in all their cells; return one row per claim and cell. NaN holds nothing."""
    judged = []
    for sentence, claim in claims.items():
        rows = rows_where(tables[claim.table], claim.where)
        for values in cells(rows, *claim.columns.split()) if claim.columns else [{}][: len(rows)]:
            cell = Cell(tables, claim.table, {**claim.where, **values})
            measured = claim.measure(cell)
            if measured is None:
                continue
            number, words = measured if isinstance(measured, tuple) else (measured, {})
            limit: Any = claim.limit(cell) if callable(claim.limit) else claim.limit
            is_check = claim.kind == CLAIM and cell.values.get("learner", "exaul") != "exaul"
            terms = [f"{x} = {values[x]:g}" if x == "alpha" else values[x] for x in values if x != "learner"]
            row: dict[str, Any] = {"kind": CHECK if is_check else claim.kind}
            row |= {"claim": ", ".join([sentence.format(**{**cell.values, **words}), *terms])}
            row |= {"holds": bool(RELATIONS[claim.relation](number, limit)), "measured": float(number)}
            row |= {"relation": claim.relation, "limit": limit, "quote": claim.quote}
            judged.append(row | {"why": words.get("why", claim.why)})
    return Table(judged)


def cells(table: Table, *columns: str) -> list[dict[str, Any]]:
    """Return the distinct combinations of values of some columns, sorted."""
    return table[list(columns)].drop_duplicates().sort_values(list(columns)).to_dict("records")


def mean_of(column: str, learner: str = "exaul", **where: Any) -> Measure:
    """Return the measure that is the mean of a column over a learner's rows."""
    return lambda cell: cell.mean(column, learner, **where)


def alpha_of(cell: Cell) -> float:
    """Return the alpha of a cell."""
    return float(cell.rows()["alpha"].iloc[0])


def regret_over_ew(cell: Cell) -> Measurement:
    """Return the mean regret of ``exaul`` over that of ``ew`` at the longest horizon."""
    horizon = cell.rows()["horizon"].max()
    regret = {name: cell.mean("regret", name, horizon=horizon) for name in ("exaul", "ew")}
    words = {name: f"{value:.0f}" for name, value in regret.items()}
    return regret["exaul"] / regret["ew"], words | {"T": f"{horizon:,}"}


def extreme(choose: Callable[..., WithWords], measure: Callable[[Cell], WithWords]) -> Measure:
    """Return the measure that is the largest (``choose=max``) or smallest of another over the alphas of a cell."""

    def measured(cell: Cell) -> WithWords:
        inner = (cell._replace(values={**cell.values, "alpha": x}) for x in cell.rows()["alpha"].unique())
        return choose(map(measure, inner), key=lambda measurement: measurement[0])

    return measured


def explain_fdr(cell: Cell) -> str:
    """Explain an FDR above alpha: the coverage of the best fixed thresholds, and the bound at this T."""
    source, learner = cell.values["source"], cell.values.get("learner", "exaul")
    words = [
        f"on {row['source']} the best threshold of the {row['grid']} grid with FDR at most alpha answers "
        f"{row['on_grid']:.1%} (of all thresholds: {row['anywhere']:.1%})"
        for row in cell.tables["coverage"].to_dict("records")
        if row["alpha"] == cell.values["alpha"] and row["source"] in source.split(" -> ")
    ]
    bound = cell.mean("fdr_bound", learner)
    return "; ".join(words) + f"; the FDR bound at this T is {bound:.3g} (mean fdr_bound)"


def _mean_fdr(cell: Cell) -> Measurement:
    return cell.mean("fdr", cell.values["learner"]), {"why": explain_fdr(cell)}


def _gap(cell: Cell) -> WithWords:
    """Return the difference of the mean inefficiencies of ``exaul`` and ``ew``."""
    exaul, ew = (cell.mean("inefficiency", name) for name in ("exaul", "ew"))
    return abs(exaul - ew), {"why": f"{exaul:.3f} against {ew:.3f} at alpha = {alpha_of(cell):g}"}


def _smallest_share(cell: Cell) -> Measurement:
    """Return the smallest share that ``exaul`` answers of what the best threshold with FDR at most alpha does."""
    trials = cell.rows("trials", learner="exaul")
    inefficiency = trials.groupby(["source", "alpha"])["inefficiency"].mean()
    shares = [
        float(1 - inefficiency[row["source"], row["alpha"]]) / row["on_grid"]
        for row in cell.rows(second=0).to_dict("records")
        if row["on_grid"] > 0 and row["source"] in set(trials["source"])
    ]
    why = MARGINAL if shares else "no threshold of the grid has an FDR of at most alpha on these records"
    return min(shares, default=math.nan), {"why": why}


def _share_above_bound(cell: Cell) -> Measurement:
    """Return the share of trials whose regret is above its bound, if that is below T: the largest over learners."""
    trials = cell.rows()
    bounded = trials[(trials["regret_bound"] > 0) & (trials["regret_bound"] < trials["horizon"])]
    above = (bounded["regret"] > bounded["regret_bound"]).groupby(bounded["learner"]).mean()
    return (float(above.max()) if len(above) else 0.0), {"many": f"{len(bounded):,}"}


def _proved(inequality: Callable[[Table], Any], why: str) -> Claim:
    """Return the check that a proved inequality holds in every trial."""
    return Claim(lambda cell: int((~inequality(cell.rows())).sum()), "<=", 0, kind=CHECK, why=why)


LEMMA = "Lemma 1: trials that violate it, of all learners"
THEORY = {
    LEMMA: _proved(
        lemma_holds, "the lemma is true for any decisions, so the accounting is wrong; please report this"
    ),
    "share of the {many} trials with a bound below T whose regret exceeds it, worst learner": Claim(
        _share_above_bound, "<=", Sweep.delta, quote=REGRET
    ),
}
RISK_BOUND = {
    LEMMA: THEORY[LEMMA],
    "trials whose R_T is above the learner's pathwise bound": _proved(
        risk_holds, "the bound is proved, so this is a bug"
    ),
}
ABSTAINS_AS_EW = {
    "exaul abstains as often as ew, which sees every label: largest difference of mean inefficiency": Claim(
        extreme(max, _gap), "<=", MAX_GAP, "source", kind=REGRESSION
    )
}
NEAR_BEST = {  # the paper gives no number; nine tenths is our reading of "efficient", set beforehand (it fails)
    "exaul answers nearly as often as the best threshold with FDR at most alpha: smallest ratio": Claim(
        _smallest_share, ">=", 0.9, "", EFFICIENT, table="coverage"
    )
}


def fdr_claims(quote: str = CONTROLS, learners: Sequence[str] = ("exaul",)) -> dict[str, Claim]:
    """Return the claims about every figure of the FDR over time; ``quote`` is the paper's sentence about alpha."""
    return {
        "{learner}: mean FDR at T is at most alpha": Claim(
            _mean_fdr, "<=", alpha_of, "learner source alpha", quote, where={"learner": tuple(learners)}
        ),
        **ABSTAINS_AS_EW,
        "exp3-ix, which updates one arm per round, has a larger mean FDR at T than exaul": Claim(
            mean_of("fdr", "exp3-ix"), ">", mean_of("fdr"), "source alpha", NEEDS_LONGER
        ),
        **THEORY,
    }
