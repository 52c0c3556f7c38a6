"""Imperfect feedback: what becomes of the feedback on answers that users rate late, rarely, unevenly or wrongly.

In the paper every answer earns its feedback before the next question. Here an answer gets a thumb with a
probability that may depend on whether it is wrong, some thumbs lie, and each comes some questions later: after a
question one of ``delay + 1`` places is drawn; who waits there is settled, and the question waits in its stead, or
at the last place is settled at once. An answer that gets no thumb changes nothing, or is taken for wrong or right.
What is promised then stands in ``docs/online.md``.
The functions are written with ``where`` and operators: JAX traces them on arrays, Numba compiles them on numbers.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MISSING = {"skip": -1.0, "wrong": 1.0, "right": 0.0}  # what an answer without a thumb is taken for
FORGETTING = 1 - 1 / 1024  # how answers fade, from one to the next, in the share of those that were rated

# kinds of a round: not answered; answered, and a thumb comes; taken for one; never learned
ABSTAINED, OBSERVED, IMPUTED, NEVER_LEARNED = 0.0, 1.0, 2.0, 3.0

Function = Callable[..., Any]


class Feedback(NamedTuple):
    """How users rate answers, and what a learner makes of those that they do not rate."""

    rate: float = 1.0  # in (0, 1], probability of a thumb, of the kind of answer that is rated more often
    delay: int = 0  # questions that a thumb is late in the mean, >= 0: after each it comes with 1 / (delay + 1)
    bias: float = 1.0  # > 0, how many times as often wrong answers are rated as right ones
    flips: tuple[float, ...] = (0.0, 0.0)  # probabilities of a thumb down on a right answer, up on a wrong one
    missing: str = "skip"  # of MISSING
    reserve: bool = False  # an answer counts as wrong until its feedback comes
    uncorrected: bool = False  # the learner aims at alpha, whatever bias and flips are

    @property
    def may_be_missing(self) -> bool:
        """Whether some answers never get a thumb, [] bool (``docs/online.md``)."""
        return self.rate < 1 or self.bias != 1

    @property
    def is_biased(self) -> bool:
        """Whether the rated tell another FDR than that of all, [] bool (``docs/proofs.md``, N1)."""
        return self.bias != 1 or any(self.flips)

    @property
    def corrects_aim(self) -> bool:
        """Whether the aim is another one than alpha, [] bool (``docs/proofs.md``, N1)."""
        return self.is_biased and not self.uncorrected

    @property
    def bounds_risk(self) -> bool:
        """Whether none is taken for better than it is, [] bool: R_T is bounded (``docs/proofs.md``, D1, D2)."""
        return not self.corrects_aim and self.flips[1] == 0 and (not self.may_be_missing or self.missing == "wrong")

    @property
    def parameters(self) -> NDArray[np.float64]:
        """The numbers [5] that ``draw_feedback`` reads (``docs/proofs.md``, N1)."""
        shares = self.rate * min(1.0, 1 / self.bias), self.rate * min(1.0, self.bias)
        return np.array([*shares, *self.flips, MISSING[self.missing]])

    def aim(self, alpha: Any) -> Any:
        """Find the share of thumbs down at which the learner aims (``docs/proofs.md``, N1).

        Args:
            alpha: target FDR in (0, 1), [] or any shape.

        Returns:
            The aim in (0, 1), of the same shape.
        """
        return aim(alpha, self.bias, self.flips) if self.corrects_aim else alpha


PERFECT_FEEDBACK = Feedback()


class FeedbackSums(NamedTuple):
    """What was learned so far, [B] float64 each."""

    learned: Any  # rounds that were learned: answers whose feedback came or was taken for one, and abstentions
    settled: Any  # answers that were learned
    charged: Any  # sum of the errors that were learned of them
    observed: Any  # answers whose feedback has come
    observed_errors: Any  # sum of those thumbs, 1 where it is down
    waiting: Any  # answers that will be learned, but are not yet
    since: Any  # answers that were learned since the last one was given
    recent: Any  # answers whose feedback came or, as was seen, never will; faded
    recent_observed: Any  # those of them that were rated


def aim(alpha: Any, bias: float, flips: tuple[float, ...]) -> Any:
    """The share of thumbs down among the rated at which the FDR (eq. 2) is alpha (``docs/proofs.md``, N1).

    Args:
        alpha: target FDR in (0, 1), any shape.
        bias: how many times as often wrong answers are rated as right ones, > 0.
        flips: how probable a thumb down is on a right answer, and a thumb up on a wrong one; the sum is below 1.

    Returns:
        ``(alpha kappa (1 - r_1) + (1 - alpha) r_0) / (alpha kappa + 1 - alpha)``, of the shape of ``alpha``.
    """
    (observed_errors, up), wrong = flips, alpha * bias
    return (wrong * (1 - up) + (1 - alpha) * observed_errors) / (wrong + 1 - alpha)


def fdr_limit(
    alpha: float, share: float, flips: tuple[float, ...], answers: float, risk: float, delta: float
) -> float:
    """What the FDR of all answers does not exceed, from those that were audited (``docs/proofs.md``, N1).

    Args:
        alpha: target FDR in (0, 1).
        share: c in (0, 1], the probability with which an answer is audited.
        flips: as of ``aim``.
        answers: n >= 1, fixed beforehand.
        risk: sum of ``thumb - aim`` over those that were audited, at most ``1 - aim`` each where it is not known.
        delta: probability in (0, 1) that it is exceeded.

    Returns:
        ``alpha + (risk + sqrt(2 n v L) + L / 3) / (q n)`` within [0, 1], where ``L = ln(1 / delta)``
        and v and q are those of N1 for ``kappa = 1``.
    """
    (observed_errors, up), goal, L = flips, aim(alpha, 1.0, flips), math.log(1 / delta)
    right, wrong = (
        observed_errors * (1 - goal) ** 2 + (1 - observed_errors) * goal**2,
        up * goal**2 + (1 - up) * (1 - goal) ** 2,
    )
    deviation = math.sqrt(2 * answers * share * max(right, wrong) * L) + L / 3
    return min(1.0, max(0.0, alpha + (risk + deviation) / (share * (1 - observed_errors - up) * answers)))


def draw_feedback(where: Function, answered: Any, error: Any, u: Any, numbers: Any) -> tuple[Any, Any]:
    """What will be known of a round (``docs/proofs.md``, N1).

    Args:
        where: ``where(condition, x, y)`` of the caller's arrays.
        answered: [B] bool.
        error: [B] in [0, 1].
        u: [B] in [0, 1), the round's uniform.
        numbers: [5], probabilities of a thumb on a right and on a wrong answer, of a thumb down on a right and of
            one up on a wrong answer, and what an answer without a thumb is taken for, -1 for nothing.

    Returns:
        The kind of the round, [B]: ``ABSTAINED``, ``OBSERVED``, ``IMPUTED`` or ``NEVER_LEARNED``. What will be
        learned, [B] in [0, 1], where 1 is wrong.
    """
    share = numbers[0] + (numbers[1] - numbers[0]) * error
    observed_errors = share * numbers[2] * (1.0 - error)
    flipped = observed_errors + share * numbers[3] * error
    imputed = where(numbers[4] < 0.0, 0.0, numbers[4])
    learned_error = where(u < share, where(u < observed_errors, 1.0, where(u < flipped, 0.0, error)), imputed)
    kind = where(u < share, OBSERVED, where(numbers[4] < 0.0, NEVER_LEARNED, IMPUTED))
    return where(answered, kind, ABSTAINED), where(answered, learned_error, 0.0)


def learns_abstention(sums: FeedbackSums, u: Any, numbers: Any) -> Any:
    """Whether an abstention is learned: with the share of recent answers that were rated (``docs/proofs.md``, M1).

    Args:
        sums: so far, [B] each.
        u: [B] in [0, 1), the round's uniform.
        numbers: as of ``draw_feedback``.

    Returns:
        [B] bool; always true while all answers are rated, or taken for rated.
    """
    return (numbers[4] >= 0.0) | (u < (sums.recent_observed + 1.0) / (sums.recent + 1.0))


def add_abstention(where: Function, sums: FeedbackSums, counts: Any) -> FeedbackSums:
    """The sums after an abstention that counts (``docs/proofs.md``, M1).

    Args:
        where: as of ``draw_feedback``.
        sums: before, [B] each.
        counts: [B] bool.

    Returns:
        The sums, [B] each.
    """
    learned, settled, charged, observed, observed_errors, waiting, since, recent, recent_observed = sums
    learned = learned + where(counts, 1.0, 0.0)
    return FeedbackSums(
        learned, settled, charged, observed, observed_errors, waiting, since, recent, recent_observed
    )


def add_decision(where: Function, sums: FeedbackSums, kind: Any) -> FeedbackSums:
    """The sums after a round was decided, whose answer may wait for its feedback (``docs/proofs.md``, M1).

    Args:
        where: as of ``draw_feedback``.
        sums: before, [B] each.
        kind: [B], of the round.

    Returns:
        The sums, [B] each.
    """
    waits = where((kind == OBSERVED) | (kind == IMPUTED), 1.0, 0.0)
    learned, settled, charged, observed, observed_errors, waiting, since, recent, recent_observed = sums
    since = where(kind == ABSTAINED, since, 0.0)
    return FeedbackSums(
        learned, settled, charged, observed, observed_errors, waiting + waits, since, recent, recent_observed
    )


def settle_answer(where: Function, sums: FeedbackSums, kind: Any, learned_error: Any) -> FeedbackSums:
    """The sums once the thumb of an answer has come, or will never come (``docs/proofs.md``, M1).

    Args:
        where: as of ``draw_feedback``.
        sums: before, [B] each.
        kind: [B], of the round that was answered; ``ABSTAINED`` leaves all as it is.
        learned_error: [B] in [0, 1], what is learned of it.

    Returns:
        The sums, [B] each.
    """
    is_learned, observed = (
        where((kind == OBSERVED) | (kind == IMPUTED), 1.0, 0.0),
        where(kind == OBSERVED, 1.0, 0.0),
    )
    fades = where(kind == ABSTAINED, 1.0, FORGETTING)
    return FeedbackSums(
        sums.learned + is_learned,
        sums.settled + is_learned,
        sums.charged + is_learned * learned_error,
        sums.observed + observed,
        sums.observed_errors + observed * learned_error,
        sums.waiting - is_learned,
        sums.since + is_learned,
        sums.recent * fades + where(kind == ABSTAINED, 0.0, 1.0),
        sums.recent_observed * fades + observed,
    )
