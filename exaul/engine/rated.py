"""How users rate answers: the fields that a sweep and a plan share."""

from dataclasses import dataclass, fields
from typing import Any

from exaul.engine.checks import BadInput, Configuration, count, known, positive, setting, within
from exaul.kernels.learners.learner import Learner
from exaul.kernels.thumbs import MISSING, Thumbs


@dataclass(frozen=True, kw_only=True)
class Rated(Configuration):
    """How users rate answers. Every field is a flag of ``exaul sweep`` and of ``exaul plan``.

    Raises:
        BadInput: a field is out of its range; the sentence names it.
    """

    rated: float = setting(
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
        within("rated", self.rated, 0 < self.rated <= 1, "in (0, 1]")
        count("delay", self.delay, 0)
        check_thumbs(self.thumbs, self.thumbs.silent)

    @property
    def thumbs(self) -> Thumbs:
        """The same, for the kernels."""
        flips = tuple(self.flips)
        return Thumbs(self.rated, self.delay, self.bias, flips, self.missing, self.reserve, self.uncorrected)


def described(thumbs: Rated) -> dict[str, str]:
    """The fields that are not those of perfect thumbs, by name, as tables name a world's values."""
    found = {f.name: (getattr(thumbs, f.name), f.default) for f in fields(Rated)}
    return {
        name: "/".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for name, (value, usual) in found.items()
        if value != usual
    }


def check_reserve(name: str, learner: Learner[Any]) -> None:
    """Check that a learner can count an answer as wrong until its thumb comes.

    Raises:
        BadInput: it cannot.
    """
    if learner.feedback == "bandit" and getattr(learner.rule, "reserve", None) is None:
        raise BadInput(f"reserve: given, but {name} has no way to count an answer as wrong until its thumb comes")


def check_thumbs(thumbs: Thumbs, silent: bool) -> None:
    """Check what users' thumbs are like, and what is made of those that do not come.

    Args:
        thumbs: bias, flips, missing and reserve are checked.
        silent: whether some answers may never get a thumb.

    Raises:
        BadInput: one is out of its range, or they do not go together.
    """
    flips, missing = thumbs.flips, thumbs.missing
    positive("bias", thumbs.bias)
    good = len(flips) == 2 and all(0 <= p < 1 for p in flips) and sum(flips) < 1
    within("flips", flips, good, "two numbers in [0, 1) whose sum is below 1")
    known("missing", (missing,), MISSING)
    if silent and thumbs.reserve and missing != "wrong":
        raise BadInput(
            "reserve: given, but answers that never get a thumb would count as wrong for ever; "
            "missing must be wrong"
        )
    if silent and thumbs.corrected and missing != "skip":
        raise BadInput(
            f"missing: {missing!r} found; where the aim makes up for thumbs that are biased or lie, it must be skip"
        )
