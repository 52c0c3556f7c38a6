"""A certificate for a sweep: its precision and fast backends against the dense one in float64."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from engine import metrics
from engine.environments import ENVIRONMENTS
from engine.environments.adaptive import Adaptive
from engine.errors import BadInput
from engine.game import Game, load, prepare
from engine.learners import LEARNERS
from engine.metrics import Floats
from engine.rollout import Rollout, advance_blocks, chunks, rates_at
from engine.sources import Records
from engine.sweep import Sweep
from kernels import native, uniforms
from kernels.game import ROUNDS, Block, Outcome, Parameters
from kernels.learner import Learner

COPIES = 128  # that are compared, at most, but for two trials of every cell
REPLAYED = 10_000  # rounds that are replayed, at most
ANEW = 4  # spans after which the replay starts again from the losses that the backend came to
COMPARED = 3_000  # rounds over which no decision may differ in float64
CERTIFIED = ("sided", "drawn", "priced")  # kinds that hold weights, whose sums round
PRICED = 1, 2_000  # the same of priced rules: without gamma, a wrong answer at a small P enlarges what rounding did
TOLERANCE = {"float64": 1e-8, "float32": 5e-6}  # of the probability of answering


class Certificate(NamedTuple):
    """How far a learner on its backend stands from the dense one in float64."""

    learner: str
    backend: str
    largest: float  # error of the probability of answering, losses and decisions replayed
    mean: float
    differ: int  # decisions of the first rounds, given the same uniforms
    decisions: int
    changes: dict[str, Floats]  # [copies] of FDR, inefficiency and regret a round, given the same uniforms


def middles(outcome: Outcome) -> Floats:
    """Uniforms [C, B] that lead to the same decisions, or drawn arms, whatever the rounding."""
    if outcome.middle is not None:
        return np.asarray(outcome.middle)
    P = np.asarray(outcome.probability)
    return np.where(outcome.answered, P / 2, (1 + P) / 2)


def _spans(game: Game) -> Iterator[tuple[Block, NDArray[np.uint32]]]:
    """The first rounds of a game, at most 10,000, a span of blocks at a time, with the blocks' numbers."""
    stream, rounds = game.stream(), min(game.horizon, REPLAYED)
    keys, whole = stream.keys_of(uniforms.LEARNER), native.SPAN // ROUNDS
    for chunk in chunks(stream, np.array([game.horizon])):
        for first in range(0, len(chunk.block), whole):
            here = slice(first, first + whole)
            number = chunk.block[here]
            t = number[:, None].astype(np.int64) * ROUNDS + np.arange(ROUNDS)
            active = chunk.active[here] & (t < rounds)
            if not active.any():
                return
            yield Block(chunk.cuts[here], chunk.errors[here], native.uniforms(keys, number), active), number


def losses(learner: Learner, where: str, rollout: Rollout) -> Any:
    """What the dense backend would hold of a rollout, from what its own holds.

    The cumulative losses [H, B], up to a constant of each copy; and the memory, where there is one.
    """
    state: Any = rollout.state
    if where == "dense":
        return jax.tree.map(np.asarray, state)
    if learner.kind == "priced":
        if where == "native":
            whole, memory = np.concatenate(state, axis=1), len(learner.rule.start)
            state = whole[:-memory], type(learner.rule.start)(*whole[-memory:])
        return -np.log(state[0]), state[1]
    if where == "parallel":
        count, wrong = (np.asarray(x)[:, rollout.copies["record"]] for x in state)
        state = rollout.copies["abstain"] * count - rollout.copies["answer"] * wrong
    if where == "native":
        state = np.concatenate(state, axis=1) if learner.kind == "sided" else state.T
    return np.cumsum(state, axis=0) if learner.kind == "sided" else np.array(state)


