"""``exaul verify``: compare the decisions of a sweep's backends with those of ``dense`` in float64."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from exaul.commands.flags import Command
from exaul.commands.terminal import show, terminal_width
from exaul.engine import machine
from exaul.engine.checks import BadInput
from exaul.engine.registry import backend_of
from exaul.engine.results.text_table import format_table
from exaul.engine.simulation.agreement import TOLERANCE, count_parted
from exaul.engine.simulation.batch import LearnerRun, simulate_pass
from exaul.engine.simulation.prepare import PreparedSource, prepare_source
from exaul.engine.simulation.prepare_learner import PreparedLearner, with_feedback
from exaul.engine.sweep import Sweep
from exaul.kernels import metrics
from exaul.kernels.metrics import Floats, Z

MOST_COPIES = 128  # compared copies, or two trials of each cell if that is more (chosen: ten seconds)
MOST_ROUNDS = 10_000  # compared rounds (chosen: ten seconds)


class Certificate(NamedTuple):
    """How a learner decides on its backend, compared with ``dense`` in float64 over the same uniforms."""

    learner: str
    backend: str
    parted: int  # copies that decide differently in some round
    decisions: int  # decisions that were compared, of each copy up to the first that differs
    changes: dict[str, Floats]  # [copies], changes of FDR, inefficiency and regret per round

    def holds(self, precision: str) -> bool:
        """Return whether so few copies part that rounding explains it; more do at large eta (docs/promises.md)."""
        return self.parted <= TOLERANCE[precision] * self.decisions


def certify(prepared: PreparedSource, learner: PreparedLearner) -> Certificate:
    """Compare a learner with ``dense`` in float64, over the first rounds of a sweep."""
    rounds = min(prepared.horizon, MOST_ROUNDS)
    # a sweep keeps totals, not decisions: with a checkpoint after every round, the totals tell the decisions
    prepared = replace(prepared, checkpoints=np.arange(1, rounds + 1))
    dense = backend_of(learner.definition, "dense", "float64")
    backend = with_feedback(learner.name, learner.definition, dense, learner.feedback_model, learner.rates)
    run, reference = _simulate(prepared, learner), _simulate(prepared, learner._replace(backend=backend))
    alpha, *costs = prepared.copies(learner)[:3]
    results = [
        {
            "FDR": metrics.fdr(answered, wrong, alpha),
            "inefficiency": 1 - answered / rounds,
            "regret a round": metrics.loss(answered, wrong, rounds, *costs) / rounds,
        }
        for answered, wrong in ((x.answered[-1], x.wrong[-1]) for x in (run, reference))
    ]
    changes = {name: results[0][name] - results[1][name] for name in results[0]}
    counts = count_parted(run.answered, reference.answered)
    return Certificate(learner.name, learner.backend_name, *counts, changes)


def _simulate(prepared: PreparedSource, learner: PreparedLearner) -> LearnerRun:
    return simulate_pass(prepared, [learner], prepared.trial_records(), lambda rounds: None)[learner.name]


def certify_all(prepared: PreparedSource) -> list[Certificate]:
    """Certify all learners but fixed arms, which are only counted."""
    import jax

    with jax.enable_x64(True):
        return [certify(prepared, learner) for learner in prepared.learners if not learner.is_fixed]


def _table(certificates: Sequence[Certificate], precision: str) -> str:
    """Return a row of text for each learner, as wide as the terminal."""
    rows = [
        {"learner": c.learner, "backend": c.backend, "copies that differ": f"{c.parted:,}"}
        | {"decisions": f"{c.decisions:,}"}
        | {f"change in {name}": f"{x.mean():+.2e} ±{_half_width(x):.1e}" for name, x in c.changes.items()}
        for c in certificates
    ]
    meanings = {f"change in {x}": "mean over copies ±half of its 95% interval" for x in certificates[0].changes}
    accepted = f"accepted: {TOLERANCE[precision]:g} of the decisions"
    meanings["copies that differ"] = f"from dense in some decision, given the same uniforms ({accepted})"
    return format_table(rows, terminal_width(), meanings, names=2, kept=3)


def _half_width(changes: Floats) -> float:
    """Return half the width of the 95% interval of a mean over copies, as if copies were independent."""
    return Z * float(changes.std(ddof=1)) / math.sqrt(len(changes)) if len(changes) > 1 else math.inf


def main(arguments: Mapping[str, Any]) -> int:
    """Print the certificates of a sweep's learners. Return 0 if all hold, else 1.

    Raises:
        BadInput: a flag does not apply, the environment is adaptive (two backends may then get different
            questions), or all learners are fixed.
    """
    for name in ("out", "shard", "checkpoints", "delta"):
        if name in arguments:
            raise BadInput(f"{name}: given, but verify writes no results and compares every round")
    sweep = Sweep(**arguments)
    machine.use_compilation_cache()
    prepared = prepare_source(sweep)
    prepared = replace(prepared, trials=prepared.trials[: max(2, MOST_COPIES // sweep.cells)])
    if prepared.is_adaptive:
        raise BadInput(f"environment: {sweep.environment} found; it must be oblivious, so that questions are equal")
    certificates, fixed = certify_all(prepared), [x.name for x in prepared.learners if x.is_fixed]
    if not certificates:
        raise BadInput(
            f"learners: {', '.join(fixed)} found; at least one must learn, as fixed arms are only counted"
        )
    refused = [certificate for certificate in certificates if not certificate.holds(sweep.precision)]
    show(
        f"decisions in {sweep.precision}, compared with dense in float64",
        _table(certificates, sweep.precision),
        f"{', '.join(fixed)}: of fixed arms there is nothing to compare" if fixed else "",
        f"certified: {'no' if refused else 'yes'}",
    )
    return int(bool(refused))


COMMANDS = {"verify": Command((Sweep,), main)}
