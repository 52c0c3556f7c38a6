"""One round of each type of rule, as a decision and what is learned from its feedback.

A copy has two arrays: ``parse_numbers`` [M], what its rule remembers, and ``table`` [H], charges of the arms or
counts of scores. What is learned of an answer uses the probabilities with which it was decided, whatever has been
learned in between (the estimator of eq. 8, under delay as in Joulani et al., "Online learning under delayed
feedback", 2013).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.backends.memory import accessors
from exaul.kernels.backends.native.arithmetic import exp, where
from exaul.kernels.backends.native.compile import compiled
from exaul.kernels.backends.rules import compile_with_helpers
from exaul.kernels.game import TIE
from exaul.kernels.learners.learner import Descent, Drawn, Fixed, Learner, Priced, Ranked, Sided

Arrays = tuple[NDArray[np.float64], NDArray[np.float64]]


class OnlineDecision(NamedTuple):
    """What was decided of one question, and what must be kept of it until its feedback comes."""

    answered: Any  # bool
    probability: Any  # P, of answering, before the draw
    arm: Any  # the arm that was drawn, where the rule charges it alone; else 0
    weight: Any  # the probability of that arm; else P
    middle: Any  # of the interval of uniforms that draw that arm; else 0


class OnlineRule(NamedTuple):
    """One round of a learner on one copy. All functions but ``initial_states`` are compiled.

    Attributes:
        start: ``initial_states(arms, best)`` returns ``parse_numbers`` [M] and ``table`` [H] before round 1.
        decide: ``decide(numbers, table, cut, u, parameters, waiting)`` returns a ``OnlineDecision``. It changes
            what the copy knows of scores, and nothing else. ``waiting`` is how many answers without a thumb count
            as wrong, 0.0 of rules without ``reserve``.
        learn: ``learn(numbers, table, cut, decision, error, parameters)`` changes the copy; ``error`` in [0, 1] is
            read only where the round was answered.
        close: ``close(numbers, table)`` is called after every 256 rounds that were learned.
        middles: whether decisions have a ``middle``.
    """

    start: Callable[[int, int], Arrays]
    decide: Callable[..., Any]
    learn: Callable[..., Any]
    close: Callable[..., Any]
    middles: bool = False


def compile_rule(learner: Learner[Any]) -> OnlineRule | None:
    """Write one round of a learner, on a copy's arrays [M] and [H].

    Args:
        learner: with a rule of any type, and feedback on its own answers or none.

    Returns:
        The round, or None where the rule brings its own backend, or the learner sees more than its own answers
        (section "Online Conformal Abstention Under Adversarial Bandit Feedback" of the paper).
    """
    writer = _WRITERS.get(type(learner.rule))
    return None if writer is None or learner.feedback == "full" else writer(learner.rule)


@compiled
def _do_nothing(numbers, table):
    pass


def _losses(arms: int, best: int) -> Arrays:
    return np.zeros(1), np.zeros(arms)


@compiled
def _weights(table, eta, out):
    """``w_k = exp(-eta (L_k - min L))``, and their sum (line "Update" of every algorithm of the paper)."""
    least, total = table.min(), 0.0
    for k in range(table.size):
        out[k] = exp(eta * (least - table[k]))
        total += out[k]
    return total


def _with_reserve(rule: Any) -> Callable[..., Any]:
    """The rule's ``reserve``, compiled; what it is given where it has none."""
    if rule.reserve is None:
        return compiled(lambda where, state, waiting, arms, parameters: state)
    return compile_with_helpers(compiled, rule.reserve)


def _sided(rule: Sided) -> OnlineRule:
    charge = compile_with_helpers(compiled, rule.charge)

    @compiled
    def decide(numbers, table, cut, u, parameters, waiting):
        w = np.empty(table.size)
        total, low = _weights(table, parameters.eta, w), 0.0
        for k in range(cut):
            low += w[k]
        P = low / total
        return OnlineDecision(u < P, P, 0, P, 0.0)

    @compiled
    def learn(numbers, table, cut, decision, error, parameters):
        P, answered = decision.probability, decision.answered
        under, over = charge(where, P, 1.0 - P, answered, error if answered else 0.0, parameters)
        for k in range(table.size):
            table[k] += under if k < cut else over

    return OnlineRule(_losses, decide, learn, _do_nothing)


def _drawn(rule: Drawn) -> OnlineRule:
    charge = compile_with_helpers(compiled, rule.charge)

    @compiled
    def decide(numbers, table, cut, u, parameters, waiting):
        w = np.empty(table.size)
        total, low, sum_, before, arm = _weights(table, parameters.eta, w), 0.0, 0.0, 0.0, -1
        for k in range(table.size):  # the first arm whose cumulative weight exceeds u, or the last
            if arm < 0 and (sum_ + w[k] > u * total or k == table.size - 1):
                arm, before = k, sum_
            sum_ += w[k]
            low = sum_ if k < cut else low
        p = w[arm] / total
        return OnlineDecision(arm < cut, low / total, arm, p, before / total + p / 2)

    @compiled
    def learn(numbers, table, cut, decision, error, parameters):
        answered = decision.answered
        seen = error if answered else 0.0
        table[decision.arm] += charge(where, decision.weight, answered, seen, parameters)

    return OnlineRule(_losses, decide, learn, _do_nothing, middles=True)


