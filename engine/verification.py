"""A certificate for a sweep: its precision and fast backends against the dense one in float64."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from engine import metrics
from engine.learners import LEARNERS
from engine.metrics import Floats
from engine.rollout import Rollout, advance_block, chunks
from engine.sources import Records
from engine.sweep import Game, Sweep, load, prepare
from kernels import native
from kernels.game import ROUNDS, Block, Outcome, Parameters

COPIES = 128  # that are compared, at most, but for two trials of every cell
REPLAYED = 10_000  # rounds that are replayed, at most
COMPARED = 3_000  # rounds over which no decision may differ in float64
TOLERANCE = {"float64": 1e-8, "float32": 5e-6}  # of the probability of answering


class Certificate(NamedTuple):
    """How far a learner on its backend stands from the dense one in float64."""

    learner: str
    backend: str
    largest: float  # error of the probability of answering, decisions replayed
    mean: float
    differ: int  # decisions of the first 3,000 rounds, given the same uniforms
    decisions: int
    changes: dict[str, Floats]  # [copies] of FDR, inefficiency and regret a round, given the same uniforms


def middles(outcome: Outcome) -> Floats:
    """Uniforms [C, B] that lead to the same decisions, or drawn arms, whatever the rounding."""
    if outcome.middle is not None:
        return np.asarray(outcome.middle)
    P = np.asarray(outcome.probability)
    return np.where(outcome.answered, P / 2, (1 + P) / 2)


def certify(game: Game, name: str) -> Certificate:
    """Play a learner three times: on its backend, on the dense one, and its decisions on the dense one again."""
    sweep, where = game.sweep, game.backend(name)
    rounds = min(game.horizon, REPLAYED)
    stream = game.stream()
    fast, free, replay = (
        Rollout(game.copies(name, *on), stream, sweep.arms, 1)
        for on in ((where, sweep.precision), ("dense", "float64"), ("dense", "float64"))
    )
    count = len(game.alpha) * len(game.trials)
    errors, totals, differ = [], np.zeros((2, 2, count)), 0
    for chunk in chunks(stream, np.array([game.horizon])):
        for k, number in enumerate(chunk.block):
            start = int(number) * ROUNDS
            active = chunk.active[k] & (np.arange(start, start + ROUNDS) < rounds)
            if not active.any():
                break
            draws = native.uniforms(fast.keys, int(number))
            block = Block(chunk.cuts[k], chunk.errors[k], draws, active)
            played = _advance(fast, block, int(number), fast.copies)
            own = fast.copies | {"draw": np.arange(len(fast.copies["draw"]), dtype=np.int32)}
            again = _advance(replay, block._replace(uniforms=middles(played)), int(number), own)
            other = _advance(free, block, int(number), free.copies)
            errors.append(np.abs(np.asarray(played.probability) - np.asarray(again.probability))[active, :count])
            decided = [np.asarray(x.answered)[:, :count] for x in (played, other)]
            early = np.arange(start, start + ROUNDS) < COMPARED
            differ += int((decided[0] != decided[1])[early].sum())
            wrong = chunk.errors[k][:, fast.copies["record"][:count]]
            for total, answered in zip(totals, decided, strict=True):
                total += answered.sum(axis=0), (answered * wrong).sum(axis=0)
        if start + ROUNDS >= rounds:
            break
    error = np.concatenate(errors)
    alpha, answer, abstain = (np.repeat(x, len(game.trials)) for x in (game.alpha, game.answer, game.abstain))
    figures = [
        {
            "FDR": metrics.fdr(answered, wrong, alpha),
            "inefficiency": 1 - answered / rounds,
            "regret a round": metrics.loss(answered, wrong, rounds, answer, abstain) / rounds,
        }
        for answered, wrong in totals
    ]
    changes = {figure: figures[0][figure] - figures[1][figure] for figure in figures[0]}
    decisions = min(rounds, COMPARED) * count
    return Certificate(name, where, float(error.max()), float(error.mean()), differ, decisions, changes)


def _advance(rollout: Rollout, block: Block, number: int, copies: dict[str, Any]) -> Outcome:
    eta, gamma = (np.nan_to_num(x[number]) for x in rollout.rates)
    rollout.state, outcome = advance_block(rollout.backend, rollout.state, block, Parameters(eta, gamma, **copies))
    return outcome


def holds(certificate: Certificate, precision: str) -> bool:
    """Whether the errors are within bounds: of the probability, and in float64 no decision that differs."""
    exact = precision != "float64" or certificate.differ == 0
    return exact and certificate.largest <= TOLERANCE[precision]


def report(certificates: Sequence[Certificate], sweep: Sweep) -> str:
    """The certificates as text; the last line says whether all hold."""
    lines = [f"{sweep.precision} on the fast backends against float64 on the dense one"]
    for c in certificates:
        lines += [
            "",
            f"{c.learner} on {c.backend}:",
            f"  error in the probability of answering, decisions replayed: largest {c.largest:.2e}, "
            f"mean {c.mean:.2e} (at most {TOLERANCE[sweep.precision]:g})",
            f"  decisions that differ, same uniforms: {c.differ} of {c.decisions}",
        ]
        for figure, change in c.changes.items():
            half = 1.96 * change.std(ddof=1) / np.sqrt(len(change)) if len(change) > 1 else np.inf
            lines.append(f"  change in {figure}: {change.mean():+.2e} ± {half:.1e} (95% of the mean over copies)")
    certified = all(holds(c, sweep.precision) for c in certificates)
    return "\n".join([*lines, "", f"certified: {'yes' if certified else 'no'}"])


def verify(sweep: Sweep) -> int:
    """Certify a sweep and print the certificates: status 0 if all hold, else 1."""
    records: tuple[Records, ...] = load(sweep)
    cells = len(sweep.alphas) * max(1, len(sweep.lambdas))
    game = prepare(sweep, records, min(sweep.trials, max(2, COPIES // cells)))
    with jax.enable_x64(True):
        certificates = [certify(game, name) for name in sweep.learners if LEARNERS[name].kind != "fixed"]
    print(report(certificates, sweep))
    return 0 if all(holds(c, sweep.precision) for c in certificates) else 1
