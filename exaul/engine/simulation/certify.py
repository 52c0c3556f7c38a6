"""Certify a sweep: compare its precision and backends with ``dense`` in float64."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from exaul.engine.results.text_table import TextColumn, format_table, wrap
from exaul.engine.simulation.learners import Player, backend_of
from exaul.engine.simulation.prepare import Prepared
from exaul.engine.simulation.schedule import make_chunks, rates_of_blocks
from exaul.kernels import metrics, native
from exaul.kernels.game import ROUNDS, SPAN, Block, Copies, Outcome
from exaul.kernels.learners.learner import has_weights
from exaul.kernels.metrics import Floats
from exaul.kernels.uniforms import Draws

COPIES = 128  # compared copies, at most; at least two trials of each cell
REPLAYED_ROUNDS = 10_000  # at most
RESTART_SPANS = 4  # the replay restarts from the backend's losses after this many spans
COMPARED_ROUNDS = 3_000  # no decision of these may differ in float64
TOLERANCE = {"float64": 1e-8, "float32": 5e-6}  # largest error of the probability of answering


class Certificate(NamedTuple):
    """Differences between a learner on its backend and on ``dense`` in float64."""

    learner: str
    backend: str
    largest: float  # error of the probability of answering, in the replay
    mean: float
    differ: int  # decisions of the first rounds that differ, given the same uniforms
    decisions: int  # number of decisions compared
    changes: dict[str, Floats]  # [copies], changes of FDR, inefficiency and regret per round, same uniforms


def replay_uniforms(outcome: Outcome) -> Floats:
    """Return uniforms [C, B] that reproduce the decisions, or drawn arms, of an outcome in spite of rounding."""
    if outcome.middle is not None:
        return np.asarray(outcome.middle)
    P = np.asarray(outcome.probability)  # a copy answers if u < P: take the middle of [0, P) or [P, 1)
    return np.where(outcome.answered, P / 2, (1 + P) / 2)


def _first_spans(prepared: Prepared) -> Iterator[tuple[Block, NDArray[np.uint32]]]:
    """Yield the first rounds of a sweep, one span of blocks at a time, with the numbers of the blocks."""
    trial_records, rounds = prepared.trial_records(), min(prepared.horizon, REPLAYED_ROUNDS)
    whole = SPAN // ROUNDS
    for chunk in make_chunks(trial_records, np.array([prepared.horizon]), len(prepared.trials)):
        for first in range(0, len(chunk.schedule.block), whole):
            span = slice(first, first + whole)
            number = chunk.schedule.block[span]
            t = number[:, None].astype(np.int64) * ROUNDS + np.arange(ROUNDS)
            active = chunk.schedule.active[span] & (t < rounds)
            if not active.any():
                return
            made = chunk.host_records()
            rows = slice(first * ROUNDS, (first + len(number)) * ROUNDS)
            shape = *active.shape, trial_records.records.stream_count
            cuts, errors = (x[:, rows].T.reshape(shape) for x in (made.cuts, made.errors))
            yield Block(cuts, errors, native.draws(trial_records.draws, number), active), number


def certify(prepared: Prepared, player: Player) -> Certificate:
    """Compare a player with ``dense`` in float64, over the first rounds of a sweep.

    The player is simulated on its backend; on ``dense`` with the same uniforms; and on ``dense`` as a replay, with
    uniforms that force the backend's decisions. Losses depend on probabilities, so that rounding differences of two
    correct programs grow over a long game. The replay therefore restarts from the backend's losses every 4,096
    rounds.
    """
    rounds, count = min(prepared.horizon, REPLAYED_ROUNDS), prepared.copies_of(player)
    trial_records = prepared.trial_records()
    copies = prepared.padded_copies(player, trial_records.record_stream)
    dense = backend_of(player.learner, "dense", "float64")
    assert dense is not None
    oracle, start = player._replace(backend=dense), prepared.padded_start(player)
    fast, free, replay = (
        compared_player.start(copies, start, len(prepared.grid), trial_records)
        for compared_player in (player, oracle, oracle)
    )
    # in the replay each copy has its own stream of uniforms
    replayed_copies = copies._replace(draw_stream=np.arange(len(copies.draw_stream), dtype=np.int32))
    errors, totals, differ, compared_rounds = [], np.zeros((2, 2, count)), 0, 0
    for blocks, number in _first_spans(prepared):
        active_rounds, rates = int(blocks.active.sum()), rates_of_blocks(player.rates, number)
        if int(number[0]) % (RESTART_SPANS * len(number)) == 0:
            replay.state = fast.losses()  # the state of ``dense``
        outcome = fast.advance(blocks, rates, copies)
        middle = replay_uniforms(outcome).reshape(*blocks.active.shape, -1)
        again = replay.advance(blocks._replace(draws=Draws(middle)), rates, replayed_copies)
        other = free.advance(blocks, rates, copies)
        P, expected = (np.asarray(x.probability)[:active_rounds, :count] for x in (outcome, again))
        errors.append(np.abs(P - expected))
        decided = [np.asarray(x.answered)[:active_rounds, :count] for x in (outcome, other)]
        differ += int((decided[0] != decided[1])[: max(0, COMPARED_ROUNDS - compared_rounds)].sum())
        wrong = blocks.errors.reshape(-1, blocks.errors.shape[-1])[:active_rounds, copies.record_stream[:count]]
        for total, answered in zip(totals, decided, strict=True):
            total += answered.sum(axis=0), (answered * wrong).sum(axis=0)
        compared_rounds += active_rounds
    error = np.concatenate(errors)
    decisions = min(rounds, COMPARED_ROUNDS) * count
    changes = _result_changes(prepared.copies(player), totals, rounds)
    return Certificate(
        player.name, player.backend.name, float(error.max()), float(error.mean()), differ, decisions, changes
    )


def certify_all(prepared: Prepared) -> list[Certificate]:
    """Certify all players whose backends have weights; the others have no sums to be rounded."""
    with jax.enable_x64(True):
        return [certify(prepared, player) for player in prepared.players if has_weights(player.learner)]


def _result_changes(copies: Copies, totals: Floats, rounds: int) -> dict[str, Floats]:
    """Return the differences of every copy's results, from answers and errors [backend or dense, 2, copies]."""
    alpha, answer_cost, abstain_cost, *_ = copies
    results = [
        {
            "FDR": metrics.fdr(answered, wrong, alpha),
            "inefficiency": 1 - answered / rounds,
            "regret a round": metrics.loss(answered, wrong, rounds, answer_cost, abstain_cost) / rounds,
        }
        for answered, wrong in totals
    ]
    return {name: results[0][name] - results[1][name] for name in results[0]}


