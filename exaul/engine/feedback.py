"""Feedback flags: those of ``exaul sweep``, and those that it shares with ``exaul plan``."""

from dataclasses import fields
from typing import Any

from exaul.engine.checks import (
    BadInput,
    Configuration,
    Many,
    check_count,
    check_holds,
    check_known,
    check_positive,
    setting,
)
from exaul.kernels.feedback import EXPIRES, IMPUTED_ERRORS, Feedback
from exaul.kernels.learners.learner import Learner


class RatingFlags(Configuration):
    """Which answers users rate, and how. Every field is a flag; BadInput names a field that is out of range."""

    feedback_rate: float = setting(
        1.0,
        "probability of feedback on an answer, in (0, 1]; with a bias, on the kind (right or wrong) that gets more",
        "P",
    )
    bias: float = setting(1.0, "wrong answers get feedback X times as often as right ones, X > 0", "X")
    flips: Many[float] = setting(
        (0.0, 0.0),
        "probabilities, of a sum below 1: of negative feedback on a right answer, of positive on a wrong one",
        "P",
    )
    missing: str = setting(
        "skip", "what to learn from an answer without feedback: skip (nothing), wrong or right", "NAME"
    )
    reserve: bool = setting(False, "count an answer as wrong until its feedback arrives")
    uncorrected: bool = setting(False, "aim at alpha even if feedback is biased or flipped")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_holds("feedback_rate", self.feedback_rate, 0 < self.feedback_rate <= 1, "in (0, 1]")
        check_feedback(self.feedback, self.feedback.may_be_missing)

    @property
    def feedback(self) -> Feedback:
        """The fields as the kernels' ``Feedback``."""
        named = {name: getattr(self, name) for name in Feedback._fields if hasattr(self, name)}
        return Feedback(self.feedback_rate, **named)


class FeedbackFlags(RatingFlags):
    """Which answers users rate, how and when. Every field is a flag; BadInput names a field out of range."""

    delay: int = setting(
        0, "mean feedback delay, in questions; after each question it arrives with probability 1 / (N + 1)", "N"
    )
    expires: int = setting(EXPIRES, "number of questions after which feedback is too late", "N")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("delay", self.delay, 0)
        check_count("expires", self.expires)


def describe_feedback(feedback: FeedbackFlags) -> dict[str, str]:
    """Return the fields that differ from perfect feedback, by name, as text for the tables."""
    return {
        f.name: "/".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for f in fields(FeedbackFlags)
        if (value := getattr(feedback, f.name)) != f.default
    }


def describe_waiting(feedback: Feedback, horizon: int) -> str:
    """Return what bounds of R_T require of late feedback, as a clause; empty if nothing.

    A sweep with this feedback and horizon keeps these limits. On other sequences, the bounds hold only within them
    (``docs/proofs.md``, D1 and D2).
    """
    waiting = 0 if feedback.reserve else feedback.most_open(horizon)
    limits = [f"at most {waiting:,} answers wait for feedback"] if waiting else []
    if feedback.delay and feedback.missing != "wrong":
        limits.append(f"no feedback is more than {feedback.expires:,} questions late")
    return f", while {' and '.join(limits)}" if limits else ""


def check_reserve(name: str, learner: Learner[Any]) -> None:
    """Raise BadInput unless a learner can count an answer as wrong until its feedback arrives."""
    if learner.feedback == "bandit" and getattr(learner.rule, "reserve", None) is None:
        raise BadInput(f"reserve: given, but {name} cannot count an answer as wrong until its feedback arrives")


def check_audit(audit: float | None, bias: float, missing: str) -> None:
    """Raise BadInput if the probability of an audit is out of range, or bias or missing contradict it."""
    check_holds("audit", audit, audit is None or 0 < audit <= 1, "in (0, 1]")
    if audit is not None and (bias != 1 or missing != "skip"):
        raise BadInput("audit: given, but all audited answers get feedback; bias must be 1, and missing skip")


def check_feedback(feedback: Feedback, may_be_missing: bool) -> None:
    """Raise BadInput if bias, flips, missing or reserve is out of range, or contradicts another.

    ``may_be_missing`` says whether some answers may never get feedback.
    """
    flips, missing = feedback.flips, feedback.missing
    check_positive("bias", feedback.bias)
    are_probabilities = len(flips) == 2 and all(0 <= p < 1 for p in flips) and sum(flips) < 1
    check_holds("flips", flips, are_probabilities, "two numbers in [0, 1) whose sum is below 1")
    check_known("missing", (missing,), IMPUTED_ERRORS)
    if may_be_missing and feedback.reserve and missing != "wrong":
        raise BadInput(
            "reserve: given, but answers that never get feedback would count as wrong forever; "
            "missing must be wrong"
        )
    if may_be_missing and feedback.corrects_aim and missing != "skip":
        raise BadInput(
            f"missing: {missing!r} found; if the aim corrects biased or flipped feedback, it must be skip"
        )
