"""Simulate ``Ranked`` rules, which answer by the rank of a score among recent ones (``aci-rank``).

The state of a copy is the M numbers of its rule, and then the counts of recent records by cut. The rank of a cut is
a sum of counts. Counts are also summed over rows of neighbouring cuts (a square-root decomposition, as of Fenwick,
"A new data structure for cumulative frequency tables", 1994, with two levels).
"""

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.cuda.loops import RuleKernel, StepKernel, WorkspaceSizes, repeat_state, whole_blocks
from exaul.kernels.backends.cuda.target import Target, make_where
from exaul.kernels.backends.rule_state import accessors
from exaul.kernels.backends.rules import compile_with_helpers
from exaul.kernels.game import Start
from exaul.kernels.learners.learner import Learner, Ranked

ROW = 32  # cuts of a row


def _loop(rule: Ranked, target: Target) -> StepKernel:
    """Return the functions of a round: rank the cut, decide, learn, and count the cut (``docs/proofs.md``, 2).

    The carry is the rule's own state, the weight of the next record, and the sum of all counts. The lanes of a copy
    share the counts and, in ``wide_sums``, the sums of rows: they add them together; in a round lane 0 alone
    changes them.
    """
    compiled, word, reciprocal = target.compiled, target.word, target.reciprocal
    size, growth = len(rule.start), 1.0 / rule.decay
    lanes, lane, sum_over, sync = target.team.lanes, target.team.lane, target.team.total, target.team.sync
    where = make_where(compiled)
    chance, learn = compile_with_helpers(compiled, rule.decide), compile_with_helpers(compiled, rule.learn)
    read, write = accessors(type(rule.start), compiled, lambda number, first: first + number)

    @compiled
    def begin(own, arms, workspace, rounds, eta):
        every, row, rows = 0.0, word(lane()), word(word(arms + (ROW - 1)) // word(ROW))
        while row < rows:
            total, k = 0.0, word(row * ROW)
            last = word(min(word(k + ROW), word(arms)))
            while k < last:
                total += own[word(size + k)]
                k = word(k + 1)
            workspace.wide_sums[row] = total
            every += total
            row = word(row + lanes)
        every = sum_over(every)
        sync()
        return read(own, 0), 1.0, every

    @compiled
    def step(own, arms, workspace, i, cut, u, e, carry, parameters):
        state, one, total = carry
        rows = workspace.wide_sums
        at = word(size + cut)
        row, low, k = word(word(cut) // word(ROW)), 0.0, word(lane())
        while k < row:
            low += rows[k]
            k = word(k + lanes)
        k = word(size + row * ROW + lane())
        while k < at:
            low += own[k]
            k = word(k + lanes)
        low, here = sum_over(low), own[at]
        share = reciprocal(total)
        P = chance(where, state, (low + here) * share, low * share)
        answers = u < P
        state = learn(where, state, answers, e, parameters)
        # Instead of multiplying all old counts by ``decay``, let a new record count 1 / decay times as much as the
        # one before. ``end`` scales the counts back.
        one *= growth
        sync()  # all lanes have read the counts that lane 0 changes now
        if lane() == 0:
            own[at] = here + one
            rows[row] += one
        sync()
        return (state, one, total + one), answers, P, 0.0

    @compiled
    def end(own, arms, workspace, rounds, eta, carry):
        state, one, _ = carry
        scale, k = 1.0 / one, word(size + lane())
        while k < size + arms:
            own[k] *= scale
            k = word(k + lanes)
        if lane() == 0:
            write(own, 0, state)
        sync()

    return whole_blocks(compiled, begin, step, end)


def kind(learner: Learner[Ranked]) -> RuleKernel:
    """Describe how a ``Ranked`` rule is simulated, as ``dense.ranked``; the state of a copy is [M + H]."""
    rule = learner.rule

    def sizes(lanes: int) -> WorkspaceSizes:
        return WorkspaceSizes(wide_sums=lambda arms: -(-arms // ROW))

    def first(arms: int, start: Start) -> NDArray[np.float64]:
        column = np.concatenate([[x[0] for x in start.state], start.counts])
        if not any(np.ptp(x) for x in start.state):
            return repeat_state(column, len(start.best))
        return np.concatenate([start.state, np.repeat(start.counts[:, None], len(start.best), axis=1)])

    return RuleKernel(lambda target, outcomes: _loop(rule, target), sizes, first)
