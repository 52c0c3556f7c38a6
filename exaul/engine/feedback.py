"""How users rate answers: the fields that a sweep and a plan share."""

from dataclasses import dataclass, fields
from typing import Any

from exaul.engine.checks import (
    BadInput,
    Configuration,
    check_count,
    check_holds,
    check_known,
    check_positive,
    setting,
)
from exaul.kernels.feedback import MISSING, Feedback
from exaul.kernels.learners.learner import Learner


@dataclass(frozen=True, kw_only=True)
class FeedbackFlags(Configuration):
    """How users rate answers. Every field is a flag of ``exaul sweep`` and of ``exaul plan``.

    Raises:
        BadInput: a field is out of its range; the sentence names it.
    """

    feedback_rate: float = setting(
        1.0,
        "probability that an answer gets a thumb, in (0, 1]; with a bias, one of the kind that is rated more",
        "P",
    )
    delay: int = setting(
        0, "questions that a thumb is late in the mean; after each it comes with probability 1 / (N + 1)", "N"
    )
    bias: float = setting(1.0, "how many times as often wrong answers are rated as right ones, > 0", "X")
    flips: tuple[float, ...] = setting(
        (0.0, 0.0), "how probable a thumb down is on a right answer, and a thumb up on a wrong one", "P"
    )
    missing: str = setting("skip", "what an answer without a thumb is taken for: skip, wrong or right", "NAME")
    reserve: bool = setting(False, "let an answer count as wrong until its thumb comes")
    uncorrected: bool = setting(False, "let learners aim at alpha, whatever bias and flips are")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_holds("feedback_rate", self.feedback_rate, 0 < self.feedback_rate <= 1, "in (0, 1]")
        check_count("delay", self.delay, 0)
        check_feedback(self.feedback, self.feedback.may_be_missing)

    @property
    def feedback(self) -> Feedback:
        """The same, for the kernels."""
        flips = tuple(self.flips)
        return Feedback(
            self.feedback_rate, self.delay, self.bias, flips, self.missing, self.reserve, self.uncorrected
        )


def describe_feedback(feedback: FeedbackFlags) -> dict[str, str]:
    """The fields that are not those of perfect feedback, by name, as tables name an environment's values."""
    found = {f.name: (getattr(feedback, f.name), f.default) for f in fields(FeedbackFlags)}
    return {
        name: "/".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for name, (value, usual) in found.items()
        if value != usual
    }


def check_reserve(name: str, learner: Learner[Any]) -> None:
    """Check that a learner can count an answer as wrong until its feedback comes.

    Raises:
        BadInput: it cannot.
    """
    if learner.feedback == "bandit" and getattr(learner.rule, "reserve", None) is None:
        raise BadInput(f"reserve: given, but {name} has no way to count an answer as wrong until its thumb comes")


def check_feedback(feedback: Feedback, silent: bool) -> None:
    """Check what users' feedback are like, and what is made of those that do not come.

    Args:
        feedback: bias, flips, missing and reserve are checked.
        silent: whether some answers may never get a thumb.

    Raises:
        BadInput: one is out of its range, or they do not go together.
    """
    flips, missing = feedback.flips, feedback.missing
    check_positive("bias", feedback.bias)
    good = len(flips) == 2 and all(0 <= p < 1 for p in flips) and sum(flips) < 1
    check_holds("flips", flips, good, "two numbers in [0, 1) whose sum is below 1")
    check_known("missing", (missing,), MISSING)
    if silent and feedback.reserve and missing != "wrong":
        raise BadInput(
            "reserve: given, but answers that never get a thumb would count as wrong for ever; "
            "missing must be wrong"
        )
    if silent and feedback.corrects_aim and missing != "skip":
        raise BadInput(
            f"missing: {missing!r} found; where the aim makes up for thumbs that are biased or lie, it must be skip"
        )
