"""Imperfect feedback: delayed, missing, biased or flipped, and what a learner may conclude from it.

In the paper, every answer gets its feedback before the next question. Here an answer gets feedback with a
probability that may depend on whether the answer is wrong (bias), some feedback is flipped, and feedback is
delayed. An answer is *open* until its feedback arrives or it expires. An answer that expires is skipped, or treated
as wrong or right. The guarantees are in ``docs/promises.md``.

A simulation draws the feedback (``draw_feedback``). ``Abstainer`` calls the other functions too, which read only
what any program sees. All use ``where`` and operators only, so that JAX traces them and a program calls them on
floats. Shapes are [B] or [], and ``docs/proofs.md``, section 5, defines the terms.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from exaul.kernels.game import Array

IMPUTED_ERRORS = {"skip": -1.0, "wrong": 1.0, "right": 0.0}  # the error learned when an answer expires; -1: none
FORGETTING = 1 - 1 / 1024  # factor of older counts per answer (chosen), see ``learned_share``
EXPIRES = 100_000  # questions after which feedback is too late, unless configured (chosen)

# State of a question: closed (an abstention, or an answer that is no longer open), or an open answer that will get
# feedback or not. A program cannot tell the last two apart.
CLOSED, WITH_FEEDBACK, WITHOUT_FEEDBACK = 0.0, 1.0, 2.0

Function = Callable[..., Any]  # ``where(condition, x, y)``, of NumPy, of JAX or of floats


class FeedbackParameters(NamedTuple):
    """The numbers of the feedback model that kernels read."""

    right_rate: Array  # in [0, 1], probability of feedback on a right answer
    wrong_rate: Array  # in [0, 1], the same for a wrong one
    right_flip: Array  # in [0, 1), probability that feedback on a right answer is negative
    wrong_flip: Array  # in [0, 1), probability that feedback on a wrong answer is positive
    imputed: Array  # the error learned when an answer expires: a value of IMPUTED_ERRORS
    expires: Array  # questions after which feedback is too late, >= 1


class Feedback(NamedTuple):
    """The model of users' feedback, and how a learner treats answers without feedback."""

    rate: float = 1.0  # in (0, 1], probability of feedback on right or wrong answers, whichever is larger
    delay: int = 0  # mean delay in questions, >= 0: it comes after each with probability 1 / (delay + 1)
    bias: float = 1.0  # > 0, how many times as often wrong answers get feedback as right ones
    flips: tuple[float, ...] = (0.0, 0.0)  # probabilities, in [0, 1): negative feedback if right, positive if wrong
    missing: str = "skip"  # a key of IMPUTED_ERRORS
    reserve: bool = False  # an open answer counts as wrong in every decision
    uncorrected: bool = False  # aim at alpha in spite of bias and flips
    expires: int = EXPIRES  # questions after which feedback is too late, >= 1

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
    def remembers_questions(self) -> bool:
        """Whether an answer that will not get feedback is remembered until it expires."""
        return self.missing != "skip" or self.reserve

    def bounds_risk(self, horizon: int) -> bool:
        """Return whether R_T is bounded: no answer is treated as better than it is (``docs/proofs.md``, D1, D2)."""
        honest = not self.corrects_aim and self.flips[1] == 0
        may_expire = self.expires < horizon and self.delay > 0
        return honest and (self.missing == "wrong" or not (self.may_be_missing or may_expire))

    def most_open(self, horizon: int) -> int:
        """Return the largest number of open answers when a question is decided, D (``docs/proofs.md``, D1)."""
        return min(self.expires if self.may_be_missing else self.delay, self.expires, horizon)

    def capacity(self, horizon: int) -> int:
        """Return how many answers a simulation stores: those that wait, or all that may be open."""
        return min(self.expires + 1, horizon) if self.remembers_questions else self.delay + 1

    def parameters(self) -> FeedbackParameters:
        """Return the numbers that kernels read."""
        rates = self.rate * min(1.0, 1 / self.bias), self.rate * min(1.0, self.bias)
        return FeedbackParameters(*map(float, (*rates, *self.flips, IMPUTED_ERRORS[self.missing], self.expires)))

    def aim(self, alpha: Array) -> Array:
        """Return the learner's aim in (0, 1), of the shape of alpha (``docs/proofs.md``, N1)."""
        return aim(alpha, self.bias, self.flips) if self.corrects_aim else alpha


PERFECT_FEEDBACK = Feedback()