def certify(game: Game, name: str) -> Certificate:
    """Play a learner three times: on its backend, on the dense one, and on the dense one again what it did.

    The last replays decisions, from the losses that the backend had come to at the start of each 4,096 rounds
    (1,024 of priced rules): it charges by its own probabilities, and two sound programs whose sums differ in the
    last bits part ways over a long game.
    """
    sweep, where = game.sweep, game.backend(name)
    anew, compared = PRICED if LEARNERS[name].kind == "priced" else (ANEW, COMPARED)
    rounds, count = min(game.horizon, REPLAYED), len(game.alpha) * len(game.trials)
    fast, free, replay = (
        Rollout(game.copies(name, *on), game.stream(), sweep.arms, 1)
        for on in ((where, sweep.precision), ("dense", "float64"), ("dense", "float64"))
    )
    own = np.arange(len(fast.copies["draw"]), dtype=np.int32)
    errors, totals, differ, played = [], np.zeros((2, 2, count)), 0, 0
    for blocks, number in _spans(game):
        here = int(blocks.active.sum())
        if int(number[0]) % (anew * len(number)) == 0:
            replay.state = losses(LEARNERS[name], where, fast)
        outcome = _advance(fast, blocks, number, fast.copies)
        middle = middles(outcome).reshape(*blocks.active.shape, -1)
        again = _advance(replay, blocks._replace(uniforms=middle), number, fast.copies | {"draw": own})
        other = _advance(free, blocks, number, free.copies)
        P, expected = (np.asarray(x.probability)[:here, :count] for x in (outcome, again))
        errors.append(np.abs(P - expected))
        decided = [np.asarray(x.answered)[:here, :count] for x in (outcome, other)]
        differ += int((decided[0] != decided[1])[: max(0, compared - played)].sum())
        wrong = blocks.errors.reshape(-1, blocks.errors.shape[-1])[:here, fast.copies["record"][:count]]
        for total, answered in zip(totals, decided, strict=True):
            total += answered.sum(axis=0), (answered * wrong).sum(axis=0)
        played += here
    error = np.concatenate(errors)
    decisions = min(rounds, compared) * count
    changes = _changes(game, totals, rounds)
    return Certificate(name, where, float(error.max()), float(error.mean()), differ, decisions, changes)


def _changes(game: Game, totals: Floats, rounds: int) -> dict[str, Floats]:
    """How the figures of every copy differ, from the answers and errors [2, copies] of two ways to play."""
    alpha, answer, abstain = (np.repeat(x, len(game.trials)) for x in (game.alpha, game.answer, game.abstain))
    figures = [
        {
            "FDR": metrics.fdr(answered, wrong, alpha),
            "inefficiency": 1 - answered / rounds,
            "regret a round": metrics.loss(answered, wrong, rounds, answer, abstain) / rounds,
        }
        for answered, wrong in totals
    ]
    return {figure: figures[0][figure] - figures[1][figure] for figure in figures[0]}


def _advance(rollout: Rollout, blocks: Block, number: NDArray[np.uint32], copies: dict[str, Any]) -> Outcome:
    rates = rates_at(rollout.rates, number)
    rollout.state, outcome = advance_blocks(rollout.backend, rollout.state, blocks, Parameters(*rates, **copies))
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
            f"  error in the probability of answering, losses and decisions replayed: largest {c.largest:.2e}, "
            f"mean {c.mean:.2e} (at most {TOLERANCE[sweep.precision]:g})",
            f"  decisions that differ, same uniforms: {c.differ} of {c.decisions}",
        ]
        for figure, change in c.changes.items():
            half = 1.96 * change.std(ddof=1) / np.sqrt(len(change)) if len(change) > 1 else np.inf
            lines.append(f"  change in {figure}: {change.mean():+.2e} ± {half:.1e} (95% of the mean over copies)")
    certified = all(holds(c, sweep.precision) for c in certificates)
    return "\n".join([*lines, "", f"certified: {'yes' if certified else 'no'}"])


def verify(sweep: Sweep) -> int:
    """Certify a sweep and print the certificates: status 0 if all hold, else 1.

    Raises:
        BadInput: the sweep's world answers back, so that no two programs need meet the same questions.
    """
    if isinstance(ENVIRONMENTS[sweep.environment], Adaptive):
        raise BadInput(f"environment: {sweep.environment} found; games that answer back take their own course")
    records: tuple[Records, ...] = load(sweep)
    cells = len(sweep.alphas) * max(1, len(sweep.lambdas))
    game = prepare(sweep, records, np.arange(min(sweep.trials, max(2, COPIES // cells))))
    with jax.enable_x64(True):
        certificates = [certify(game, name) for name in sweep.learners if LEARNERS[name].kind in CERTIFIED]
    print(report(certificates, sweep))
    return 0 if all(holds(c, sweep.precision) for c in certificates) else 1
