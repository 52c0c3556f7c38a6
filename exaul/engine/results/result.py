"""The result of a sweep: tables, manifest, summary, and how they are written and drawn."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from exaul.engine import folder
from exaul.engine.checks import BadInput, as_typed, join_lines
from exaul.engine.feedback import describe_waiting
from exaul.engine.logs import files
from exaul.engine.logs.diagnosis import recommend_grid
from exaul.engine.logs.files import Table
from exaul.engine.logs.log import Records
from exaul.engine.logs.profiles import PROFILES
from exaul.engine.manifest import is_over_traces, read_finished
from exaul.engine.registry import FROM_LOG
from exaul.engine.results import advice, summary
from exaul.engine.results.text_table import (
    COMMAND,
    RATE_COLUMNS,
    as_digits,
    as_range,
    plain,
    short_learner_names,
    traces_by_answerable,
    with_rates,
    wrap,
)
from exaul.engine.results.trials import lemma_holds, risk_holds, traces_table
from exaul.engine.sweep import Sweep
from exaul.kernels.feedback import PERFECT_FEEDBACK
from exaul.kernels.learners.aci_rank import STEP


class PlayedSource(NamedTuple):
    """The records of a source of a finished sweep."""

    name: str  # as in the column ``source``
    records: tuple[Records, ...]  # that were played
    all_records: tuple[Records, ...]  # of its logs or profiles


@dataclass(frozen=True)
class Result:
    """The result of a sweep.

    ``trials`` has one row per source, learner, cell and trial; ``curves`` one row per source, learner, cell and
    checkpoint; ``asked`` describes the questions of an adaptive environment, else it is None.
    ``docs/results.md`` defines the columns. ``manifest`` is enough to run the sweep again. ``sources`` are the
    records of its sources; after a merge they are not known, and ``loaded`` has the tables that are made from them.
    """

    sweep: Sweep
    trials: Table
    curves: Table
    asked: Table | None
    manifest: dict[str, Any]
    sources: tuple[PlayedSource, ...]
    loaded: dict[str, Table] = field(default_factory=dict)

    def __repr__(self) -> str:
        counts = f"{self.trials['learner'].nunique()} learners, {len(self.sweep.trial_numbers):,} trials"
        return f"Result({counts} of {as_range(self.trials['horizon'])} rounds; .summary(), .trials, .curves)"

    @cached_property
    def _tabled(self) -> dict[str, Table]:
        """The tables that are written, by name."""
        tabled = {"trials": self.trials, "curves": self.curves}
        optional = {"advice": self.advice, "asked": self.asked, "traces": self.traces}
        return tabled | {name: table for name, table in optional.items() if table is not None and not table.empty}

    def write_tables(self, path: str | Path) -> None:
        """Write the tables into an existing folder, and ``table.tex``."""
        folder.write_files(Path(path), self._tabled, {})
        (Path(path) / "table.tex").write_text(latex_of(self.trials, self.manifest["configuration"]), "utf-8")

    def write_figures(self, path: str | Path) -> None:
        """Write the figures into an existing folder; over traces, only those of all traces."""
        # drawing each trace takes longer than most sweeps over it, and few of so many figures are looked at
        drawn = {"traces": self.traces} if self.traces is not None else self._tabled
        folder.write_files(Path(path), {}, draw(drawn, self.manifest))

    @cached_property
    def advice(self) -> Table:
        """Whether to use ``aci-rank``, from halves of the sources: two rows per log or profile and alpha.

        When it is first asked for, the learner plays 31 halves of each source, at every alpha, which may take
        seconds. It is empty in an adaptive environment.
        """
        if "advice" in self.loaded:
            return self.loaded["advice"]
        by_name = {records.name: records for source in self.sources for records in source.all_records}
        return advice.advice_table(list(by_name.values()) if self.asked is None else (), self.sweep.alphas)

    @cached_property
    def traces(self) -> Table | None:
        """The means over trials, with what each source can answer; None unless the sweep is over traces."""
        if "traces" in self.loaded:
            return traces_table(self.trials, self.loaded["traces"])
        return traces_table(self.trials, files.Table(self._of_sources())) if is_over_traces(self.manifest) else None

    @property
    def lemma_holds(self) -> bool:
        """Whether Lemma 1 holds in every trial. If not, the program has a bug."""
        return bool(lemma_holds(self.trials).all())

    @property
    def risk_holds(self) -> bool:
        """Whether R_T is within its bound in every trial of every learner with a bound."""
        return bool(risk_holds(self.trials).all())

    def summary(self, width: int | None = None, theory: bool = False) -> str:
        """Return the most important numbers as text.

        Args:
            width: of the terminal: narrow tables have fewer columns, and no line of text is longer; None for all.
            theory: whether to add the table of regrets, bounds and Lemma 1; not over traces.
        """
        if self.traces is not None:
            return self._summary_of_traces(self.traces, width)
        sweep, trials, played = self.sweep, self.trials, self.manifest["sources"][0]
        records = [records for source in self.sources for records in source.records]
        is_log = bool(sweep.logs) or not set(played["name"].split(" -> ")) <= set(PROFILES)
        marked = advice.advised(self.advice, trials)
        advised = {alpha: f"{name}{self._step}" for alpha, name in marked.items()}
        waits = sweep.delay or sweep.feedback.may_be_missing
        at_once = "" if waits else ", each rated correctly and at once"
        condition = describe_waiting(sweep.feedback, played["horizon"]) or at_once
        answerable = {float(alpha): share for alpha, share in played["answerable"].items()}
        shares = answerable if played["segments"] == 1 else {}  # after a shift, several are the best
        is_default = is_log and (sweep.grid, sweep.arms, sweep.warm_start) == ("uniform", None, None)
        parts = [
            summary.describe_sweep(sweep, played, records, is_log),
            recommend_grid(records[0], answerable) if is_default and len(records) == 1 and answerable else "",
            summary.summarize(trials, advised=advised, shares=shares, condition=condition, width=width),
            summary.describe_feedback_sums(trials, width),
            summary.describe_warm_start(played),
        ]
        is_compared = is_log and advice.ACI_RANK in set(trials["learner"])  # else the sweep is of others
        if is_compared and not self.advice.empty:
            parts.append(advice.describe_halves(self.advice, width))
        if not theory or {advice.ACI_RANK, FROM_LOG} & set(trials["learner"]):
            learner = FROM_LOG if FROM_LOG in set(trials["learner"]) else advice.ACI_RANK
            text = advice.describe(self.advice, f"{learner}{self._step}", sweep.feedback == PERFECT_FEEDBACK)
            parts.append(text)
        if is_compared and not theory and (best := advice.advised(self.advice)):
            parts.append(advice.describe_use(sweep, list(best)))
        elif not is_log and not self.advice.empty:
            alphas = [f"{alpha:g}" for alpha in sweep.alphas]
            command = as_typed("sweep", "--logs", "LOG.csv", "--alphas", *alphas, "--warm-start", "0.5")
            parts.append(f"on your own log:\n{COMMAND}{command}")
        checks = summary.describe_checks(trials, sweep.delta)
        if theory:  # what a researcher asks for: regrets, bounds, Lemma 1 and backends
            parts.append(summary.summarize_theory(trials, sweep.delta, answerable, width))
        if theory or summary.BROKEN in checks:  # which ends the command with status 1
            parts.append(checks)
        if theory:
            parts.append(summary.describe_backends(self.manifest, played["learners"]))
        return wrap("\n\n".join(filter(None, parts)), width)

    def to_latex(self) -> str:
        """Return FDR, answers, R_T, regret and limits per learner and cell as LaTeX, for the package booktabs.

        ± is the standard deviation over trials, and an asterisk marks a mean FDR above alpha. Each trace and alpha
        has a block of rows.
        """
        return latex_of(self.trials, self.manifest["configuration"])

    def _summary_of_traces(self, traces: Table, width: int | None) -> str:
        dropped = {x["name"]: x["dropped"] for source in self.manifest["sources"] for x in source["records"]}
        left_out = summary.describe_left_out(self.sweep, self.manifest["left_out"])
        texts = [summary.advise_traces(traces), f"traces: {traces['trace'].nunique()}{left_out}"]
        if total := sum(dropped.values()):
            texts.append(f"{total} rows without score or label left out")
        if self.sweep.out is not None:
            texts.append(f"figures over time:\n{COMMAND}{as_typed('figures', self.sweep.out)}")
        table = summary.summarize_traces(traces, len(self.sweep.lambdas) > 1, width)
        return wrap("\n\n".join([table, *texts]), width)

    @property
    def _step(self) -> str:
        """The end of the advised learner's name, whose step is that of programs, if the sweep has others."""
        return "" if set(self.sweep.steps) <= {STEP} else f", step {as_digits(STEP)}"

    def _of_sources(self) -> list[dict[str, Any]]:
        """Return for each source and alpha what does not depend on trials: columns of ``traces.csv``."""
        rows = []
        for source, saved in zip(self.sources, self.manifest["sources"], strict=True):
            errors = np.concatenate([records.errors for records in source.records])
            names = [records.name for records in source.all_records]
            source_advice = self.advice if self.advice.empty else self.advice[self.advice["source"].isin(names)]
            advised = advice.advised(source_advice)
            for alpha in self.sweep.alphas:
                rows.append(
                    {
                        "trace": source.name,
                        "alpha": alpha,
                        "records": len(errors),
                        "error_rate": errors.mean(),
                        "answerable": saved["answerable"].get(str(alpha), np.nan),
                        "advised": advised.get(alpha, summary.NONE),
                    }
                )
        return rows


