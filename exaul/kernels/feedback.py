"""Imperfect feedback: delayed, missing, biased or flipped.

In the paper, every answer gets its feedback before the next question. Here an answer gets feedback with a
probability that may depend on whether the answer is wrong (bias), some feedback is flipped, and feedback is
delayed. Open answers wait in ``delay`` slots:

    slot    0 | 1 | ... | delay - 1 | delay      each question draws one of delay + 1 slots

The answer in the drawn slot is settled, and the new question takes its place. If the last slot is drawn, the new
answer is settled at once. An answer without feedback is skipped, or treated as wrong or right. ``docs/online.md``
states the guarantees.

The functions use ``where`` and operators only: JAX traces them on arrays, Numba compiles them for scalars. All
shapes are [B] or [], and ``docs/proofs.md``, section 5, defines the terms.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MISSING = {"skip": -1.0, "wrong": 1.0, "right": 0.0}  # value imputed for an answer without feedback
FORGETTING = 1 - 1 / 1024  # factor per answer on older answers, in the share of recent answers with feedback

# Kinds of a round: abstention; answer that gets feedback; answer with an imputed error; answer that is skipped.
ABSTAINED, OBSERVED, IMPUTED, NEVER_LEARNED = 0.0, 1.0, 2.0, 3.0

Function = Callable[..., Any]


class Feedback(NamedTuple):
    """The model of users' feedback, and how a learner treats answers without feedback."""

    rate: float = 1.0  # in (0, 1], probability of feedback on right or wrong answers, whichever is larger
    delay: int = 0  # mean delay in questions, >= 0; feedback comes after each with probability 1 / (delay + 1)
    bias: float = 1.0  # > 0, how many times as often wrong answers get feedback as right ones
    flips: tuple[float, ...] = (0.0, 0.0)  # probabilities of negative feedback if right, positive if wrong
    missing: str = "skip"  # a key of MISSING
    reserve: bool = False  # an open answer counts as wrong in every decision
    uncorrected: bool = False  # aim at alpha in spite of bias and flips

    @property
    def may_be_missing(self) -> bool:
        """Whether some answers never get feedback (``docs/online.md``)."""
        return self.rate < 1 or self.bias != 1

    @property
    def is_biased(self) -> bool:
        """Whether the FDR of answers with feedback differs from that of all answers (``docs/proofs.md``, N1)."""
        return self.bias != 1 or any(self.flips)

    @property
    def corrects_aim(self) -> bool:
        """Whether the aim differs from alpha (``docs/proofs.md``, N1)."""
        return self.is_biased and not self.uncorrected

    @property
    def bounds_risk(self) -> bool:
        """Whether R_T is bounded, since no answer is treated as better than it is (``docs/proofs.md``, D1, D2)."""
        return not self.corrects_aim and self.flips[1] == 0 and (not self.may_be_missing or self.missing == "wrong")

    @property
    def parameters(self) -> NDArray[np.float64]:
        """The array [5] that ``draw_feedback`` reads as ``numbers``."""
        shares = self.rate * min(1.0, 1 / self.bias), self.rate * min(1.0, self.bias)
        return np.array([*shares, *self.flips, MISSING[self.missing]])

    def aim(self, alpha: Any) -> Any:
        """Return the learner's aim in (0, 1), of the shape of alpha (``docs/proofs.md``, N1)."""
        return aim(alpha, self.bias, self.flips) if self.corrects_aim else alpha


PERFECT_FEEDBACK = Feedback()


class FeedbackSums(NamedTuple):
    """Sums over what was learned so far, float64 each."""

    learned: Any  # learned rounds: answers with observed or imputed feedback, and abstentions
    settled: Any  # learned answers
    charged: Any  # sum of their learned errors
    observed: Any  # answers with observed feedback
    observed_errors: Any  # sum of this feedback, 1 if negative
    waiting: Any  # answers whose feedback will be learned later
    since: Any  # answers learned since the last answer was given
    recent: Any  # settled answers, with exponential forgetting
    recent_observed: Any  # those of them with observed feedback