def is_certified(certificate: Certificate, precision: str) -> bool:
    """Return whether the error of the probability is within TOLERANCE and, in float64, no decision differs."""
    exact = precision != "float64" or certificate.differ == 0
    return exact and certificate.largest <= TOLERANCE[precision]


def report(certificates: Sequence[Certificate], prepared: Prepared, width: int | None = None) -> str:
    """Format the certificates of a sweep, the players that were not compared, and the verdict.

    ``width`` is that of the terminal, or None for all columns.
    """
    precision, compared = prepared.sweep.precision, {c.learner for c in certificates}
    columns = [
        TextColumn("learner", [c.learner for c in certificates], 3, is_name=True),
        TextColumn("backend", [c.backend for c in certificates], 2, is_name=True),
        TextColumn(
            "largest error",
            [f"{c.largest:.2e}" for c in certificates],
            3,
            meaning="of the probability of answering, losses and decisions replayed "
            f"(at most {TOLERANCE[precision]:g})",
        ),
        TextColumn("mean error", [f"{c.mean:.2e}" for c in certificates], 1),
        TextColumn(
            "differ",
            [f"{c.differ:,}" for c in certificates],
            3,
            meaning="decisions that differ, given the same uniforms",
        ),
        TextColumn("of decisions", [f"{c.decisions:,}" for c in certificates], 1),
        *(
            TextColumn(
                f"change in {name}",
                [_interval(c.changes[name]) for c in certificates],
                meaning="mean over copies ±half of its 95% interval",
            )
            for name in certificates[0].changes
        ),
    ]
    others = [
        f"{player.name}: has no weights; nothing to compare"
        for player in prepared.players
        if player.name not in compared
    ]
    certified = all(is_certified(c, precision) for c in certificates)
    parts = [
        wrap(f"{precision} on the fast backends against float64 on the dense one", width),
        format_table(columns, width),
        wrap("\n".join(others), width),
        f"certified: {'yes' if certified else 'no'}",
    ]
    return "\n\n".join(part for part in parts if part)


def _interval(changes: Floats) -> str:
    """Return the mean over copies and the half width of its 95% interval."""
    half = 1.96 * changes.std(ddof=1) / np.sqrt(len(changes)) if len(changes) > 1 else np.inf
    return f"{changes.mean():+.2e} ±{half:.1e}"
