"""One copy of a learner in a user's program, without a compiler: a cut in, a decision out, and later its feedback.

The rules are the functions that the simulator compiles, so that both decide alike. Learning from an answer uses the
probability of its decision, whatever has been learned in between (the estimator of eq. 8, under delay as in Joulani
et al., "Online learning under delayed feedback", 2013).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from exaul.kernels.game import BLOCK, RuleParams
from exaul.kernels.learners.learner import Ranked, Sided
from exaul.kernels.uniforms import trial_keys, uniform

LARGE = 2.0**64  # at this increment (chosen), all counts are divided by it; a power of two, so nothing is rounded


class OnlineDecision(NamedTuple):
    """The decision on one question."""

    answer: bool
    P: float  # probability of answering, before the draw
    Q: float = math.nan  # that of abstaining, summed separately; no rule reads it after an answer


def choose(condition: Any, x: Any, y: Any) -> Any:
    """Return x if the condition holds, else y: the ``where`` of scalars."""
    return x if condition else y


class Uniforms:
    """The uniforms of one trial and stream; each depends on the number of its question alone."""

    def __init__(self, seed: int, stream: int, trial: int) -> None:
        """Derive the key; arguments as in ``trial_keys``."""
        self._keys = trial_keys(seed, stream, np.array([trial]))
        self._block_number, self._values = -1, list[float]()

    def at(self, question: int) -> float:
        """Return the uniform in [0, 1) of a question, from 0."""
        block_number, number = divmod(question, BLOCK)
        if block_number != self._block_number:  # one call of NumPy takes no longer than one for a few uniforms
            rounds = np.arange(BLOCK, dtype=np.uint32)[:, None]
            values = uniform(self._keys, np.uint32(block_number), rounds)
            self._block_number, self._values = block_number, values[:, 0].tolist()
        return self._values[number]


class SidedCopy:
    """A copy of a learner that charges both sides of the cut (``exaul``), O(H) a question.

    ``table`` has the cumulative charges L of the arms (line "Update" of every algorithm).
    """

    def __init__(self, rule: Sided, numbers: Sequence[float], table: Sequence[float]) -> None:
        """Take the state: no numbers, and H charges."""
        assert rule.prior is None, "the weights below begin equal"
        self._rule, self._charges = rule, np.array(table, np.float64)

    @property
    def numbers(self) -> list[float]:
        """The state beside the table."""
        return []

    @property
    def table(self) -> list[float]:
        """The charges, H."""
        return list(self._charges.tolist())

    def chances(self, cut: int, params: RuleParams, waiting: float = 0.0) -> tuple[float, float]:
        """Return P and Q of the arms below the cut and above it, from weights ``exp(-eta (L - min L))``."""
        weights = np.exp(params.eta * (self._charges.min() - self._charges))
        low, high = float(weights[:cut].sum()), float(weights[cut:].sum())
        return low / (low + high), high / (low + high)  # Q is never 1 - P, which loses its digits

    def decide(
        self, cut: int, draw: Callable[[], float], params: RuleParams, waiting: float = 0.0
    ) -> OnlineDecision:
        """Answer with the probability of the arms below the cut."""
        P, Q = self.chances(cut, params)
        return OnlineDecision(draw() < P, P, Q)

    def learn(self, cut: int, decision: OnlineDecision, error: float, params: RuleParams) -> None:
        """Charge both sides (eq. 8) with P and Q of the decision; ``error`` is 0 after an abstention."""
        below, above = self._rule.charge(choose, decision.P, decision.Q, decision.answer, error, params)
        self._charges[:cut] += params.weight * below
        self._charges[cut:] += params.weight * above


class RankedCopy:
    """A copy of a learner that goes by the rank of a score among recent ones (``aci-rank``), O(log H) a question.

    ``table`` has the counts of recent cuts. They are the leaves of a tree of sums:

        tree[1]                        all counts
        tree[2]          tree[3]       each node is the sum of the two below it
        tree[4] tree[5]  tree[6] ...   the last row: counts of the cuts 0, 1, 2, ...

    A node is always the sum of its children, so that the tree depends on the counts alone, not on their history.
    ``numbers`` has the rule's state, and the count that the next record adds: instead of multiplying all old counts
    by ``decay``, each record counts 1 / decay times as much as the one before.
    """

    def __init__(self, rule: Ranked, numbers: Sequence[float], table: Sequence[float]) -> None:
        """Take the state: the rule's numbers, optionally the count that the next record adds, and H counts."""
        count = len(rule.start)
        self._rule, self._state = rule, type(rule.start)(*numbers[:count])
        self._increment = numbers[count] if len(numbers) > count else 1.0
        self._arms, self._leaves = len(table), 1 << (len(table) - 1).bit_length()
        self._grow(list(table))

    def _grow(self, counts: list[float]) -> None:
        self._tree = [0.0] * self._leaves + counts + [0.0] * (self._leaves - len(counts))
        for node in range(self._leaves - 1, 0, -1):
            self._tree[node] = self._tree[2 * node] + self._tree[2 * node + 1]

    @property
    def numbers(self) -> list[float]:
        """The state beside the table."""
        return [*self._state, self._increment]

    @property
    def table(self) -> list[float]:
        """The counts, H."""
        return self._tree[self._leaves : self._leaves + self._arms]

    def chances(self, cut: int, params: RuleParams, waiting: float = 0.0) -> tuple[float, float]:
        """Rank the cut; return P, and NaN for Q. ``waiting`` is the number of open answers, all taken for wrong."""
        tree, state, reserve = self._tree, self._state, self._rule.reserve
        node, low = self._leaves + cut, 0.0
        leaf = tree[node]
        while node > 1:
            if node & 1:
                low += tree[node - 1]
            node >>= 1
        if waiting and reserve is not None:
            state = reserve(choose, state, waiting, self._arms, params)
        return float(self._rule.decide(choose, state, (low + leaf) / tree[1], low / tree[1])), math.nan

    def decide(
        self, cut: int, draw: Callable[[], float], params: RuleParams, waiting: float = 0.0
    ) -> OnlineDecision:
        """Rank the cut, decide, and count it at once, since its score is known without feedback."""
        P, _ = self.chances(cut, params, waiting)
        self._increment /= self._rule.decay
        tree, node = self._tree, self._leaves + cut
        tree[node] += self._increment
        while node > 1:
            node >>= 1
            tree[node] = tree[2 * node] + tree[2 * node + 1]
        if self._increment >= LARGE:  # before the counts overflow
            self._increment /= LARGE
            self._grow([count / LARGE for count in self.table])
        return OnlineDecision(P == 1.0 or (P > 0.0 and draw() < P), P)

    def learn(self, cut: int, decision: OnlineDecision, error: float, params: RuleParams) -> None:
        """Replace the rule's state by that after the round."""
        self._state = self._rule.learn(choose, self._state, decision.answer, error, params)


OnlineCopy = SidedCopy | RankedCopy


def start_copy(rule: Sided | Ranked, numbers: Sequence[float], table: Sequence[float]) -> OnlineCopy:
    """Return a copy with the state ``numbers`` and ``table`` [H], from an earlier copy or a start."""
    return SidedCopy(rule, numbers, table) if isinstance(rule, Sided) else RankedCopy(rule, numbers, table)
