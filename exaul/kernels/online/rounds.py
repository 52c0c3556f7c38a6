"""One round of each type of rule, in two halves: a decision, and what is learned from its feedback.

A copy has two arrays: ``numbers`` [M], the state of its rule, and ``table`` [H], charges of the arms or counts of
scores. Learning from an answer uses the probabilities of its decision, whatever has been learned in between (the
estimator of eq. 8, under delay as in Joulani et al., "Online learning under delayed feedback", 2013).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.learners.learner import Drawn, Fixed, Learner, Ranked, Sided, weight_of_last
from exaul.kernels.native.compile import accessors, compile_with_helpers, compiled, exp, where

Arrays = tuple[NDArray[np.float64], NDArray[np.float64]]


class OnlineDecision(NamedTuple):
    """The decision on one question, and what must be kept of it until its feedback comes."""

    answered: Any  # bool
    probability: Any  # P, of answering, before the draw
    arm: Any  # the arm that was drawn, where the rule charges it alone; else 0
    weight: Any  # the probability of that arm; else P


class OnlineRule(NamedTuple):
    """One round of a learner on one copy. All functions but ``start`` are compiled.

    Attributes:
        start: ``start(arms, state, counts)`` returns ``numbers`` [M] and ``table`` [H] before round 1; the last two
            are those of the ``Start`` of one copy.
        decide: ``decide(numbers, table, cut, u, parameters, waiting)`` returns an ``OnlineDecision``. It changes
            only what the copy knows of scores. ``waiting`` is the number of answers without feedback that count as
            wrong, 0.0 for rules without ``reserve``.
        learn: ``learn(numbers, table, cut, decision, error, parameters)`` updates the copy; ``error`` in [0, 1] is
            ignored unless the round was answered.
    """

    start: Callable[[int, Any, Any], Arrays]
    decide: Callable[..., Any]
    learn: Callable[..., Any]


def compile_rule(learner: Learner[Any]) -> OnlineRule | None:
    """Return one round of a learner, on a copy's arrays [M] and [H].

    Returns:
        The round, or None if the rule is ``Own``, or the learner knows more than its own answers
        (section "Online Conformal Abstention Under Adversarial Bandit Feedback" of the paper).
    """
    writer = _WRITERS.get(type(learner.rule))
    return None if writer is None or learner.feedback in ("full", "hindsight") else writer(learner.rule)


def _losses(arms: int, state: Any, counts: Any) -> Arrays:
    return np.zeros(1), np.zeros(arms)


@compiled
def _weights(table, eta, out):
    """Fill in ``w_k = exp(-eta (L_k - min L))`` and return their sum (line "Update" of every algorithm)."""
    least, total = table.min(), 0.0
    for k in range(table.size):
        out[k] = exp(eta * (least - table[k]))
        total += out[k]
    return total


def _with_reserve(rule: Any) -> Callable[..., Any]:
    """Compile the rule's ``reserve``, or a function that returns the state unchanged."""
    if rule.reserve is None:
        return compiled(lambda where, state, waiting, arms, parameters: state)
    return compile_with_helpers(rule.reserve)


def _weights_with(prior: float | None) -> Callable[..., Any]:
    """Return ``_weights`` with the prior of a ``Sided`` rule."""
    if prior is None:
        return _weights
    of_last = compiled(weight_of_last)

    @compiled
    def weights(table, eta, out):
        _weights(table, eta, out)
        out[-1] *= of_last(prior, table.size)
        return out.sum()

    return weights


def _sided(rule: Sided) -> OnlineRule:
    """Compile a round: draw a side of the cut, and charge both (line "Update" of Algorithms "ExAUL" and "EW-CA").

    ``table`` has the cumulative charges L; ``numbers`` is unused.
    """
    charge, weights = compile_with_helpers(rule.charge), _weights_with(rule.prior)

    @compiled
    def decide(numbers, table, cut, u, parameters, waiting):
        w = np.empty(table.size)
        total, low = weights(table, parameters.eta, w), 0.0
        for k in range(cut):
            low += w[k]
        P = low / total
        return OnlineDecision(u < P, P, 0, P)

    @compiled
    def learn(numbers, table, cut, decision, error, parameters):
        P, answered = decision.probability, decision.answered
        # Eq. 8 divides by the P of the decision: the current weights may differ if feedback was delayed.
        under, over = charge(where, P, 1.0 - P, answered, error if answered else 0.0, parameters)
        for k in range(table.size):
            table[k] += parameters.weight * (under if k < cut else over)

    return OnlineRule(_losses, decide, learn)


