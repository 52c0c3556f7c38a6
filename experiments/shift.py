"""``single-shift``, ``alternating-shift``, ``gradual-shift``: from easy questions to hard ones, and back."""

from collections.abc import Sequence

from exaul.engine.data.records import Records
from exaul.engine.data.tables import Table
from exaul.engine.results import figures
from experiments.experiment import Claim, Experiment, Part, Tables, farther, holds_alpha, theory
from experiments.paper import SHIFT, Paper
from experiments.worlds import segments


def parts_of(environment: str, paper: Paper, records: tuple[Records, Records]) -> Sequence[Part]:
    """A shift in both orders."""
    sweep = paper.sweep(environment=environment, alphas=(paper.alphas[SHIFT],))
    return [Part(sweep, records), Part(sweep, records[::-1])]


def rise(curves: Table, curve: str, learner: str, source: str, parts: int) -> float:
    """How far the mean of a curve rises above its value at the first shift (of a gradual one: at T / 10)."""
    rows = curves[(curves["learner"] == learner) & (curves["source"] == source)]
    start = rows["t"].max() / (parts if parts > 1 else 10)
    after = rows.loc[rows["t"] >= start, f"{curve}_mean"].to_numpy()
    return float(after.max() - after[0])


def _claims(environment: str, tables: Tables) -> list[Claim]:
    forwards = tables.curves["source"].iloc[0]
    rises = {
        name: rise(tables.curves, "fdr", name, forwards, segments(environment)) for name in ("exaul", "exp3-ix")
    }
    text = f"to harder questions the mean FDR of exp3-ix rises more than that of exaul, {forwards}"
    return [
        *holds_alpha(tables),
        *farther(tables),
        Claim(text, rises["exp3-ix"], ">", rises["exaul"]),
        *theory(tables),
    ]


def _experiment(environment: str, about: str) -> Experiment:
    return Experiment(
        about,
        lambda paper, records: parts_of(environment, paper, records),
        lambda tables: figures.draw(tables.trials, tables.curves, segments(environment)),
        lambda tables: _claims(environment, tables),
    )


single = _experiment("single-shift", "One source for half of the rounds, then the other.")
alternating = _experiment("alternating-shift", "Ten segments, of the two sources in turn.")
gradual = _experiment("gradual-shift", "Round t comes from the second source with chance t / T.")
