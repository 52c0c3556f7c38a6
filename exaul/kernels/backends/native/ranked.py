"""Simulate ``Ranked`` rules, which answer by the rank of a score among recent ones (``aci-rank``).

The rank of a cut is a sum of counts. Counts are also summed over groups of about sqrt(H) neighbouring cuts, so that
a round takes O(sqrt(H)) steps (a square-root decomposition, as of Fenwick, "A new data structure for cumulative
frequency tables", 1994, with two levels).
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.native.arithmetic import where
from exaul.kernels.backends.native.backend import NativeBackend
from exaul.kernels.backends.native.compile import compiled, outermost
from exaul.kernels.backends.native.rounds import RecordBlocks
from exaul.kernels.backends.native.tally import CheckpointSums, add_block
from exaul.kernels.backends.native.threads import run_copies
from exaul.kernels.backends.rule_state import accessors
from exaul.kernels.backends.rules import compile_with_helpers
from exaul.kernels.game import ROUNDS, Copies, Outcome, Parameters, Rates, Start
from exaul.kernels.learners.learner import Learner, Ranked

PART = 16  # copies of a task for one thread


def _compile(rule: Ranked) -> Callable[..., Any]:
    """Return the loop over the rounds of the copies first..last-1, one copy after the other."""
    decide, learn = compile_with_helpers(compiled, rule.decide), compile_with_helpers(compiled, rule.learn)
    decay = rule.decay
    read, write = accessors(type(rule.start), compiled, lambda number, copy: (number, copy))

    @outermost
    def simulate(first, last, state, counts, records, rates, copies, tally, out):
        cuts, errors, uniforms, rounds = records
        alpha, answer_cost, abstain_cost, record, draw = copies
        o0, answered, probability = out
        arms = counts.shape[1]
        size = int(np.sqrt(arms)) + 1
        sums = np.empty(size)  # of the counts of ``size`` neighbouring cuts
        for b in range(first, last):
            o = o0 + b - first
            own, one, total = read(state, b), 1.0, 0.0
            for i in range(rounds):
                if i % ROUNDS == 0:
                    eta, gamma = rates.eta[i // ROUNDS], rates.gamma[i // ROUNDS]
                    parameters = Parameters(eta, gamma, alpha[b], answer_cost[b], abstain_cost[b], 1.0)
                    sums[:], total, one = 0.0, 0.0, 1.0
                    for k in range(arms):
                        sums[k // size] += counts[b, k]
                        total += counts[b, k]
                cut = cuts[record[b], i]
                group, low = cut // size, 0.0
                for k in range(group):
                    low += sums[k]
                for k in range(group * size, cut):
                    low += counts[b, k]
                P = decide(where, own, (low + counts[b, cut]) / total, low / total)
                yes = uniforms[i, draw[b]] < P
                own = learn(where, own, yes, errors[record[b], i], parameters)
                # Instead of multiplying all old counts by ``decay``, let a new record count 1 / decay times as much
                # as the one before. Ranks depend on ratios of counts only. At the end of a block counts are scaled
                # back, before they overflow.
                one /= decay
                counts[b, cut] += one
                sums[group] += one
                total += one
                answered[i % answered.shape[0], o] = yes
                probability[i % probability.shape[0], o] = P
                if i % ROUNDS == ROUNDS - 1 or i == rounds - 1:
                    start = i // ROUNDS * ROUNDS
                    add_block(answered, errors, start, i + 1, i // ROUNDS, tally, o, b, record[b : b + 1])
                    for k in range(arms):
                        counts[b, k] /= one
            write(state, b, own)

    return simulate


def make(learner: Learner[Ranked], precision: str) -> NativeBackend:
    """Return the backend of a learner with a ``Ranked`` rule, as ``dense.ranked``.

    ``precision`` is ignored: the state is the rule's M numbers [M, B] and the counts of cuts [B, H], float64.
    """
    loop = _compile(learner.rule)

    def simulate(
        state: Any,
        rounds: RecordBlocks,
        rates: Rates,
        copies: Copies,
        tally: CheckpointSums,
        outcome: Outcome | None = None,
    ) -> list[Future[Any]]:
        numbers, counts = state
        arguments = numbers, counts, rounds.arrays, rates, copies, tally
        return run_copies(loop, len(counts), PART, arguments, outcome)

    def init(arms: int, start: Start, streams: int) -> tuple[NDArray[Any], NDArray[Any]]:
        return np.array(start.state, np.float64), np.repeat(start.counts[None], len(start.best), axis=0)

    return NativeBackend(init, simulate)
