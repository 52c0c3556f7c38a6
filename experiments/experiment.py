"""The parts of an experiment: sweeps, their tables, and claims about them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from exaul import Result, Sweep
from exaul.engine import registry
from exaul.engine.logs.files import Table, stack
from exaul.engine.logs.log import Records
from exaul.engine.results.figures import Figure
from exaul.kernels.game import ARMS, GRIDS
from exaul.kernels.metrics import Floats, every_threshold, risk_coverage
from experiments.claims import Claims, Tables, judge
from experiments.paper import EasyAndHard, Paper

MIXED = tuple(((np.arange(20) + 0.5) / 20).tolist())  # shares of the second source in a gradual shift


class ExperimentPart(NamedTuple):
    """A sweep and its records."""

    sweep: Sweep
    records: tuple[Records, ...]


Parts = Sequence[ExperimentPart]
Derive = Callable[[Tables], Mapping[str, Table]]
Figures = Mapping[str, Figure]  # by name


class Experiment(NamedTuple):
    """Sweeps, with figures and claims.

    ``parts(paper, (easy, hard))`` returns the sweeps. ``derive(tables)`` returns further tables; figures and claims
    are functions of all tables alone. ``impostors`` are further impostors, which run nothing: each derives other
    tables from the same results. ``has_advice`` says whether the tables have the advice, which takes time.
    """

    description: str
    parts: Callable[[Paper, EasyAndHard], Parts]
    figures: Callable[[Tables], Figures]
    claims: Claims
    derive: Derive = lambda tables: {}
    impostors: Mapping[str, Derive] = MappingProxyType({})
    has_advice: bool = False

    def judge(self, tables: Tables, derive: Derive | None = None) -> Table:
        """Derive the further tables, and measure the claims."""
        return judge(self.claims, {**tables, **(derive or self.derive)(tables)})


def load_environment(name: str) -> Any:
    """Return the environment of a name such as ``adversary-omniscient:objective=regret``, which has tunables."""
    return registry.load_object(registry.ENVIRONMENTS[name.partition(":")[0]])


def part_of(
    paper: Paper, records: Sequence[Records], environment: str = "stochastic", **fields: Any
) -> ExperimentPart:
    """Return a sweep in an environment, on as many of the records as it has sources."""
    name, _, values = environment.partition(":")
    sweep = paper.sweep(environment=name, tunables=tuple(values.split(",")) if values else (), **fields)
    return ExperimentPart(sweep, tuple(records[: load_environment(name).pool_count]))


def count_segments(name: str) -> int:
    """Return the number of segments of one source each in the rounds of an environment."""
    return getattr(load_environment(name), "segments", 1)


def join_tables(parts: Parts, results: Sequence[Result], has_advice: bool = False) -> Tables:
    """Concatenate the tables of an experiment's parts.

    ``coverage`` is that of the best fixed thresholds: ``source, records, error_rate, alpha, second`` (the share of
    the second source in a mixture), ``grid, on_grid, anywhere``. Some have ``asked`` or ``advice`` beside it.
    """
    coverage: dict[tuple[Any, ...], dict[str, Any]] = {}  # each source once
    for part in parts:
        coverage |= {(row["source"], row["alpha"], row["second"]): row for row in coverage_rows(part)}
    trials = stack([result.trials for result in results])
    tables = {
        "trials": trials.assign(fdr=trials["fdr"].fillna(trials["alpha"])),  # without answers, as in the paper
        "curves": stack([result.curves for result in results]),
        "coverage": Table(list(coverage.values())),
    }
    asked = [result.asked for result in results if result.asked is not None]
    advice = [result.advice for result in results] if has_advice else []
    return tables | {name: stack(rows) for name, rows in (("asked", asked), ("advice", advice)) if rows}


def coverage_rows(part: ExperimentPart) -> Iterator[dict[str, Any]]:
    """Yield the rows of coverage of each source, and under a gradual shift of the mixtures of both, by alpha."""
    sweep = part.sweep
    pools: list[tuple[tuple[Records, ...], tuple[float, ...]]] = [((source,), (0.0,)) for source in part.records]
    if sweep.environment == "gradual-shift":
        pools.append((part.records, MIXED))
    for sources, seconds in pools:
        scores = np.concatenate([source.scores for source in sources])
        grids = {"on_grid": GRIDS[sweep.grid](sweep.arms or ARMS, scores), "anywhere": every_threshold(scores)}
        curves = {
            name: [risk_coverage(grid, source.scores, source.errors) for source in sources]
            for name, grid in grids.items()
        }
        for alpha, second in product(sweep.alphas, seconds):
            shares = (1 - second, second)[: len(sources)]
            yield {
                "alpha": alpha,
                "grid": sweep.grid,
                "source": " -> ".join(source.name for source in sources),
                "records": len(scores),
                "error_rate": sum(share * x.errors.mean() for share, x in zip(shares, sources, strict=True)),
                "second": second,
            } | {name: mixed_coverage(grid_curves, shares, alpha) for name, grid_curves in curves.items()}


def mixed_coverage(curves: Sequence[tuple[Floats, Floats]], shares: Sequence[float], alpha: float) -> float:
    """Return ``best_coverage`` of records drawn from logs with probabilities ``shares``, from ``risk_coverage``."""
    answered, wrong = np.zeros((2, len(curves[0][0])))
    for share, (coverage, risk) in zip(shares, curves, strict=True):
        answered += share * coverage
        wrong += share * (coverage * np.nan_to_num(risk))
    return float(answered[wrong <= alpha * answered + 1e-12].max())  # tolerance for rounded shares
