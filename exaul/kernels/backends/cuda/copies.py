"""The loop that plays one copy through a chunk: its records, its rounds, and the sums over them.

They are the sums that the FDR (eq. 2), the FDR risk (eq. 1) and the cumulative loss (eq. 4) are computed from. Each
type of rule brings the functions that play a round.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.cuda.records import RecordSource
from exaul.kernels.backends.cuda.target import Function, Target
from exaul.kernels.game import ROUNDS, Parameters

PIECE = 16  # a power of two: rounds whose uniforms are drawn at a time


class KernelSchedule(NamedTuple):
    """K blocks of a chunk, and their rates."""

    block: Any  # [K] uint32, its number
    rounds: Any  # [K] int32 in 0..C, how many of its rounds are played
    checkpoint_rounds: Any  # [K, S] int32, after how many rounds of the block the sums are copied; 0: never
    eta: Any  # [K] float64
    gamma: Any  # [K] float64


class KernelSums(NamedTuple):
    """Sums over the answered rounds of B copies, changed in place."""

    answered: Any  # [B] int64
    wrong: Any  # [B] float64, sum of errors
    answered_at_checkpoints: Any  # [K, S, B] int64
    wrong_at_checkpoints: Any  # [K, S, B] float64


class KernelOutcome(NamedTuple):
    """The outcome of K C rounds, filled where records are handed in; each has one row where they are not."""

    answered: Any  # [K C, B] bool
    probability: Any  # [K C, B] float64
    middle: Any  # [K C, B] float64


class Workspace(NamedTuple):
    """Arrays of one copy to work in.

    The lanes of a copy share all but ``lane_sums`` and ``counters``, of which each has its own.
    """

    cuts: Any  # [C] int32
    errors: Any  # [C] float64
    uniforms: Any  # [16] float64
    ranks: Any  # [C] int32, or [1] where a rule does not need them
    words: Any  # [.] uint32, marks of groups
    counts_before: Any  # [.] int32, number of marks before each word
    sums: Any  # [.] weights
    lane_sums: Any  # [.] weights
    counters: Any  # [4 P] uint32
    wide_words: Any  # [.] uint32, as many as the number of arms needs
    wide_counts_before: Any  # [.] int32
    wide_sums: Any  # [.] weights


class WorkspaceSizes(NamedTuple):
    """How large the arrays of a ``Workspace`` are; those that do not depend on H are compiled in."""

    ranks: int = 1
    words: int = 1
    sums: int = 1
    lane_sums: int = 1
    wide_words: Callable[[int], int] = lambda arms: 1
    wide_sums: Callable[[int], int] = lambda arms: 1


class StepKernel(NamedTuple):
    """How one copy of a type of rule is played.

    Attributes:
        begin: ``begin(own, arms, room, rounds, eta)`` returns the carry of a block; ``engine_hash`` is the copy's
            state.
        step: ``step(own, arms, room, i, rounds, u, carry, parameters)`` plays round i, whose record is in the
            workspace. It returns the new carry, whether it answered, the probability of answering, and the middle.
        end: ``end(own, arms, room, rounds, eta, carry)`` brings the state up to date.
    """

    begin: Function
    step: Function
    end: Function


class RuleKernel(NamedTuple):
    """How a type of rule is played here.

    Attributes:
        loop: ``loop(target, outcomes)`` writes the ``StepKernel`` for a target; without outcomes, the probability
            and the middle of a round may be anything where the decision does not need them.
        sizes: ``sizes(lanes)`` are those of its workspace.
        start: ``initial_states(arms, best)`` is the state before round 1, [rows, B] float64, as of ``Backend``.
        middles: whether outcomes have a middle.
        dense_state: as of ``Backend``, from the state [rows, B] on the host; None where nothing is rounded.
        teams: whether the lanes of a warp can play a copy together.
    """

    loop: Callable[[Target, bool], StepKernel]
    sizes: Callable[[int], WorkspaceSizes]
    start: Callable[[int, NDArray[np.int32]], NDArray[np.float64]]
    middles: bool = False
    dense_state: Callable[[Any, Parameters], Any] | None = None
    teams: bool = True


def repeat_state(column: Any, copies: int) -> NDArray[np.float64]:
    """Repeat the state of one copy before round 1.

    Args:
        column: [rows] numbers.
        copies: B.

    Returns:
        [rows, B] float64.
    """
    return np.repeat(np.array(column, np.float64)[:, None], copies, axis=1)


def compile_for(target: Target, loop: StepKernel, source: RecordSource, outcomes: bool) -> Function:
    """Write the loop over the blocks of a chunk, for one copy.

    Args:
        target: what it is compiled for.
        loop: how a round is played.
        source: where records and uniforms come from.
        outcomes: whether all that is done is stored.

    Returns:
        ``simulate_copy(b, own, arms, room, game, schedule, copies, sums, played)``, which plays copy b with its
        state ``engine_hash`` [rows] and the arrays of ``room``.
    """
    compiled, lane = target.compiled, target.team.lane
    begin_game, fill, draw, end_game = source
    begin, step, end = loop

    @compiled
    def simulate_copy(b, own, arms, workspace, game, schedule, copies, sums, outcome):
        record, stream = copies.record[b], copies.draw[b]
        count, wrong = sums.answered[b], sums.wrong[b]
        begin_game(game, record, workspace.counters)
        for k in range(schedule.rounds.size):
            rounds, block, eta, gamma = (
                int(schedule.rounds[k]),
                schedule.block[k],
                schedule.eta[k],
                schedule.gamma[k],
            )
            if rounds > 0:
                numbers = copies.alpha[b], copies.answer_cost[b], copies.abstain_cost[b]
                parameters = Parameters(eta, gamma, numbers[0], numbers[1], numbers[2])
                fill(game, record, k, block, rounds, workspace.counters, workspace.cuts, workspace.errors)
                carry = begin(own, arms, workspace, rounds, eta)
                at_checkpoints = False
                for s in range(schedule.checkpoint_rounds.shape[1]):
                    at_checkpoints = at_checkpoints or schedule.checkpoint_rounds[k, s] > 0
                for i in range(rounds):
                    if i & (PIECE - 1) == 0:
                        draw(game, stream, k, block, i, min(i + PIECE, rounds), workspace.uniforms)
                    u = workspace.uniforms[i & (PIECE - 1)]
                    carry, answers, P, middle = step(own, arms, workspace, i, rounds, u, carry, parameters)
                    count += 1 if answers else 0
                    wrong += workspace.errors[i] if answers else 0.0
                    if outcomes and lane() == 0:
                        row = k * ROUNDS + i
                        outcome.answered[row, b], outcome.probability[row, b] = answers, P
                        outcome.middle[row % outcome.middle.shape[0], b] = middle
                    if at_checkpoints and lane() == 0:
                        for s in range(schedule.checkpoint_rounds.shape[1]):
                            if schedule.checkpoint_rounds[k, s] == i + 1:
                                sums.answered_at_checkpoints[k, s, b], sums.wrong_at_checkpoints[k, s, b] = (
                                    count,
                                    wrong,
                                )
                end(own, arms, workspace, rounds, eta, carry)
        if lane() == 0:
            sums.answered[b], sums.wrong[b] = count, wrong
        end_game(game, record, workspace.counters)

    return simulate_copy
