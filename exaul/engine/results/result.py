"""The result of a sweep: tables, manifest, summary, and how they are written."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from exaul.engine.checks import quote
from exaul.engine.feedback import describe_waiting
from exaul.engine.logs.files import Table
from exaul.engine.logs.log import Records
from exaul.engine.results import advice, counts, folder, redraw, sealed, summary, summary_tables
from exaul.engine.results.counts import Counts
from exaul.engine.results.manifest import first_difference
from exaul.engine.results.text_table import wrap
from exaul.engine.results.trials import asked_table, curves_table, lemma_holds, risk_holds, trials_table
from exaul.engine.sweep import Sweep
from exaul.kernels.feedback import PERFECT_FEEDBACK
from exaul.kernels.metrics import Floats

Shard = tuple[Path, dict[str, Any], Counts]  # folder, manifest and counts


class Mismatch(ValueError):
    """The shards do not form one sweep; the sentence says why."""


@dataclass(frozen=True)
class Result:
    """The result of a sweep.

    ``trials`` has one row per learner, alpha, lambda and trial; ``curves`` one row per learner, alpha, lambda and
    checkpoint; ``asked`` describes the questions of an adaptive environment, else it is None. ``docs/tables.md``
    defines the columns. ``manifest`` is enough to run the sweep again; ``records`` are those that were played, and
    ``sources`` all records of the logs or profiles.
    """

    sweep: Sweep
    trials: Table
    curves: Table
    asked: Table | None
    manifest: dict[str, Any]
    records: tuple[Records, ...]
    grid: Floats  # [H] thresholds
    sources: tuple[Records, ...]
    merged_advice: Table | None = None  # of a merged shard, whose sources are not read again

    def write(self, path: Path, counted: Counts, with_figures: bool = True) -> None:
        """Write tables and figures into an existing folder; for a shard also its counts, which ``merge`` reads."""
        tabled = {"trials": self.trials, "curves": self.curves}
        tabled |= {} if self.advice.empty else {"advice": self.advice}
        tabled |= {} if self.asked is None else {"asked": self.asked}
        drawn = redraw.draw(tabled, self.manifest["segments"]) if with_figures else {}
        folder.write_files(path, tabled, drawn)
        if self.sweep.shard is not None:
            with (path / "counts.npz").open("wb") as stream:
                sealed.write(stream, counts.arrays(counted), self.manifest)

    @cached_property
    def advice(self) -> Table:
        """Whether to use ``aci-rank``, from halves of the sources: two rows per source and alpha.

        It is made when it is first asked for, and empty in an adaptive environment.
        """
        if self.merged_advice is not None:
            return self.merged_advice
        return advice.advice_table(self.sources if self.asked is None else (), self.sweep.alphas, self.sweep.step)

    @property
    def lemma_holds(self) -> bool:
        """Whether Lemma 1 holds in every trial. If not, the program has a bug."""
        return bool(lemma_holds(self.trials).all())

    @property
    def risk_holds(self) -> bool:
        """Whether R_T is within its bound in every trial of every learner with a bound."""
        return bool(risk_holds(self.trials).all())

    def _reached(self) -> list[Records]:
        """Return the records; of a replayed log only the first T."""
        reached = slice(self.manifest["horizon"] if self.sweep.environment == "replay" else None)
        return [r._replace(scores=r.scores[reached], errors=r.errors[reached]) for r in self.records]

    def summary(self, width: int | None = None, theory: bool = False) -> str:
        """Return the most important numbers as text.

        Args:
            width: of the terminal: narrow tables have fewer columns, and no line of text is longer; None for all.
            theory: whether to add the table of regrets, bounds and Lemma 1.
        """
        sweep, trials = self.sweep, self.trials
        waiting = describe_waiting(sweep.feedback, self.manifest["horizon"])
        dropped = [f"{r.name}: {r.dropped} rows without score or label left out" for r in self.records if r.dropped]
        feasible, answerable = "", dict[float, float]()
        if self.asked is None:  # in an adaptive environment no fixed threshold is known to be best
            feasible = summary.feasibility(self.records, sweep.grid, self.grid, sweep.alphas)
            answerable = summary.shares_answerable(
                self._reached(), self.grid, self.manifest["segments"], sweep.alphas
            )
        horizon = self.manifest["horizon"]
        checks = summary_tables.describe_checks(trials, sweep.delta)
        tables = [
            summary_tables.summarize(
                trials,
                answerable,
                advised=advice.advised(self.advice),
                by_answers=[x["learner"] for x in self.manifest["players"] if x["bound_by_answers"]],
                waiting=waiting,
                width=width,
            ),
            summary_tables.describe_feedback_sums(trials, width),
            summary_tables.summarize_theory(trials, sweep.delta, width) if theory else "",
        ]
        texts = [
            f"{checks}{'' if theory else '; more: --theory'}",
            feasible,
            advice.describe(self.advice, sweep.feedback == PERFECT_FEEDBACK),
            summary.describe_rounds(self.records, horizon) if sweep.environment == "stochastic" else "",
            summary.describe_warm_start(self.manifest),
            *dropped,
            summary.describe_backends(self.manifest),
        ]
        return "\n\n".join(part for part in (*tables, *(wrap(text, width) for text in texts)) if part)


def tabulate(
    sweep: Sweep,
    counted: Counts,
    records: Sequence[Records],
    manifest: dict[str, Any],
    sources: Sequence[Records],
    merged_advice: Table | None = None,
) -> Result:
    """Return the result of a sweep, with the tables made from its counts.

    Args:
        sweep, counted, records, manifest: of the sweep; ``records`` are those that are played.
        sources: all records of the logs or profiles.
        merged_advice: as of ``Result``.
    """
    tabled = trials_table(counted), curves_table(counted), asked_table(counted)
    return Result(sweep, *tabled, manifest, tuple(records), counted.grid, tuple(sources), merged_advice)


def join(
    shards: Sequence[Shard],
    records: Sequence[Records],
    sources: Sequence[Records],
    out: str | None,
    merged_advice: Table | None = None,
) -> tuple[Result, Counts]:
    """Join all shards of a sweep, in any order, to a result and its counts; arguments as of ``tabulate``.

    Raises:
        Mismatch: the shards do not fit.
    """
    shards = sorted(shards, key=lambda shard: int(shard[2].trials[0]))
    first, manifest, _ = shards[0]
    for path, other, _ in shards[1:]:
        differs = first_difference(manifest, other, besides=("out", "shard", "logs"))
        if differs is not None:
            name, first_value, other_value = differs
            raise Mismatch(f"{name} is {quote(other_value)} in {path}, {quote(first_value)} in {first}")
    trials = manifest["configuration"]["trials"]
    reached = 0
    for path, _, counted in shards:
        start, end = int(counted.trials[0]), int(counted.trials[-1]) + 1
        if start != reached:
            what = "is missing" if start > reached else "is given twice"
            raise Mismatch(f"trial {min(start, reached)} {what} ({path} has {start} to {end - 1})")
        reached = end
    if reached != trials:
        raise Mismatch(f"trial {reached} is missing (the sweep has 0 to {trials - 1})")
    whole = manifest | {
        "configuration": manifest["configuration"] | {"shard": None, "out": out},
        "batch": max(other["batch"] for _, other, _ in shards),
        "start": min(other["start"] for _, other, _ in shards),
        "end": max(other["end"] for _, other, _ in shards),
    }
    joined = counts.join_counts((counted for _, _, counted in shards), trials)
    return tabulate(Sweep(**whole["configuration"]), joined, records, whole, sources, merged_advice), joined
