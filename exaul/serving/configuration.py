"""The configuration of an Abstainer, and what several have in common."""

import secrets
from collections.abc import Callable
from dataclasses import fields, replace
from inspect import Signature, signature
from typing import Any, Self

from exaul.engine import registry
from exaul.engine.checks import BadInput, Configuration, check_alpha, check_count, check_holds, check_known, setting
from exaul.engine.feedback import check_audit, check_feedback, check_reserve
from exaul.kernels.feedback import EXPIRES, Feedback
from exaul.kernels.learners.learner import Learner

# learners that a program can use: of the types of rules with a copy in ``kernels/online.py``, without a prior
ONLINE_LEARNERS = "aci-rank", "exaul"
LOG_FIELDS = "warm_start", "score", "error", "correct", "drop_missing"  # arguments beside the configuration


class SharedConfiguration(Configuration):
    """What the configurations of several Abstainers have in common."""

    alpha: float = setting(0.1, "target FDR, in (0, 1)", "ALPHA")
    learner: str = setting("aci-rank", "learner: aci-rank, or the paper's exaul, which needs a horizon", "NAME")
    horizon: int | None = setting(None, "number of questions, which sets the rates and lambda of exaul", "T")
    flips: tuple[float, ...] = setting(
        (0.0, 0.0), "probabilities of wrong feedback, whose sum is below 1: on a right answer, on a wrong one", "P"
    )
    bias: float = setting(1.0, "how many times more often wrong answers get feedback than right ones, > 0", "X")
    missing: str = setting("skip", "how an answer without feedback counts: skip, wrong or right", "NAME")
    audit: float | None = setting(
        None,
        "probability of auditing an answer, in (0, 1]; if given, only feedback on audited answers is learned",
        "P",
    )
    expires: int = setting(EXPIRES, "number of questions after which feedback is too late", "N")
    seed: int | None = setting(None, "seed of the draws (default: 64 secret random bits)", "N")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_alpha("alpha", self.alpha)
        check_known("learner", (self.learner,), ONLINE_LEARNERS)
        check_count("expires", self.expires)
        if self.horizon is not None:
            check_count("horizon", self.horizon)
        elif self.learner == "exaul":
            raise BadInput("horizon: missing; exaul needs it for its rates, and for lambda, its square root")
        check_feedback(self.feedback, may_be_missing=True)
        check_audit(self.audit, self.bias, self.missing)
        check_holds("seed", self.seed, 0 <= (self.seed or 0) < 2**64, "an integer from 0 to 2**64 - 1")

    @property
    def feedback(self) -> Feedback:
        """The model of users' feedback."""
        return Feedback(bias=self.bias, flips=self.flips, missing=self.missing)

    @property
    def aim(self) -> float:
        """The error rate of feedback at which the FDR is alpha (``docs/proofs.md``, N1)."""
        return float(self.feedback.aim(self.alpha))


class AbstainerConfiguration(SharedConfiguration):
    """The configuration of one Abstainer."""

    reserve: bool = setting(False, "count an answer as wrong until its feedback arrives")
    key: int = setting(0, "number that separates the draws of several Abstainers with one seed", "N")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reserve:
            check_reserve(self.learner, learner_of(self.learner))
        check_holds("key", self.key, 0 <= self.key < 2**32, "an integer from 0 to 2**32 - 1")

    @classmethod
    def of(cls, source: str, saved: object) -> Self:
        """Return the configuration that was saved in ``source``. Raise BadInput unless all fields are in range."""
        names = [f.name for f in fields(cls)]
        if not isinstance(saved, dict) or sorted(saved) != sorted(names) or saved["seed"] is None:
            raise BadInput(f"{source}: the configuration is incomplete; it must have {', '.join(names)}")
        try:
            return cls(**saved)
        except BadInput as error:
            raise BadInput(f"{source}: {error}") from error

    def with_seed(self) -> Self:
        """Return the configuration, with a secret random seed if it has none."""
        return replace(self, seed=secrets.randbits(64)) if self.seed is None else self

    @property
    def feedback(self) -> Feedback:
        """The model of users' feedback."""
        return super().feedback._replace(reserve=self.reserve)


def with_fields(init: Callable[..., None], configuration: type) -> Signature:
    """Return the signature of a class with the fields in place of ``**configuration``, the main ones first."""
    given = [x for x in signature(init).parameters.values() if x.name not in ("self", "configuration")]
    ranks = {"alpha": 0, "audit": 0} | {x.name: 1 for x in given}
    both = [*signature(configuration).parameters.values(), *given]
    return Signature(sorted(both, key=lambda x: (x.kind, ranks.get(x.name, 2))))


def learner_of(name: str) -> Learner[Any]:
    """Return the learner of a name in ONLINE_LEARNERS."""
    return registry.resolve("learner", name)