def aim(alpha: Any, bias: float, flips: tuple[float, ...]) -> Any:
    """Compute the share of negative feedback at which the FDR (eq. 2) is alpha (``docs/proofs.md``, N1).

    ``(alpha kappa (1 - r_1) + (1 - alpha) r_0) / (alpha kappa + 1 - alpha)``, where kappa is the bias.

    Args:
        alpha: target FDR in (0, 1), any shape.
        bias: how many times as often wrong answers get feedback as right ones, > 0.
        flips: r_0, the probability of negative feedback on a right answer, and r_1, that of positive feedback on a
            wrong one; their sum is below 1.

    Returns:
        The aim in (0, 1), of the shape of ``alpha``.
    """
    (down, up), wrong = flips, alpha * bias  # r_0, r_1, alpha kappa
    return (wrong * (1 - up) + (1 - alpha) * down) / (wrong + 1 - alpha)


def draw_feedback(where: Function, answered: Any, error: Any, u: Any, numbers: Any) -> tuple[Any, Any]:
    """Draw the feedback on a round (``docs/proofs.md``, N1).

    Args:
        where: ``where(condition, x, y)`` of the caller's arrays.
        answered: bool.
        error: in [0, 1].
        u: the round's uniform in [0, 1).
        numbers: [5]: the probability of feedback on a right and on a wrong answer, of negative feedback on a right
            and of positive feedback on a wrong one (given that there is feedback), and the value imputed for
            missing feedback, -1 if such an answer is skipped.

    Returns:
        The kind of the round (``ABSTAINED``, ``OBSERVED``, ``IMPUTED`` or ``NEVER_LEARNED``), and the error in
        [0, 1] that will be learned.
    """
    # One uniform decides everything:
    #
    #   0            negative             flipped           share                1
    #   | right: negative   | wrong: positive    | feedback = error  | no feedback      |
    #
    # ``share`` is the probability of feedback; for a fractional error it is interpolated.
    share = numbers[0] + (numbers[1] - numbers[0]) * error
    negative = share * numbers[2] * (1.0 - error)
    flipped = negative + share * numbers[3] * error
    imputed = where(numbers[4] < 0.0, 0.0, numbers[4])
    learned_error = where(u < share, where(u < negative, 1.0, where(u < flipped, 0.0, error)), imputed)
    kind = where(u < share, OBSERVED, where(numbers[4] < 0.0, NEVER_LEARNED, IMPUTED))
    return where(answered, kind, ABSTAINED), where(answered, learned_error, 0.0)


def learns_abstention(sums: FeedbackSums, u: Any, numbers: Any) -> Any:
    """Return whether an abstention is learned, with the probability of recent answers (``docs/proofs.md``, M1).

    ``u`` is the round's uniform, and ``numbers`` those of ``draw_feedback``. The result is True as long as every
    answer is learned.
    """
    # Answers without feedback are not learned, so the same share of abstentions is skipped:
    # otherwise abstentions would outweigh answers. The two ones make the first share 1 and avoid 0 / 0.
    return (numbers[4] >= 0.0) | (u < (sums.recent_observed + 1.0) / (sums.recent + 1.0))


def add_abstention(where: Function, sums: FeedbackSums, counts: Any) -> FeedbackSums:
    """Return the sums after an abstention, which is learned if ``counts`` (``docs/proofs.md``, M1)."""
    learned, settled, charged, observed, observed_errors, waiting, since, recent, recent_observed = sums
    learned = learned + where(counts, 1.0, 0.0)
    return FeedbackSums(
        learned, settled, charged, observed, observed_errors, waiting, since, recent, recent_observed
    )


def add_decision(where: Function, sums: FeedbackSums, kind: Any) -> FeedbackSums:
    """Return the sums after the decision of a round of some kind (``docs/proofs.md``, M1)."""
    waits = where((kind == OBSERVED) | (kind == IMPUTED), 1.0, 0.0)
    learned, settled, charged, observed, observed_errors, waiting, since, recent, recent_observed = sums
    since = where(kind == ABSTAINED, since, 0.0)
    return FeedbackSums(
        learned, settled, charged, observed, observed_errors, waiting + waits, since, recent, recent_observed
    )


def settle_answer(where: Function, sums: FeedbackSums, kind: Any, learned_error: Any) -> FeedbackSums:
    """Return the sums after an answer is settled: learned, or known never to be (``docs/proofs.md``, M1).

    ``kind`` is that of the answer's round; ``ABSTAINED`` changes nothing. ``learned_error`` is in [0, 1].
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
