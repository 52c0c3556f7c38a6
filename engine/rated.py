"""How users rate answers: the fields that a sweep and a plan share."""

from collections.abc import Sequence
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
        check_thumbs(self.bias, self.flips, self.missing)
        if self.reserve and self.thumbs.silent and self.missing != "wrong":
            raise BadInput(
                "reserve: given, but answers that never get a thumb would count as wrong for ever; --missing wrong"
            )
        if self.thumbs.corrected and self.thumbs.silent:
            check_aim(self.bias, self.flips, self.missing)

    @property
    def thumbs(self) -> Thumbs:
        """The same, for the kernels."""
        down, up = self.flips
        return Thumbs(self.rated, self.delay, self.bias, (down, up), self.missing, self.reserve, self.uncorrected)


def described(thumbs: Rated) -> dict[str, str]:
    """The fields that are not those of perfect thumbs, by name, as tables name a world's values."""
    found = {f.name: (getattr(thumbs, f.name), f.default) for f in fields(Rated)}
    return {
        name: "/".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for name, (value, usual) in found.items()
        if value != usual
    }


def check_aim(bias: float, flips: Sequence[float], missing: str) -> None:
    """Check that an aim can make up for bias and lies: that no answer is taken for what it may not be.

    Raises:
        BadInput: answers without a thumb are taken for wrong or right.
    """
    if missing != "skip" and (bias != 1 or any(flips)):
        raise BadInput(
            f"missing: {missing!r} found; where the aim makes up for thumbs that are biased or lie, it must be skip"
        )


def check_reserve(name: str, learner: Learner[Any]) -> None:
    """Check that a learner can count an answer as wrong until its thumb comes.

    Raises:
        BadInput: it cannot.
    """
    if learner.feedback == "bandit" and getattr(learner.rule, "reserve", None) is None:
        raise BadInput(f"reserve: given, but {name} has no way to count an answer as wrong until its thumb comes")


def check_thumbs(bias: float, flips: Sequence[float], missing: str) -> None:
    """Check how answers are rated, of the fields of the same names.

    Raises:
        BadInput: one is out of its range.
    """
    positive("bias", bias)
    good = len(flips) == 2 and all(0 <= p < 1 for p in flips) and sum(flips) < 1
    within("flips", tuple(flips), good, "two numbers in [0, 1) whose sum is below 1")
    known("missing", (missing,), MISSING)