def _drawn(rule: Drawn) -> OnlineRule:
    """Compile a round: draw an arm, and charge it alone (Algorithm "Exp3-IX-CA"). The arrays are as in ``_sided``.

    ``decide`` keeps the probability of the arm, by which ``learn`` divides (``exp3-ix``).
    """
    charge = compile_with_helpers(rule.charge)

    @compiled
    def decide(numbers, table, cut, u, parameters, waiting):
        w = np.empty(table.size)
        # One pass finds the drawn arm, and the sum ``low`` below the cut.
        total, low, sum_, arm = _weights(table, parameters.eta, w), 0.0, 0.0, -1
        for k in range(table.size):  # the first arm whose cumulative weight exceeds u * total, or the last
            if arm < 0 and (sum_ + w[k] > u * total or k == table.size - 1):
                arm = k
            sum_ += w[k]
            low = sum_ if k < cut else low
        return OnlineDecision(arm < cut, low / total, arm, w[arm] / total)

    @compiled
    def learn(numbers, table, cut, decision, error, parameters):
        answered = decision.answered
        seen = error if answered else 0.0
        table[decision.arm] += parameters.weight * charge(where, decision.weight, answered, seen, parameters)

    return OnlineRule(_losses, decide, learn)


def _ranked(rule: Ranked) -> OnlineRule:
    """Compile a round: rank the cut among recent ones, decide, and count it (``docs/proofs.md``, 2).

    ``table`` has the counts of cuts, and ``numbers`` the rule's own state and the weight of the next record.
    Counting does not wait for feedback, so ``decide`` counts.
    """
    chance, update = compile_with_helpers(rule.decide), compile_with_helpers(rule.learn)
    decay, reserve = rule.decay, _with_reserve(rule)
    read, write = accessors(type(rule.start), lambda number, at: number)
    # Instead of multiplying all old counts by ``decay``, each record counts 1 / decay times as much as the one
    # before. ``numbers[one]`` is the count of the next record, after the rule's own numbers.
    one, least = len(rule.start), decay**256

    def start(arms: int, state: Any, counts: Any) -> Arrays:
        return np.array([*state, 1.0]), np.array(counts)

    @compiled
    def decide(numbers, table, cut, u, parameters, waiting):
        low, total = 0.0, 0.0
        for k in range(table.size):
            low += table[k] if k < cut else 0.0
            total += table[k]
        known = reserve(where, read(numbers, 0), waiting, table.size, parameters)
        # Rank before counting: the record's own score is counted only after its rank is known. Scores are counted
        # in ``decide``, because every score is seen, with or without feedback.
        P = chance(where, known, (low + table[cut]) / total, low / total)
        numbers[one] /= decay
        table[cut] += numbers[one]
        # The increment has grown by 1 / decay for 256 rounds: scale all counts back before they overflow.
        if numbers[one] * least >= 1.0:
            for k in range(table.size):
                table[k] /= numbers[one]
            numbers[one] = 1.0
        return OnlineDecision(u < P, P, 0, P)

    @compiled
    def learn(numbers, table, cut, decision, error, parameters):
        write(numbers, 0, update(where, read(numbers, 0), decision.answered, error, parameters))

    return OnlineRule(start, decide, learn)


def _fixed(rule: Fixed) -> OnlineRule:
    """Compile a round of one arm, which ``numbers`` has; of ``table`` nothing is used."""

    def start(arms: int, state: Any, counts: Any) -> Arrays:
        return np.array([rule.arm(arms, 0)], np.float64), np.zeros(arms)

    @compiled
    def decide(numbers, table, cut, u, parameters, waiting):
        answered = numbers[0] < cut
        return OnlineDecision(answered, 1.0 if answered else 0.0, 0, 1.0)

    @compiled
    def learn(numbers, table, cut, decision, error, parameters):
        pass

    return OnlineRule(start, decide, learn)


_WRITERS: dict[type, Callable[[Any], OnlineRule]] = {
    Sided: _sided,
    Drawn: _drawn,
    Ranked: _ranked,
    Fixed: _fixed,
}