class FeedbackSums(NamedTuple):
    """What a program knows of its questions and answers so far, float64 each."""

    questions: Array  # number of questions
    # learned rounds: answers with feedback, expired answers with an imputed error, and abstentions by their weight
    learned: Array
    settled: Array  # learned answers
    learned_errors: Array  # sum of their errors as learned
    observed: Array  # answers with feedback
    observed_errors: Array  # sum of this feedback, 1 if negative
    open: Array  # open answers; in simulations only if ``Feedback.remembers_questions``
    since: Array  # answers learned since the last answer was given
    recent_answers: Array  # answers, with exponential forgetting
    recent_learned: Array  # learned answers, with the same forgetting


def aim(alpha: Array, bias: float, flips: tuple[float, ...]) -> Array:
    """Compute the share of negative feedback at which the FDR (eq. 2) is alpha (``docs/proofs.md``, N1).

    ``(alpha kappa (1 - r_1) + (1 - alpha) r_0) / (alpha kappa + 1 - alpha)``, where kappa is the bias and r_0, r_1
    the flips of ``Feedback``, with a sum below 1. It is in (0, 1) and of the shape of alpha.
    """
    (right_flip, wrong_flip), wrong = flips, alpha * bias  # r_0, r_1, alpha kappa
    return (wrong * (1 - wrong_flip) + (1 - alpha) * right_flip) / (wrong + 1 - alpha)


def draw_feedback(where: Function, error: Array, u: Array, parameters: FeedbackParameters) -> tuple[Array, Array]:
    """Draw the feedback on an answer with an error in [0, 1] (``docs/proofs.md``, N1), from u uniform in [0, 1).

    Return ``WITH_FEEDBACK`` (1) or ``WITHOUT_FEEDBACK`` (2), and the error in [0, 1] that the feedback reports.
    """
    # One uniform decides everything:
    #
    #   0            negative             flipped           rate                 1
    #   | right: negative   | wrong: positive    | feedback = error  | no feedback      |
    #
    # ``rate`` is the probability of feedback; for a fractional error it is interpolated.
    rate = parameters.right_rate + (parameters.wrong_rate - parameters.right_rate) * error
    negative = rate * parameters.right_flip * (1.0 - error)
    flipped = negative + rate * parameters.wrong_flip * error
    return where(u < rate, WITH_FEEDBACK, WITHOUT_FEEDBACK), where(
        u < negative, 1.0, where(u < flipped, 0.0, error)
    )


def learned_share(where: Function, sums: FeedbackSums) -> Array:
    """Estimate the probability with which recent answers are learned; it is the weight of an abstention, at most 1.

    It is the number of recently learned answers over the number of recent answers (``docs/proofs.md``, M1). If only
    2% of the answers are learned, but every abstention, abstentions outweigh answers. The estimate uses what a
    program sees: that an answer was given, and that one was learned, at any later time. A delay shifts the second
    count but does not change its rate. The 1 that is added to both counts makes the first share 1, avoids 0 / 0,
    and keeps the share above 0. After a burst of late feedback the quotient is above 1, which no probability is.
    """
    share = (sums.recent_learned + 1.0) / (sums.recent_answers + 1.0)
    return where(share < 1.0, share, 1.0)


def add_decision(where: Function, sums: FeedbackSums, answered: Array) -> FeedbackSums:
    """Return the sums after a decision (``docs/proofs.md``, M1)."""
    answer, fades = where(answered, 1.0, 0.0), where(answered, FORGETTING, 1.0)
    return sums._replace(
        questions=sums.questions + 1.0,
        open=sums.open + answer,
        since=where(answered, 0.0, sums.since),
        recent_answers=sums.recent_answers * fades + answer,
        recent_learned=sums.recent_learned * fades,
    )


def add_abstention(where: Function, sums: FeedbackSums, abstained: Array, weight: Array) -> FeedbackSums:
    """Return the sums after an abstention, if ``abstained``, was learned with a weight (``docs/proofs.md``, M1)."""
    return sums._replace(learned=sums.learned + where(abstained, weight, 0.0))


def add_answer(where: Function, sums: FeedbackSums, learns: Array, observed: Array, error: Array) -> FeedbackSums:
    """Return the sums after an answer was learned, if ``learns`` (``docs/proofs.md``, M1).

    ``observed`` says whether ``error`` in [0, 1] is feedback or imputed.
    """
    answer, feedback = where(learns, 1.0, 0.0), where(learns & observed, 1.0, 0.0)
    return sums._replace(
        learned=sums.learned + answer,
        settled=sums.settled + answer,
        learned_errors=sums.learned_errors + answer * error,
        observed=sums.observed + feedback,
        observed_errors=sums.observed_errors + feedback * error,
        since=sums.since + answer,
        recent_learned=sums.recent_learned + answer,
    )


def close_answer(where: Function, sums: FeedbackSums, closes: Array) -> FeedbackSums:
    """Return the sums after an answer is closed, if ``closes``."""
    return sums._replace(open=sums.open - where(closes, 1.0, 0.0))
