"""Types of learners and of their rules, their states before round 1, and their rates.

A learner is a rule, with rates and proved bounds. Each type of rule is a NamedTuple; a backend runs the types for
which it has a kernel. "Below the cut" are the arms that answer a record, "above the cut" those that abstain.

Rules other than ``Own`` use ``where``, operators and functions written that way, so that one source serves every
backend: JAX traces it, Numba compiles it. They are elementwise: below, every number of a copy is a scalar, and
callers may pass arrays whose shapes broadcast.

Arguments that several functions share:

- ``where(condition, x, y)`` selects from the caller's arrays.
- ``answered`` is the decision, a bool. ``error`` in [0, 1] is the feedback, and is read only if ``answered``,
  except by learners with full feedback.
- ``params`` is a ``RuleParams``; ``arms`` is H; ``waiting`` is the number of open answers.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.bounds import RegretBounds
from exaul.kernels.game import BLOCK, Rates, Start


class Sided(NamedTuple):
    """A rule that charges one number to all arms below the cut and another to all arms above it.

    The weights are ``w_k ~ exp(-eta L_k)``, where L_k is the sum of the charges of arm k (line "Update" of every
    algorithm of the paper).

    Attributes:
        charge: ``charge(where, P, Q, answered, error, params)`` returns a pair of floats [], finite and >= 0: the
            charge of the arms below the cut, which answer, and then that of the arms above it, which abstain. P
            and Q in [0, 1] are the probabilities that the drawn arm answers and abstains; ``error`` is 0 if the
            learner does not see it.
        prior: in (0, 1), the first mass of the last arm; the others share the rest evenly. None: all are equal.
    """

    charge: Callable[..., Any]
    prior: float | None = None


def weight_of_last(prior: float, arms: Any) -> Any:
    """Return the factor of the weight of the last arm with a prior; the factor of the other arms is 1.

    Then ``w_k ~ pi_k exp(-eta L_k)``, where pi_k is the first mass of arm k, at all rates. H is ``arms``.
    """
    return (arms - 1) * (prior / (1 - prior))


class Drawn(NamedTuple):
    """A rule that draws an arm and charges only that arm, with the weights of ``Sided``.

    Attributes:
        charge: ``charge(where, p, answered, error, params)`` returns the charge of the drawn arm, a float [],
            finite and >= 0; p in (0, 1] is its probability, and ``error`` is 0 if the learner does not see it.
    """

    charge: Callable[..., Any]


class Fixed(NamedTuple):
    """A rule that uses one arm in every round, ``answer iff tau <= f``, and learns nothing.

    Attributes:
        arm: ``arm(arms, best)`` returns the arm in 0..H-1, given the arm of least loss in hindsight; ``best`` may
            be an array [B], and the result then broadcasts with it.
    """

    arm: Callable[[int, Any], Any]


class Ranked(NamedTuple):
    """A rule that answers by the rank of a score among the scores of recent rounds.

    Ranks come from counts of cuts. The count of every cut starts at ``prior``. Each round multiplies all counts by
    ``decay``, and then adds 1 to the count of its cut.

    Attributes:
        start: the state before round 1, a NamedTuple of M floats.
        decide: ``decide(where, state, high, low)`` returns the probability in [0, 1] of answering a record.
            ``high`` in [0, 1] is the share of recent records whose cut is at most the record's, ``low`` the share
            whose cut is smaller; the rank is uniform between them.
        learn: ``learn(where, state, answered, error, params)`` returns the state after the round, of
            the type of ``start``; ``params.weight`` is the weight of an abstention.
        prior: > 0, in records.
        decay: in (0.07, 1); below, the counts overflow within a block, where they grow by ``decay^-256``.
        reserve: ``reserve(where, state, waiting, arms, params)`` returns the state as if every open answer were
            wrong, for the next decision (``docs/proofs.md``, D2); None if the rule does not support this.
        fit: ``fit(cuts, errors, counts, alpha)`` returns the state before round 1 from a log with these records
            [N] and counts [H] of their cuts; None if the rule cannot start from a log.
    """

    start: Any
    decide: Callable[..., Any]
    learn: Callable[..., Any]
    prior: float
    decay: float
    reserve: Callable[..., Any] | None = None
    fit: Callable[..., Any] | None = None


class Own(NamedTuple):
    """A rule of another kind: a learner as functions of one game that JAX traces (``docs/jax.md``).

    Attributes:
        make: ``make(arms)`` returns a ``GameLearner``, an object that is static in JAX, with ``init``, ``decide``
            and ``learn``; ``params`` is a ``RuleParams``, which ``init`` must not read. If it has
            ``reweigh(state, params)``, a sweep calls that before each block of 256 rounds; environments that see
            the learner's distribution over arms need ``distribution(state, params)``. Unless feedback is ``full``,
            it must not read the error of a round that it did not answer; a sweep hides it.
    """

    make: Callable[[int], Any]


FEEDBACKS = "bandit", "full", "none", "hindsight"  # what a learner reads, see ``Learner``
Rule = Sided | Drawn | Ranked | Fixed | Own
RuleType = TypeVar("RuleType", bound=Rule)


class Learner(NamedTuple, Generic[RuleType]):
    """A learner: the feedback that it reads, its rule, its rates, and its proved bounds.

    Attributes:
        feedback: ``bandit`` (errors of its own answers), ``full`` (all errors), ``none``, or ``hindsight`` (a
            comparator that starts from the arm of least loss).
        rule: a ``Sided``, ``Drawn``, ``Ranked``, ``Fixed`` or ``Own``.
        rates: ``rates(horizon, arms)`` returns the ``Rates`` for a known horizon T >= 1 and H >= 2 arms; None if
            there are none.
        anytime: ``anytime(t, arms)`` returns the ``Rates`` of round t >= 1 for an unknown horizon; None if there
            are none.
        regret_bounds: its proved bounds of the regret; None if there are none.
        risk_bound: ``risk_bound(eta, t, answered, alpha, state)`` returns a bound of the FDR risk R_t (eq. 1) on
            every sequence; eta [K] is the rate or step of each block, and ``state`` that of a ``Ranked`` rule
            before round 1. Rounds t in 1..T, numbers of answers up to t, alphas and states broadcast. None if
            nothing is proved. The guarantees under delayed feedback require that the bound rests on a gate: round
            t + 1 is answered only if ``R_t <= risk_bound(t + 1) - (1 - alpha)`` (``docs/proofs.md``, section 5).
        rate_field: ``eta``, or ``step`` if a sweep sets its eta by the field ``steps``.
    """

    feedback: str
    rule: RuleType
    rates: Callable[[int, int], Rates] | None = None
    anytime: Callable[[int, int], Rates] | None = None
    regret_bounds: RegretBounds | None = None
    risk_bound: Callable[..., Any] | None = None
    rate_field: str = "eta"


def at_double(rates: Callable[[int, int], Rates]) -> Callable[[int, int], Rates]:
    """Return the rates for an unknown horizon that are ``rates`` at T = 2 t in round t."""
    return lambda t, arms: rates(2 * t, arms)


def has_weights(learner: Learner[Any]) -> bool:
    """Return whether a learner has weights, whose sums are rounded."""
    return isinstance(learner.rule, Sided | Drawn)


def count_log(rule: Ranked, cuts: NDArray[np.integer], arms: int) -> NDArray[np.float64]:
    """Return the counts [H] after the records of a log, with cuts [N] in 1..H-1, the latest last.

    Before any record they are the prior at each cut, and 0 at 0, since cuts begin at 1.
    """
    ages = np.arange(len(cuts), 0, -1) - 1.0
    prior = np.append(0.0, np.full(arms - 1, rule.prior))
    return prior * rule.decay ** len(cuts) + np.bincount(cuts, rule.decay**ages, arms)


def start_of(
    rule: Rule,
    arms: int,
    alphas: Sequence[float] | NDArray[np.float64],
    log: tuple[NDArray[np.integer], NDArray[np.float64]] | None = None,
    past_cuts: NDArray[np.integer] | None = None,
) -> Start:
    """Return the ``Start`` of a rule in each cell, with ``state`` and ``counts`` if the rule is ``Ranked``.

    Args:
        rule: the rule of a learner.
        arms: H.
        alphas: [cells] target FDRs.
        log: cuts [N] in 1..H-1 and errors [N] in [0, 1] of a log, the latest last; None without one. A rule without
            ``fit`` does not use it (``docs/learners.md``, "Start from a log").
        past_cuts: the cuts in 1..H-1 of all past answers, the latest last, if the log is a sample of them. Nothing
            is known below the lowest cut of the sample, so the first share reaches no lower.
    """
    if not isinstance(rule, Ranked):
        return Start(0)
    if log is None or rule.fit is None:
        states, counts = [rule.start] * len(alphas), count_log(rule, np.zeros(0, np.int32), arms)
    else:
        cuts, errors = log
        counts = count_log(rule, cuts if past_cuts is None else past_cuts, arms)
        states = [rule.fit(cuts, errors, counts, alpha) for alpha in alphas]
        if past_cuts is not None and past_cuts.min() < (lowest := cuts.min()):
            known = (counts[lowest:].sum() - counts[lowest] / 2) / counts.sum()
            states = [state._replace(share=min(state.share, known)) for state in states]
    return Start(0, type(rule.start)(*np.array(states, np.float64).T), counts)


def expected_share(rule: Rule, start: Start) -> NDArray[np.float64] | None:
    """Return the share [cells] of the records in ``start.counts`` that a rule answers at its start.

    A level of equal scores is answered whole or not at all. None for a rule that does not fit a log.
    """
    if not isinstance(rule, Ranked) or rule.fit is None:
        return None
    shares = start.counts / start.counts.sum()
    state = type(start.state)(*(x[:, None] for x in start.state))
    high = shares.cumsum()
    return np.asarray(rule.decide(np.where, state, high, high - shares) @ shares)


def start_copies(rule: Rule, arms: int, start: Start, cell: NDArray[np.integer], best: NDArray[np.int32]) -> Start:
    """Return the ``Start`` of B copies on H arms.

    Args:
        rule: the rule of the learner.
        arms: H.
        start: from ``start_of``.
        cell: [B], the cell of each copy.
        best: [B] in 0..H-1, the arm of least loss in hindsight, which only a ``Fixed`` rule may read.
    """
    state = start.state
    arm = np.broadcast_to(rule.arm(arms, best) if isinstance(rule, Fixed) else np.int32(0), best.shape)
    return Start(arm.astype(np.int32), type(state)(*(x[cell] for x in state)) if state else (), start.counts)


def block_lengths(horizon: int) -> NDArray[np.int64]:
    """Return the number of rounds of each block [K]: 256, and the remainder in the last block."""
    return np.minimum(BLOCK, horizon - np.arange(0, horizon, BLOCK))


def regret_at(bound: Callable[..., Any], rates: Iterable[Any], t: int, *arguments: Any) -> Any:
    """Return a bound of the regret after t rounds; ``rates`` are [K], for all its blocks, or [] if constant."""
    lengths = block_lengths(t)
    return bound(*(np.resize(x, len(lengths)) for x in rates), lengths, *arguments)


@cache
def rates_of_horizon(
    learner: Learner[Any], horizon: int, arms: int, anytime: bool, eta: float | None, gamma: float | None
) -> Rates:
    """Compute the rates [K] of a learner for all blocks of a horizon.

    They are constant within a block of 256 rounds. Of the rates for an unknown horizon, round t has those of
    ``t' = 256 ceil(t / 256)``.

    Args:
        learner: the learner.
        horizon: T >= 1.
        arms: H >= 2.
        anytime: use the learner's rates for an unknown horizon, if it has such rates.
        eta: manual learning rate, or None.
        gamma: manual implicit exploration, or None.

    Returns:
        Eta and gamma; NaN for a rate that the learner does not have. A learner with neither ``rates`` nor
        ``anytime``, whose rule reads rates, has the manual ones.
    """
    ends = BLOCK * np.arange(1, len(block_lengths(horizon)) + 1)
    is_anytime = learner.anytime is not None and (anytime or learner.rates is None)
    rates_at = learner.anytime if is_anytime else learner.rates or (lambda horizon, arms: Rates(None, None))
    assert rates_at is not None
    times = ends if is_anytime else [horizon]  # constant rates are one pair
    rates = np.array([rates_at(int(t), arms) for t in times], np.float64)
    manual = np.array([eta, gamma], np.float64)  # NaN in place of None
    lacks_rates = learner.rates is None and learner.anytime is None and not isinstance(learner.rule, Fixed | Ranked)
    rates = np.where(np.isnan(manual) | (np.isnan(rates) & (not lacks_rates)), rates, manual)
    return Rates(*np.broadcast_to(rates, (len(ends), 2)).T.copy())
