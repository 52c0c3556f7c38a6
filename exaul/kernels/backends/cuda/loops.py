"""The loop that simulates one copy through a chunk: its records, its rounds, and the sums over them.

The FDR (eq. 2), the FDR risk (eq. 1) and the cumulative loss (eq. 4) are computed from these sums. Each type of
rule supplies the functions of a round.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.cuda.records import RecordSource
from exaul.kernels.backends.cuda.target import Function, Target
from exaul.kernels.game import ROUNDS, Parameters, Start

PIECE = 16  # rounds whose uniforms are drawn at a time; a power of two


class KernelSchedule(NamedTuple):
    """K blocks of a chunk, and their rates."""

    block: Any  # [K] uint32, its number
    rounds: Any  # [K] int32 in 0..C, number of its rounds that are simulated
    checkpoint_rounds: Any  # [K, S] int32, after how many rounds of the block the sums are copied; 0: never
    eta: Any  # [K] float64
    gamma: Any  # [K] float64


class KernelSums(NamedTuple):
    """Sums over the answered rounds of B copies, updated in place."""

    answered: Any  # [B] int64
    wrong: Any  # [B] float64, sum of errors
    answered_at_checkpoints: Any  # [K, S, B] int64
    wrong_at_checkpoints: Any  # [K, S, B] float64


class KernelOutcome(NamedTuple):
    """The outcome of K C rounds, if records are given; otherwise arrays have one row, which is never written."""

    answered: Any  # [K C, B] bool
    probability: Any  # [K C, B] float64
    middle: Any  # [K C, B] float64


class Workspace(NamedTuple):
    """Workspace arrays of one copy.

    The lanes of a copy share all but ``lane_sums`` and ``counters``, of which each lane has its own.
    """

    uniforms: Any  # [16] float64, those of the current 16 rounds
    recent_cuts: Any  # [16] int32, likewise; [1] for a single lane, which reads ``cuts``
    recent_errors: Any  # [16] float64, likewise
    ranks: Any  # [C] int32, the cuts at first; [1] where a rule does not need them
    words: Any  # [.] uint32, a bit where a group begins
    counts_before: Any  # [.] int32, number of such bits before each word
    sums: Any  # [.] weights
    lane_sums: Any  # [.] weights
    counters: Any  # [4 P] uint32
    cuts: Any  # [C] int32
    errors: Any  # [C] float64
    wide_words: Any  # [.] uint32, as many as the number of arms needs
    wide_counts_before: Any  # [.] int32
    wide_sums: Any  # [.] weights


class WorkspaceSizes(NamedTuple):
    """The sizes of a ``Workspace``; those that do not depend on H are compile-time constants."""

    ranks: int = 1
    words: int = 1
    sums: int = 1
    lane_sums: int = 1
    wide_words: Callable[[int], int] = lambda arms: 1
    wide_sums: Callable[[int], int] = lambda arms: 1


class StepKernel(NamedTuple):
    """The compiled functions that simulate a copy of one type of rule.

    Attributes:
        begin: ``begin(own, arms, workspace, rounds, eta)`` returns the carry of a block; ``own`` is the copy's
            state.
        begin_piece: ``begin_piece(workspace, first, last, rounds, carry)`` returns the carry of a piece, the rounds
            first..last-1.
        step: ``step(own, arms, workspace, i, cut, u, e, carry, parameters)`` simulates round i. It returns the new
            carry, whether the copy answered, the probability of answering, and the middle.
        end_piece: ``end_piece(workspace, last, rounds, carry)`` updates the workspace after a piece.
        end: ``end(own, arms, workspace, rounds, eta, carry)`` updates the state.
    """

    begin: Function
    begin_piece: Function
    step: Function
    end_piece: Function
    end: Function


def whole_blocks(compiled: Function, begin: Function, step: Function, end: Function) -> StepKernel:
    """Return the functions of a type of rule that does nothing between pieces."""

    @compiled
    def begin_piece(workspace, first, last, rounds, carry):
        return carry

    @compiled
    def end_piece(workspace, last, rounds, carry):
        pass

    return StepKernel(begin, begin_piece, step, end_piece, end)


class RuleKernel(NamedTuple):
    """How a type of rule is simulated on a device.

    Attributes:
        loop: ``loop(target, outcomes)`` returns the ``StepKernel`` for a target; without outcomes, the probability
            and the middle of a round are arbitrary unless the decision needs them.
        sizes: ``sizes(lanes)`` returns the ``WorkspaceSizes``.
        first: ``first(arms, start)`` returns the state before round 1, [rows, B] float64, as of ``Backend``. It is
            read-only, and has stride 0 between copies if they do not differ.
        middles: whether outcomes have a middle.
        dense_state: as of ``Backend``, from the state [rows, B] on the host; None if nothing is rounded.
        teams: whether the lanes of a warp can share a copy.
    """

    loop: Callable[[Target, bool], StepKernel]
    sizes: Callable[[int], WorkspaceSizes]
    first: Callable[[int, Start], NDArray[np.float64]]
    middles: bool = False
    dense_state: Callable[[Any, Parameters], Any] | None = None
    teams: bool = True


def wide_arrays(
    kind: RuleKernel, lanes: int, precision: str, arms: int, copies: int
) -> list[tuple[tuple[int, int], Any]]:
    """Return the shapes and dtypes of the arrays of a ``Workspace`` in global memory, for H arms and B copies.

    They are its last five. A single lane keeps the records of a block in its local memory instead.
    """

    def shape(rows: int) -> tuple[int, int]:
        return (rows, copies) if lanes == 1 else (copies, rows)

    sizes, rounds = kind.sizes(lanes), 1 if lanes == 1 else ROUNDS
    words, sums = sizes.wide_words(arms), sizes.wide_sums(arms)
    # the sums are contiguous for each copy, which reads runs of neighbours
    shapes = shape(rounds), shape(rounds), shape(words), shape(words), (copies, sums)
    return list(zip(shapes, (np.int32, np.float64, np.uint32, np.int32, np.dtype(precision).type), strict=True))


def repeat_state(column: Any, copies: int) -> NDArray[np.float64]:
    """Repeat the state [rows] of one copy before round 1, without memory: [rows, B] float64, read-only."""
    column = np.array(column, np.float64)[:, None]
    return np.broadcast_to(column, (len(column), copies))


def compile_for(target: Target, loop: StepKernel, supply: RecordSource, outcomes: bool) -> Function:
    """Return the loop over the blocks of a chunk for one copy; ``outcomes`` says whether outcomes are stored.

    Returns:
        ``simulate_copy(b, own, arms, workspace, source, schedule, copies, sums, outcome)``, which simulates copy b
        with its state ``own`` [rows].
    """
    compiled, word = target.compiled, target.word
    lanes, lane, sync = target.team.lanes, target.team.lane, target.team.sync
    begin_source, fill, draw, end_source = supply
    begin, begin_piece, step, end_piece, end = loop

    @compiled
    def record_of_round(workspace, i, first):
        """Return the cut and the error of a round of a piece."""
        if lanes == 1:
            return workspace.cuts[i], workspace.errors[i]
        at = word(i - first)
        return workspace.recent_cuts[at], workspace.recent_errors[at]

    @compiled
    def read_piece(workspace, first, last):
        """Copy the records of a piece from global memory, for which each of its rounds would else wait."""
        if lanes > 1:
            i = word(first + lane())
            while i < last:
                at = word(i - first)
                workspace.recent_cuts[at], workspace.recent_errors[at] = workspace.cuts[i], workspace.errors[i]
                i = word(i + lanes)
            sync()

    @compiled
    def simulate_copy(b, own, arms, workspace, source, schedule, copies, sums, outcome):
        # All lanes of a copy run this loop and hold the same decisions and sums in registers. They divide the work
        # inside the functions, and lane 0 alone writes shared results.
        record, stream = copies.record_stream[b], copies.draw_stream[b]
        count, wrong = sums.answered[b], sums.wrong[b]
        # Counters of records are local to the lane: every lane updates its own copy alike.
        begin_source(source, record, workspace.counters)
        for k in range(schedule.rounds.size):
            rounds, block, eta, gamma = (
                word(schedule.rounds[k]),
                schedule.block[k],
                schedule.eta[k],
                schedule.gamma[k],
            )
            if rounds > 0:
                numbers = copies.alpha[b], copies.answer_cost[b], copies.abstain_cost[b]
                parameters = Parameters(eta, gamma, numbers[0], numbers[1], numbers[2], 1.0)
                fill(source, record, k, block, rounds, workspace)
                # Linear weights are valid for this block only; ``end`` brings the float64 state up to date.
                carry = begin(own, arms, workspace, rounds, eta)
                # The next checkpoint of the block stays in a register; rounds do not read the list.
                s, slots = 0, schedule.checkpoint_rounds.shape[1]
                next_checkpoint = int(schedule.checkpoint_rounds[k, 0]) if slots > 0 else 0
                first = word(0)
                while first < rounds:
                    # The lanes of a warp draw the uniforms of different rounds side by side.
                    last = word(min(word(first + PIECE), rounds))
                    draw(source, stream, k, block, first, last, workspace.uniforms)
                    read_piece(workspace, first, last)
                    carry = begin_piece(workspace, first, last, rounds, carry)
                    i = first
                    while i < last:
                        u = workspace.uniforms[word(i - first)]
                        cut, e = record_of_round(workspace, i, first)
                        carry, answers, P, middle = step(own, arms, workspace, i, cut, u, e, carry, parameters)
                        count += 1 if answers else 0
                        wrong += e if answers else 0.0
                        if outcomes and lane() == 0:
                            row = k * ROUNDS + i
                            outcome.answered[row, b], outcome.probability[row, b] = answers, P
                            outcome.middle[row % outcome.middle.shape[0], b] = middle
                        i = word(i + 1)
                        if next_checkpoint == i:
                            if lane() == 0:
                                sums.answered_at_checkpoints[k, s, b] = count
                                sums.wrong_at_checkpoints[k, s, b] = wrong
                            s += 1
                            next_checkpoint = int(schedule.checkpoint_rounds[k, s]) if s < slots else 0
                    end_piece(workspace, last, rounds, carry)
                    first = last
                end(own, arms, workspace, rounds, eta, carry)
        if lane() == 0:
            sums.answered[b], sums.wrong[b] = count, wrong
        end_source(source, record, workspace.counters)

    return simulate_copy
