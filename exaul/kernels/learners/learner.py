"""What a learner is: a rule on scalars, its rates, and what is proved of it.

A rule is written with ``where``, operators and, in ``Priced``, ``exp`` alone, so that one source serves every
backend: traced by JAX on arrays [B], compiled by Numba on numbers. Each type of rule is a NamedTuple below; a
backend plays the types that it has a loop for. "Below the cut" are the arms that answer a record, "above the cut"
those that abstain.
"""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from exaul.kernels.game import Rates


class Sided(NamedTuple):
    """A rule that charges one number to all arms below the cut and another to all arms above it.

    The weights are ``w_k ~ exp(-eta L_k)``, where L_k is the sum of the charges of arm k (line "Update" of every
    algorithm of the paper).

    Attributes:
        charge: ``charge(where, P, Q, answered, error, parameters)`` returns the charge below the cut and the charge
            above it, [B] each. P and Q [B] in [0, 1] are the probabilities that the drawn arm answers and that it
            abstains; ``answered`` [B] bool is what it did; ``error`` [B] in [0, 1] is the feedback, which is 0
            where the learner does not see it; ``parameters`` is a ``Parameters``.
    """

    charge: Callable[..., Any]


class Drawn(NamedTuple):
    """A rule that draws an arm and charges that arm only, with the weights of ``Sided``.

    Attributes:
        charge: ``charge(where, p, answered, error, parameters)`` returns the charge [B] of the drawn arm, whose
            probability is p [B] in (0, 1]; the other arguments are as of ``Sided``.
    """

    charge: Callable[..., Any]


class Priced(NamedTuple):
    """A rule that changes the weights on both sides of the cut, has a memory, and moves mass to the last arm.

    Attributes:
        start: the memory before round 1, a NamedTuple of M floats.
        decide: ``decide(where, P, memory, parameters)`` returns the probability [B] of answering, from the
            probability P of the arms that answer, in [0, 1].
        learn: ``learn(where, exp, P, answered, error, memory, parameters)`` returns, [B] each, what is subtracted
            from the logarithm of every weight below the cut, and of every weight above it; the share of all mass
            that is then added to the last arm; and the new memory. P is that of ``decide``; ``error`` is read only
            where the round is answered.
        uniform_share: ``uniform_share(where, memory)`` returns the mass [B] that is added at the end of a block, in
            units of the mass that is there, in equal parts to all arms.
        reserve: ``reserve(where, memory, waiting, arms, parameters)`` returns the memory with which a round is
            decided while ``waiting`` [B] answers without a thumb count as wrong; None where there is no such way.
    """

    start: Any
    decide: Callable[..., Any]
    learn: Callable[..., Any]
    uniform_share: Callable[..., Any]
    reserve: Callable[..., Any] | None = None


class Descent(NamedTuple):
    """A rule with one threshold z >= 0, in units of arms, that moves by gradient steps.

    A round is answered where z lies below the cut. Then
    ``z <- max(0, z - eta gradient(where, answered, error, arms, parameters))``.

    Attributes:
        start: ``initial_states(arms)`` returns z before round 1.
        gradient: ``gradient(where, answered, error, arms, parameters)`` returns [B]; ``error`` is read only where
            the round is answered, and ``arms`` is H.
        reserve: as of ``Priced``, of z.
    """

    start: Callable[[int], float]
    gradient: Callable[..., Any]
    reserve: Callable[..., Any] | None = None


class Ranked(NamedTuple):
    """A rule that answers by the rank of a score among the scores of recent rounds.

    Ranks come from counts of cuts. Every cut begins with the count ``prior``. Each round multiplies all counts by
    ``decay``, and then adds 1 to the count of its own cut.

    Attributes:
        start: the state before round 1, a NamedTuple of M floats.
        chance: ``chance(where, state, high, low)`` returns the probability [B] of answering a record, if ``high``
            is the share of recent records whose cut is at most the record's, and ``low`` the share whose cut is
            smaller. Both are in [0, 1]; the rank is uniform between them.
        learn: ``learn(where, state, answered, error, alpha)`` returns the state after the round; ``error`` is read
            only where the round is answered.
        prior: > 0, in records.
        decay: in (0, 1).
        reserve: as of ``Priced``, of the state.
    """

    start: Any
    chance: Callable[..., Any]
    learn: Callable[..., Any]
    prior: float
    decay: float
    reserve: Callable[..., Any] | None = None


class Fixed(NamedTuple):
    """A rule that plays one arm for ever, ``answer iff tau <= f``.

    Attributes:
        arm: ``arm(arms, best)`` returns it, a number or [B] int32 in 0..H-1, from H and the arm of least loss in
            hindsight [B].
    """

    arm: Callable[[int, Any], Any]


class Own(NamedTuple):
    """A rule of none of the types above, which brings its own backend.

    Attributes:
        backend: ``backend(precision)`` returns a ``Backend``, traced by JAX.
    """

    backend: Callable[[str], Any]


Rule = Sided | Drawn | Priced | Descent | Ranked | Fixed | Own
RuleType = TypeVar("RuleType", bound=Rule)


class Learner(NamedTuple, Generic[RuleType]):
    """A learner: which feedback it reads, its rule, its rates, and what is proved of it.

    Attributes:
        feedback: ``bandit`` (the errors of its own answers), ``full`` (every error), ``no_rates``, or ``hindsight``
            (it is a comparator, which starts from the arm of least loss).
        rule: of one of the types above.
        rates: ``rates(horizon, arms)`` returns the rates of the paper for a known horizon; None if there are none.
        anytime: ``anytime(t, arms)`` returns the rates of round t for an unknown horizon; None if there are none.
        regret_bound: ``regret_bound(eta, gamma, rounds, arms, delta, alpha, lam)`` returns a bound that the regret
            (eq. 3) stays below with probability 1 - delta, from the rates [K] of K blocks and their lengths [K];
            NaN where nothing is proved. alpha and lambda have any shape, with which the bound broadcasts.
        mean_delta: the delta at which ``regret_bound`` bounds the mean regret; None if it does at none.
        risk_bound: ``risk_bound(eta, gamma, rounds, t, answered, arms)`` returns a bound of the FDR risk R_t (eq.
            1) on every sequence, for rounds t and counts of answers of shapes that broadcast; None where nothing is
            proved. It must hold because no round t + 1 is answered where R exceeds the bound of t + 1 less ``1 -
            alpha``: what is promised of late thumbs rests on that (``docs/proofs.md``).
        manual_rates: the names of the fields of a sweep that set eta and gamma.
        chaotic: whether a rounding error grows from round to round, as it does without gamma, so that two correct
            programs make different decisions after some thousand rounds.
    """

    feedback: str
    rule: RuleType
    rates: Callable[[int, int], Rates] | None
    anytime: Callable[[int, int], Rates] | None
    regret_bound: Callable[..., Any]
    mean_delta: float | None = None
    risk_bound: Callable[..., Any] | None = None
    manual_rates: tuple[str, str] = ("eta", "gamma")
    chaotic: bool = False