def _priced(rule: Priced) -> OnlineRule:
    admit, charge = compile_with_helpers(compiled, rule.decide), compile_with_helpers(compiled, rule.learn)
    even, reserve = compile_with_helpers(compiled, rule.uniform_share), _with_reserve(rule)
    read, write = accessors(type(rule.start), compiled, lambda number, at: number)

    def start(arms: int, best: int) -> Arrays:
        return np.array(rule.start, np.float64), np.zeros(arms)

    @compiled
    def decide(numbers, table, cut, u, parameters, waiting):
        w = np.empty(table.size)
        total, low = _weights(table, 1.0, w), 0.0
        for k in range(cut):
            low += w[k]
        P = low / total
        known = reserve(where, read(numbers, 0), waiting, table.size, parameters)
        chance = admit(where, P, known, parameters)
        return OnlineDecision(u < chance, chance, 0, P, 0.0)

    @compiled
    def learn(numbers, table, cut, decision, error, parameters):
        answered, memory = decision.answered, read(numbers, 0)
        seen = error if answered else 0.0
        under, over, share, memory = charge(where, exp, decision.weight, answered, seen, memory, parameters)
        w = np.empty(table.size)
        least = table.min()
        total = _weights(table, 1.0, w)
        low = 0.0
        for k in range(cut):
            low += w[k]
        low, high = low * exp(-under), (total - low) * exp(-over)
        last = w[table.size - 1] * exp(-over) + share * (low + high)
        for k in range(table.size):
            table[k] += under if k < cut else over
        if share > 0.0:
            table[table.size - 1] = least - np.log(last)
        write(numbers, 0, memory)

    @compiled
    def close(numbers, table):
        w = np.empty(table.size)
        total, added = _weights(table, 1.0, w), even(where, read(numbers, 0)) / table.size
        for k in range(table.size):
            table[k] = -np.log(w[k] / total + added)

    return OnlineRule(start, decide, learn, close)


def _descent(rule: Descent) -> OnlineRule:
    gradient, reserve = compile_with_helpers(compiled, rule.gradient), _with_reserve(rule)

    def start(arms: int, best: int) -> Arrays:
        return np.array([rule.start(arms)], np.float64), np.zeros(arms)

    @compiled
    def decide(numbers, table, cut, u, parameters, waiting):
        answered = reserve(where, numbers[0], waiting, float(table.size), parameters) + TIE < cut
        return OnlineDecision(answered, 1.0 if answered else 0.0, 0, 1.0, 0.0)

    @compiled
    def learn(numbers, table, cut, decision, error, parameters):
        moved = parameters.eta * gradient(where, decision.answered, error, float(table.size), parameters)
        numbers[0] = max(numbers[0] - moved, 0.0)

    return OnlineRule(start, decide, learn, _do_nothing)


def _ranked(rule: Ranked) -> OnlineRule:
    """Old counts are not multiplied by ``decay``: the count of a new record is divided by it, up to a limit."""
    chance, renew, decay = (
        compile_with_helpers(compiled, rule.chance),
        compile_with_helpers(compiled, rule.learn),
        rule.decay,
    )
    reserve = _with_reserve(rule)
    read, write = accessors(type(rule.start), compiled, lambda number, at: number)
    one, least = len(rule.start), decay**256

    def start(arms: int, best: int) -> Arrays:
        counts = np.full(arms, rule.prior)
        counts[0] = 0.0
        return np.array([*rule.start, 1.0]), counts

    @compiled
    def decide(numbers, table, cut, u, parameters, waiting):
        low, total = 0.0, 0.0
        for k in range(table.size):
            low += table[k] if k < cut else 0.0
            total += table[k]
        known = reserve(where, read(numbers, 0), waiting, table.size, parameters)
        P = chance(where, known, (low + table[cut]) / total, low / total)
        numbers[one] /= decay
        table[cut] += numbers[one]
        if numbers[one] * least >= 1.0:
            for k in range(table.size):
                table[k] /= numbers[one]
            numbers[one] = 1.0
        return OnlineDecision(u < P, P, 0, P, 0.0)

    @compiled
    def learn(numbers, table, cut, decision, error, parameters):
        write(numbers, 0, renew(where, read(numbers, 0), decision.answered, error, parameters.alpha))

    return OnlineRule(start, decide, learn, _do_nothing)


def _fixed(rule: Fixed) -> OnlineRule:
    def start(arms: int, best: int) -> Arrays:
        return np.array([rule.arm(arms, best)], np.float64), np.zeros(arms)

    @compiled
    def decide(numbers, table, cut, u, parameters, waiting):
        answered = numbers[0] < cut
        return OnlineDecision(answered, 1.0 if answered else 0.0, 0, 1.0, 0.0)

    @compiled
    def learn(numbers, table, cut, decision, error, parameters):
        pass

    return OnlineRule(start, decide, learn, _do_nothing)


_WRITERS: dict[type, Callable[[Any], OnlineRule]] = {
    Sided: _sided,
    Drawn: _drawn,
    Priced: _priced,
    Descent: _descent,
    Ranked: _ranked,
    Fixed: _fixed,
}
