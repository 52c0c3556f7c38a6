"""Configuration of the paper's experiments: flags, records and scale."""

from dataclasses import replace
from typing import Any

from exaul import Sweep
from exaul.engine.checks import BadInput, check_known, setting
from exaul.engine.logs import profiles
from exaul.engine.logs.log import Layout, Records, load_log, with_distinct_names
from exaul.kernels.game import GRIDS

EasyAndHard = tuple[Records, Records]  # easy, hard
PROFILES = ("triviaqa-like", "nq-like")  # easy, hard
EASY, HARD, SHIFT = 0, 1, 2  # indices of the alphas; the first two also of the records
HORIZON = 30_000  # T in most figures
PAPER_LEARNERS = ("exaul", "exp3-ix", "ew", "no-abstention")  # the paper's learners in most figures


class Paper(Layout):
    """Configuration of the experiments; every field is a flag of ``python -m experiments NAME``.

    Raises:
        BadInput: a field is out of its range; the message names it.
    """

    out: str | None = setting(None, "folder for tables, figures and the report; absent or empty", "DIR")
    logs: tuple[str, ...] = setting(
        (), "an easy log and a hard one, as for '{exaul} sweep --logs' (default: two built-in profiles)", "PATH"
    )
    other_score: str | None = setting(
        None, "'scores': another column of scores in the hard log (default: simulated self-consistency)", "COL"
    )
    sources: tuple[str, ...] = setting(
        PROFILES, "an easy built-in profile and a hard one, if no logs are given", "PROFILE"
    )
    alphas: tuple[float, ...] = setting(
        (0.05, 0.2, 0.1),
        "target FDR on the easy log, on the hard one, and under shift; with --data: for every trace",
        "ALPHA",
    )
    grid: str | None = setting(
        None, "thresholds: uniform, logit or quantile (default: uniform; 'beyond', 'advice': logit)", "NAME"
    )
    data: str | None = setting(
        None, "'beyond', 'advice': all traces (dataset, model, prompt and column score*) of a folder of logs", "DIR"
    )
    learners: tuple[str, ...] = setting((), "'beyond': learners to run (default: those of its table)", "NAME")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, pair in (("logs", self.logs or PROFILES), ("sources", self.sources)):
            if len(pair) != 2:
                raise BadInput(f"{name}: {len(pair)} given; 2 are needed")
        if self.other_score is not None and not self.logs:
            raise BadInput("other_score: given without logs; a built-in profile has one score")
        check_known("grid", () if self.grid is None else (self.grid,), GRIDS)
        for alpha in self.alphas:
            self.sweep(alphas=alpha, learners=self.learners, sources=self.sources)  # which checks them
        if self.logs and self.sources != PROFILES:
            raise BadInput("logs: given together with sources; choose one of the two")
        for name in () if self.logs else self.changed:
            raise BadInput(f"{name}: given without logs; a built-in profile has no such column")

    def load(self) -> EasyAndHard:
        """Return the easy records and the hard ones; raise BadInput if a log is unusable."""
        if self.logs:
            easy, hard = with_distinct_names([load_log(log, self) for log in self.logs])
        else:
            easy, hard = (profiles.load_profile(name) for name in self.sources)
        return easy, hard

    def other_records(self) -> Records | None:
        """Return the hard log with its other score, or None; raise BadInput if the column is unusable."""
        if self.other_score is None:
            return None
        records = load_log(self.logs[HARD], replace(self, score=self.other_score))
        return records._replace(name=f"{records.name} ({self.other_score})")

    @property
    def has_default_records(self) -> bool:
        """Whether all but the folder of the report has its default."""
        return replace(self, out=None) == Paper()

    def sweep(self, **fields: Any) -> Sweep:
        """Return a sweep with the grid; tests, which need smaller sweeps, replace this method."""
        return Sweep(**{"horizon": HORIZON, "trials": 100, "grid": self.grid or "uniform", **fields})