def captioned(configuration: Mapping[str, Any]) -> dict[str, str]:
    """Return what captions say of a configuration, by name: the probability of bounds, and a column of scores."""
    score = configuration["score"]
    return {"probability": f"{1 - configuration['delta']:g}"} | ({"score": score} if score != Sweep.score else {})


def with_shades(table: Table, configuration: Mapping[str, Any]) -> Table:
    """Return a table with the place of the rates of each row among those of the sweep: ``shade``, from 0."""

    def place(rate: str) -> Any:
        values = configuration[f"{rate}s"]
        return table[rate].map(dict(zip(map(float, values), range(len(values)), strict=True)))

    eta, gamma, step = map(place, RATE_COLUMNS)
    return table.assign(shade=(eta * len(configuration["gamma_scales"]) + gamma.fillna(0)).fillna(step).fillna(0))


def latex_of(trials: Table, configuration: Mapping[str, Any]) -> str:
    """Return ``table.tex`` of trials, as ``Result.to_latex`` describes it."""
    return summary.as_latex(short_learner_names(trials).assign(**captioned(configuration)), configuration["delta"])


def draw(tabled: Mapping[str, Table], manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of the given tables of a sweep by name."""
    from exaul.engine.results import figures, sweep_figures, trace_figures  # import matplotlib

    tabled = {name: short_learner_names(table) for name, table in tabled.items()}
    configuration, segments = manifest["configuration"], manifest["sources"][0]["segments"]
    ceilings = dict[tuple[str, float], float]()
    for source in manifest["sources"] if segments == 1 else ():
        ceilings |= {(source["name"], float(alpha)): share for alpha, share in source["answerable"].items()}
    drawn: dict[str, Any] = {}
    if (traces := tabled.get("traces")) is not None:
        drawn["traces-by-learner"] = trace_figures.traces_by_learner(traces)
    if "trials" in tabled:
        known, note = captioned(configuration), ""
        trials, curves = (with_shades(tabled[name].assign(**known), configuration) for name in ("trials", "curves"))
        if traces is None:
            given, advised = tabled.get("advice"), dict[float, str]()
            if given is not None:
                advised = dict.fromkeys(given["alpha"], summary.NONE) | advice.advised(given, trials)
            best = {(x, alpha): name for x in trials["source"].unique() for alpha, name in advised.items()}
        else:  # whole traces, as many as one figure has panels for
            if trials.groupby("source")["lambda"].nunique().max() == 1:  # sqrt(T), of traces that differ in length
                trials, curves = (x.assign(**{"lambda": trials["lambda"].iloc[0]}) for x in (trials, curves))
            panels = figures.ROWS * figures.panel_columns(trials["alpha"].nunique())
            count = max(1, panels // len(trials[["alpha", "lambda"]].drop_duplicates()))
            names = traces_by_answerable(traces)
            trials, curves = (
                files.stack([x[x["source"] == name] for name in names[:count]]) for x in (trials, curves)
            )
            best = traces.set_index(["trace", "alpha"])["advised"].to_dict()
            note = f"{len(names) - count} more traces are not drawn: see traces.csv." * (len(names) > count)
        of_cells = sweep_figures.draw(trials, curves, segments, best, ceilings)
        for figure in of_cells.values():
            figures.add_note(figure, plain(note))
        drawn |= of_cells
    if "asked" in tabled:
        drawn |= figures.with_trials({"asked": sweep_figures.asked_figure(tabled["asked"])}, trials)
    return drawn


def load_tables(path: Path, names: Sequence[str]) -> dict[str, Table]:
    """Return the tables among ``names`` that a folder of results has; BadInput if one is unreadable."""
    return {name: files.load(path / f"{name}.csv") for name in names if (path / f"{name}.csv").exists()}


def choose(path: Path, table: Table, chosen: Mapping[str, Collection[Any]]) -> Table:
    """Return the rows of the chosen values, by name of a field of ``Sweep``, and those that have no such rate.

    Raises:
        BadInput: a chosen value is in no row.
    """
    for field_name, values in chosen.items():
        column = field_name.removesuffix("s")
        if column not in table:
            continue
        cells, unused = table[column], table[column].isna()
        if column == "learner":  # also named as figures do
            rated = with_rates(short_learner_names(table))["learner"]
            short = cells.where(cells.isin(values), cells.str.rpartition(":")[2])
            cells = rated.where(rated.isin(values), short)
        if lacking := [value for value in values if not (cells == value).any()]:
            if cells.isna().all():
                names = ", ".join(table["learner"].unique())
                raise BadInput(f"{field_name}: given, but none of the learners has it: {names}")
            known = rated if column == "learner" else cells
            listed = "; ".join(str(value) for value in known.dropna().unique())
            raise BadInput(f"{field_name}: {lacking[0]} is not in {path}, which has {listed}")
        table = table[cells.isin(values) | (unused & (column in RATE_COLUMNS))]
    return table


def redraw(path: Path, width: float, out: str | None = None, chosen: Mapping[str, Collection[Any]] = {}) -> None:
    """Draw all figures of a finished sweep from its tables, at most ``width`` inches wide.

    Args:
        path: folder of the sweep.
        width: in inches.
        out: folder, absent or empty, for the figures and ``table.tex``; None to draw the figures in ``path`` again.
        chosen: values to draw by name of the field, as in ``choose``.

    Raises:
        BadInput: the folder has no finished sweep, its tables cannot be drawn, or it is in use or not writable; a
            chosen value is in no row; or ``out`` is not empty.
    """
    from exaul.engine.results.figures import at_most_wide  # imports matplotlib

    manifest = read_finished(path)
    tabled = {name: files.load(path / f"{name}.csv") for name in ("trials", "curves")}
    tabled |= load_tables(path, ("asked", "traces"))
    tabled = {name: choose(path, table, chosen) for name, table in tabled.items()} | load_tables(path, ["advice"])
    try:
        with at_most_wide(width):
            drawn = draw(tabled, manifest)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # an edited table
        reason = join_lines(f"{type(error).__name__}: {error}")
        raise BadInput(f"{path}: its tables cannot be drawn ({reason})") from error
    with folder.lock(path), folder.fill_atomically(path) if out is None else folder.fill_new(out) as partial:
        folder.write_files(partial, {}, drawn)
        if out is not None:
            (partial / "table.tex").write_text(latex_of(tabled["trials"], manifest["configuration"]), "utf-8")
