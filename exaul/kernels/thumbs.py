"""Imperfect thumbs: what becomes of the feedback on answers that users rate late, rarely, unevenly or wrongly.

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
FADES = 1 - 1 / 1024  # how answers fade, from one to the next, in the share of those that were rated

# kinds of a round: not answered; answered, and a thumb comes; taken for one; never learned
NONE, RATED, TAKEN, SKIPPED = 0.0, 1.0, 2.0, 3.0

Function = Callable[..., Any]


class Thumbs(NamedTuple):
    """How users rate answers, and what a learner makes of those that they do not rate."""

    rated: float = 1.0  # in (0, 1], probability of a thumb, of the kind of answer that is rated more often
    delay: int = 0  # questions that a thumb is late in the mean, >= 0: after each it comes with 1 / (delay + 1)
    bias: float = 1.0  # > 0, how many times as often wrong answers are rated as right ones
    flips: tuple[float, ...] = (0.0, 0.0)  # probabilities of a thumb down on a right answer, up on a wrong one
    missing: str = "skip"  # of MISSING
    reserve: bool = False  # an answer counts as wrong until its thumb comes
    uncorrected: bool = False  # the learner aims at alpha, whatever bias and flips are

    @property
    def silent(self) -> bool:
        """Whether some answers never get a thumb, [] bool (``docs/online.md``)."""
        return self.rated < 1 or self.bias != 1

    @property
    def skewed(self) -> bool:
        """Whether the rated tell another FDR than that of all, [] bool (``docs/proofs.md``, N1)."""
        return self.bias != 1 or any(self.flips)

    @property
    def corrected(self) -> bool:
        """Whether the aim is another one than alpha, [] bool (``docs/proofs.md``, N1)."""
        return self.skewed and not self.uncorrected

    @property
    def bounds_all(self) -> bool:
        """Whether none is taken for better than it is, [] bool: R_T is bounded (``docs/proofs.md``, D1, D2)."""
        return not self.corrected and self.flips[1] == 0 and (not self.silent or self.missing == "wrong")

    @property
    def numbers(self) -> NDArray[np.float64]:
        """The numbers [5] that ``thumb`` reads (``docs/proofs.md``, N1)."""
        shares = self.rated * min(1.0, 1 / self.bias), self.rated * min(1.0, self.bias)
        return np.array([*shares, *self.flips, MISSING[self.missing]])

    def aim(self, alpha: Any) -> Any:
        """Find the share of thumbs down at which the learner aims (``docs/proofs.md``, N1).

        Args:
            alpha: target FDR in (0, 1), [] or any shape.

        Returns:
            The aim in (0, 1), of the same shape.
        """
        return aim(alpha, self.bias, self.flips) if self.corrected else alpha


PERFECT = Thumbs()


class Sums(NamedTuple):
    """What was learned so far, [B] float64 each."""

    learned: Any  # rounds that were learned: answers whose thumb came or was taken for one, and abstentions
    settled: Any  # answers that were learned
    charged: Any  # sum of the errors that were learned of them
    rated: Any  # answers whose thumb has come
    down: Any  # sum of those thumbs, 1 where it is down
    waiting: Any  # answers that will be learned, but are not yet
    since: Any  # answers that were learned since the last one was given
    recent: Any  # answers whose thumb came or, as was seen, never will; faded
    recent_rated: Any  # those of them that were rated


def aim(alpha: Any, bias: float, flips: tuple[float, ...]) -> Any:
    """The share of thumbs down among the rated at which the FDR (eq. 2) is alpha (``docs/proofs.md``, N1).

    Args:
        alpha: target FDR in (0, 1), any shape.
        bias: how many times as often wrong answers are rated as right ones, > 0.
        flips: how probable a thumb down is on a right answer, and a thumb up on a wrong one; the sum is below 1.

    Returns:
        ``(alpha kappa (1 - r_1) + (1 - alpha) r_0) / (alpha kappa + 1 - alpha)``, of the shape of ``alpha``.
    """
    (down, up), wrong = flips, alpha * bias
    return (wrong * (1 - up) + (1 - alpha) * down) / (wrong + 1 - alpha)


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
    (down, up), goal, L = flips, aim(alpha, 1.0, flips), math.log(1 / delta)
    right, wrong = down * (1 - goal) ** 2 + (1 - down) * goal**2, up * goal**2 + (1 - up) * (1 - goal) ** 2
    deviation = math.sqrt(2 * answers * share * max(right, wrong) * L) + L / 3
    return min(1.0, max(0.0, alpha + (risk + deviation) / (share * (1 - down - up) * answers)))


def thumb(where: Function, answered: Any, error: Any, u: Any, numbers: Any) -> tuple[Any, Any]:
    """What will be known of a round (``docs/proofs.md``, N1).

    Args:
        where: ``where(condition, x, y)`` of the caller's arrays.
        answered: [B] bool.
        error: [B] in [0, 1].
        u: [B] in [0, 1), the round's uniform.
        numbers: [5], probabilities of a thumb on a right and on a wrong answer, of a thumb down on a right and of
            one up on a wrong answer, and what an answer without a thumb is taken for, -1 for nothing.

    Returns:
        The kind of the round, [B]: ``NONE``, ``RATED``, ``TAKEN`` or ``SKIPPED``. What will be learned, [B] in
        [0, 1], where 1 is wrong.
    """
    share = numbers[0] + (numbers[1] - numbers[0]) * error
    down = share * numbers[2] * (1.0 - error)
    lies = down + share * numbers[3] * error
    taken = where(numbers[4] < 0.0, 0.0, numbers[4])
    said = where(u < share, where(u < down, 1.0, where(u < lies, 0.0, error)), taken)
    kind = where(u < share, RATED, where(numbers[4] < 0.0, SKIPPED, TAKEN))
    return where(answered, kind, NONE), where(answered, said, 0.0)


def abstention_counts(sums: Sums, u: Any, numbers: Any) -> Any:
    """Whether an abstention is learned: with the share of recent answers that were rated (``docs/proofs.md``, M1).

    Args:
        sums: so far, [B] each.
        u: [B] in [0, 1), the round's uniform.
        numbers: as of ``thumb``.

    Returns:
        [B] bool; always true while all answers are rated, or taken for rated.
    """
    return (numbers[4] >= 0.0) | (u < (sums.recent_rated + 1.0) / (sums.recent + 1.0))


def abstained(where: Function, sums: Sums, counts: Any) -> Sums:
    """The sums after an abstention that counts (``docs/proofs.md``, M1).

    Args:
        where: as of ``thumb``.
        sums: before, [B] each.
        counts: [B] bool.

    Returns:
        The sums, [B] each.
    """
    learned, settled, charged, rated, down, waiting, since, recent, recent_rated = sums
    learned = learned + where(counts, 1.0, 0.0)
    return Sums(learned, settled, charged, rated, down, waiting, since, recent, recent_rated)


def opened(where: Function, sums: Sums, kind: Any) -> Sums:
    """The sums after a round was decided, whose answer may wait for its thumb (``docs/proofs.md``, M1).

    Args:
        where: as of ``thumb``.
        sums: before, [B] each.
        kind: [B], of the round.

    Returns:
        The sums, [B] each.
    """
    more = where((kind == RATED) | (kind == TAKEN), 1.0, 0.0)
    learned, settled, charged, rated, down, waiting, since, recent, recent_rated = sums
    since = where(kind == NONE, since, 0.0)
    return Sums(learned, settled, charged, rated, down, waiting + more, since, recent, recent_rated)


def settled(where: Function, sums: Sums, kind: Any, said: Any) -> Sums:
    """The sums once the thumb of an answer has come, or will never come (``docs/proofs.md``, M1).

    Args:
        where: as of ``thumb``.
        sums: before, [B] each.
        kind: [B], of the round that was answered; ``NONE`` leaves all as it is.
        said: [B] in [0, 1], what is learned of it.

    Returns:
        The sums, [B] each.
    """
    one, rated = where((kind == RATED) | (kind == TAKEN), 1.0, 0.0), where(kind == RATED, 1.0, 0.0)
    fades = where(kind == NONE, 1.0, FADES)
    return Sums(
        sums.learned + one,
        sums.settled + one,
        sums.charged + one * said,
        sums.rated + rated,
        sums.down + rated * said,
        sums.waiting - one,
        sums.since + one,
        sums.recent * fades + where(kind == NONE, 0.0, 1.0),
        sums.recent_rated * fades + rated,
    )
