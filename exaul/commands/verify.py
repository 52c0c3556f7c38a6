"""``exaul verify``: compare the decisions of a sweep's backends with those of ``dense`` in float64."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from exaul.commands.flags import Command
from exaul.commands.terminal import terminal_width
from exaul.engine import machine
from exaul.engine.checks import BadInput
from exaul.engine.results.text_table import format_table, wrap
from exaul.engine.scaling import TWO_SIDED
from exaul.engine.simulation.batch import Rollout, roll_out, simulate_rollouts
from exaul.engine.simulation.learners import PreparedLearner, backend_of, with_feedback
from exaul.engine.simulation.prepare import Prepared, prepare
from exaul.engine.sweep import Sweep
from exaul.kernels import metrics
from exaul.kernels.metrics import Floats

COPIES = 128  # compared copies, at most; but two trials of each cell, if there are as many (chosen: ten seconds)
ROUNDS = 10_000  # compared rounds, at most (chosen: ten seconds)
# Two programs with probabilities P and P' of answering decide differently with probability |P - P'| in a round, and
# then play different games. So the number of copies that part from ``dense``, divided by the decisions until they
# do, estimates the mean error of P; where an arm is drawn (exp3-ix), also what another arm with the same decision
# changes later. The largest that is accepted: none in float64; in float32 some seventy times the mean error of P
# that rounding makes (measured, up to 7e-8).
TOLERANCE = {"float64": 0.0, "float32": 5e-6}


class Certificate(NamedTuple):
    """How a learner decides on its backend, compared with ``dense`` in float64 over the same uniforms."""

    learner: str
    backend: str
    parted: int  # copies that decide differently in some round
    decisions: int  # decisions that were compared, of each copy up to the first that differs
    changes: dict[str, Floats]  # [copies], changes of FDR, inefficiency and regret per round

    def holds(self, precision: str) -> bool:
        """Return whether so few copies part that rounding explains it."""
        return self.parted <= TOLERANCE[precision] * self.decisions


def certify(prepared: Prepared, learner: PreparedLearner) -> Certificate:
    """Compare a learner with ``dense`` in float64, over the first rounds of a sweep."""
    rounds = min(prepared.horizon, ROUNDS)
    # a sweep keeps totals, not decisions: with a checkpoint after every round, the totals tell the decisions
    prepared = replace(prepared, checkpoints=np.arange(1, rounds + 1))
    dense = backend_of(learner.definition, "dense", "float64")
    dense = with_feedback(learner.name, learner.definition, dense, learner.feedback, learner.rates)
    mine, theirs = (_simulate(prepared, each) for each in (learner, learner._replace(backend=dense)))
    differs = mine.answered != theirs.answered
    compared = np.where(differs.any(axis=0), differs.argmax(axis=0) + 1, rounds)
    alpha, *costs = prepared.copies(learner)[:3]
    results = [
        {
            "FDR": metrics.fdr(answered, wrong, alpha),
            "inefficiency": 1 - answered / rounds,
            "regret a round": metrics.loss(answered, wrong, rounds, *costs) / rounds,
        }
        for answered, wrong in ((each.answered[-1], each.wrong[-1]) for each in (mine, theirs))
    ]
    changes = {name: results[0][name] - results[1][name] for name in results[0]}
    parted = int(differs.any(axis=0).sum())
    return Certificate(learner.name, learner.backend_name, parted, int(compared.sum()), changes)


def _simulate(prepared: Prepared, learner: PreparedLearner) -> Rollout:
    records = prepared.trial_records()
    rollout = roll_out(prepared, learner, records)
    simulate_rollouts([rollout], records, prepared.checkpoints, lambda rounds: None)
    return rollout


def certify_all(prepared: Prepared) -> list[Certificate]:
    """Certify all learners but fixed arms, which are only counted."""
    import jax

    with jax.enable_x64(True):
        return [certify(prepared, learner) for learner in prepared.learners if not learner.is_fixed]


def report(
    certificates: Sequence[Certificate], fixed: Sequence[str], precision: str, width: int | None = None
) -> str:
    """Return certificates, the names of fixed arms, and the verdict as text; ``width`` as of ``format_table``."""
    columns = {
        "learner": [c.learner for c in certificates],
        "backend": [c.backend for c in certificates],
        "copies that differ": [f"{c.parted:,}" for c in certificates],
        "decisions": [f"{c.decisions:,}" for c in certificates],
    }
    changes = {f"change in {x}": [_interval(c.changes[x]) for c in certificates] for x in certificates[0].changes}
    meanings = dict.fromkeys(changes, "mean over copies ±half of its 95% interval")
    accepted = f"accepted: {TOLERANCE[precision]:g} of the decisions"
    meanings["copies that differ"] = f"from dense in some decision, given the same uniforms ({accepted})"
    verdict = "yes" if all(c.holds(precision) for c in certificates) else "no"
    parts = [
        wrap(f"decisions in {precision}, compared with dense in float64", width),
        format_table(columns | changes, width, meanings, names=2, kept=3),
        wrap(f"{', '.join(fixed)}: of fixed arms there is nothing to compare", width) if fixed else "",
        f"certified: {verdict}",
    ]
    return "\n\n".join(filter(None, parts))


def _interval(changes: Floats) -> str:
    """Return the mean over copies and the half width of its 95% interval, as if copies were independent."""
    half = TWO_SIDED * changes.std(ddof=1) / np.sqrt(len(changes)) if len(changes) > 1 else np.inf
    return f"{changes.mean():+.2e} ±{half:.1e}"


def main(given: Mapping[str, Any]) -> int:
    """Print the certificates of a sweep's learners. Return 0 if all hold, else 1.

    Raises:
        BadInput: a flag does not apply, the environment is adaptive (two backends may then get different
            questions), or all learners are fixed.
    """
    for name in ("out", "shard", "checkpoints", "delta"):
        if name in given:
            raise BadInput(f"{name}: given, but verify writes no results and compares every round")
    sweep = Sweep(**given)
    machine.use_compilation_cache()
    cells = len(sweep.alphas) * max(1, len(sweep.lambdas)) * sweep.rate_cells
    prepared = prepare(sweep, trials=np.arange(min(sweep.trials, max(2, COPIES // cells))))
    if prepared.is_adaptive:
        raise BadInput(f"environment: {sweep.environment} found; it must be oblivious, so that questions are equal")
    certificates, fixed = certify_all(prepared), [x.name for x in prepared.learners if x.is_fixed]
    if not certificates:
        raise BadInput(
            f"learners: {', '.join(fixed)} found; at least one must learn, as fixed arms are only counted"
        )
    print(report(certificates, fixed, sweep.precision, terminal_width()))
    return int(not all(each.holds(sweep.precision) for each in certificates))


COMMANDS = {"verify": Command((Sweep,), main)}
