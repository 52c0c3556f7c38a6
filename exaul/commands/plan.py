"""``exaul plan``: print the guarantees of each learner, and the horizon that a better one needs."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from exaul.commands.flags import Command
from exaul.commands.terminal import terminal_width
from exaul.engine import registry
from exaul.engine.checks import MOST, BadInput, check_count, check_holds, setting
from exaul.engine.feedback import RatingFlags, check_audit
from exaul.engine.results.text_table import TextColumn, format_table, wrap
from exaul.kernels.bounds import fdr_bound, risk_from_feedback
from exaul.kernels.feedback import EXPIRES, PERFECT_FEEDBACK, Feedback
from exaul.kernels.game import Rates
from exaul.kernels.learners.learner import Learner, bound_risk
from exaul.kernels.learners.start import start_of

LONGEST = 2**62  # longest horizon that is searched


@dataclass(frozen=True, kw_only=True)
class Plan(RatingFlags):
    """The setting of the guarantees. Every field is a flag of ``exaul plan``."""

    alpha: float = setting(0.05, "target FDR in (0, 1)", "ALPHA")
    horizon: int = setting(30_000, "rounds T", "T")
    arms: int = setting(1000, "number H of thresholds of the grid, at least 2", "H")
    delta: float = setting(0.05, "guarantees hold with probability 1 - delta, in (0, 1)", "DELTA")
    coverage: float = setting(0.5, "share of rounds that are answered, in (0, 1]", "SHARE")
    open: int = setting(0, "largest number of answers that wait for feedback at a time", "N")
    audit: float | None = setting(
        None, "probability of auditing an answer, in (0, 1]; then only audited answers are learned", "P"
    )
    slack: float | None = setting(None, "find the horizon that guarantees an FDR of at most alpha + SLACK", "SLACK")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_holds("alpha", self.alpha, 0 < self.alpha < 1, "in (0, 1)")
        check_holds("horizon", self.horizon, 1 <= self.horizon <= LONGEST, "from 1 to 2**62")
        check_holds("arms", self.arms, 2 <= self.arms < MOST, f"from 2 to {MOST - 1}")
        check_holds("delta", self.delta, 0 < self.delta < 1, "in (0, 1)")
        check_count("open", self.open, 0)
        check_audit(self.audit, self.bias, self.missing)
        if self.audit is not None and self.feedback_rate != 1:
            raise BadInput(f"feedback_rate: {self.feedback_rate} given; with audits it must be 1")
        check_holds("coverage", self.coverage, 0 < self.coverage <= 1, "in (0, 1]")
        if self.slack is not None:
            check_holds("slack", self.slack, 0 < self.slack < math.inf, "a finite number > 0")

    @property
    def feedback(self) -> Feedback:
        """The fields as the kernels' ``Feedback``; audits are feedback at their rate."""
        return super().feedback._replace(rate=self.feedback_rate if self.audit is None else self.audit)

    @property
    def perfect(self) -> bool:
        """Whether each answer is rated, correctly and before the next question."""
        return self.feedback == PERFECT_FEEDBACK and self.open == 0

    @property
    def always(self) -> bool:
        """Whether bounds of R_T hold on every sequence, whoever rates."""
        return self.feedback.bounds_risk(self.horizon)

    @property
    def most_open(self) -> int:
        """The largest number of open answers whose feedback, or imputed error, is still to be learned."""
        return self.feedback.most_open(self.horizon) if self.imputes else self.open

    @property
    def imputes(self) -> bool:
        """Whether answers without feedback are learned when they expire."""
        return self.feedback.may_be_missing and self.feedback.missing != "skip"


class FdrBound(NamedTuple):
    """The guaranteed FDR at T: ``alpha + abstaining + learning``.

    For the paper's learners it holds with probability 1 - delta, at lambda = sqrt(T). For learners with a bound of
    R_T it holds on every sequence; if only some answers get feedback, with probability 1 - delta
    (``docs/proofs.md``).
    """

    fdr: float
    abstaining: float  # 1 / lambda: cost of the weight of abstaining (eq. 6)
    learning: float  # (1 + lambda) Reg / (lambda answered), or the bound of R_T / answered

    @property
    def larger(self) -> str:
        """The name of the larger term."""
        return "learning" if self.learning > self.abstaining else "abstaining"


def learners() -> dict[str, Learner[Any]]:
    """Return the learners that learn and have a guarantee, by name."""
    found = {name: registry.load_object(place) for name, place in registry.LEARNERS.items()}
    return {name: one for name, one in found.items() if one.feedback != "none" and (_risks(one) or _proved(one))}


def _proved(learner: Learner[Any]) -> bool:
    return learner.rates is not None and learner.regret_bounds is not None


def _risks(learner: Learner[Any]) -> bool:
    return learner.risk_bound is not None


def regret(
    learner: Learner[Any], bound: str, horizon: int, arms: int, delta: float, alpha: float, lam: float
) -> float:
    """Return a bound of the regret at T with the learner's rates; ``bound`` is a field of ``RegretBounds``."""
    assert learner.rates is not None
    eta, gamma = learner.rates(horizon, arms)
    rates = np.array([eta]), np.array([np.nan if gamma is None else gamma])
    return float(getattr(learner.regret_bounds, bound)(*rates, np.array([horizon]), arms, delta, alpha, lam))


def promise(learner: Learner[Any], plan: Plan) -> FdrBound:
    """Return the guarantee of a learner: from its bound of R_T, else from its bound of the regret."""
    answered = plan.coverage * plan.horizon
    if learner.risk_bound is not None:
        rates = (learner.rates or learner.anytime or (lambda horizon, arms: Rates(np.nan, None)))(
            plan.horizon, plan.arms
        )
        each = Rates(*(np.array([np.nan if x is None else x]) for x in rates))
        start, _ = start_of(learner.rule, 2, [plan.alpha])  # without a log; the state does not depend on H
        rounds = answered + _weight_of_abstentions(plan)
        bound = bound_risk(
            learner,
            each,
            np.array([plan.horizon]),
            rounds,
            answered,
            plan.arms,
            plan.feedback.aim(plan.alpha),
            start,
        )
        risk = risk_of_all(plan, float(np.ravel(bound)[0]), plan.delta)
        return FdrBound(plan.alpha + risk / answered, 0.0, risk / answered)
    lam = math.sqrt(plan.horizon)
    bound = regret(learner, "abstaining", plan.horizon, plan.arms, plan.delta, plan.alpha, lam)
    fdr = float(fdr_bound(answered, bound, plan.alpha, lam))
    return FdrBound(fdr, 1 / lam, fdr - plan.alpha - 1 / lam)


def _weight_of_abstentions(plan: Plan) -> float:
    """Return the largest total weight of the abstentions: each has that of the share of answers that are learned.

    The share is known only if answers are audited; otherwise it is an estimate, which may be 1.
    """
    return (1.0 if plan.audit is None else plan.audit) * (1 - plan.coverage) * plan.horizon


def risk_of_all(plan: Plan, bound: float, delta: float) -> float:
    """Return the bound of R_T of all answers, from that of the learned feedback if none is delayed."""
    feedback, answered = plan.feedback, plan.coverage * plan.horizon
    # open answers add at most 1 - alpha each
    pending = 0 if feedback.reserve else min(plan.most_open, answered)
    if plan.always:
        return bound + pending * (1 - plan.alpha)
    if plan.imputes or (feedback.uncorrected and feedback.is_biased):
        return math.inf
    # only some answers get feedback: the bound holds with probability 1 - delta
    return float(risk_from_feedback(bound, answered, pending, plan.alpha, delta, feedback))


def shortest(learner: Learner[Any], plan: Plan) -> int | None:
    """Return the smallest T from which on the guarantee is at most alpha + slack; None if it exceeds LONGEST."""
    assert plan.slack is not None
    most = plan.alpha + plan.slack

    def holds(horizon: int) -> bool:
        return promise(learner, replace(plan, horizon=horizon)).fdr <= most

    if not holds(LONGEST):
        return None
    low, high = 0, LONGEST  # the guarantee improves with T: it fails at low and holds at high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def conditions(plan: Plan) -> Iterator[str]:
    """Yield what the guarantees require, one sentence for each requirement (``docs/proofs.md``, section 5)."""
    feedback = plan.feedback
    yield f"at least a share {plan.coverage} of the rounds is answered"
    yield "rates are the default ones" + (", and lambda is sqrt(T)" if plan.perfect else "")
    if plan.audit is not None:
        yield f"each answer is audited with probability {plan.audit}, and each audit has a result"
    elif not plan.always:
        right, wrong, *_ = feedback.parameters()
        yield f"right answers are rated with probability {right}, wrong ones with {wrong}, whatever happened before"
    elif not feedback.may_be_missing:
        yield "each answer is rated"
    if not any(feedback.flips):
        yield "feedback is correct"
    elif plan.always:
        yield "no wrong answer is rated as right"
    else:
        down, up = feedback.flips
        yield f"rated right answers get a thumb down with probability {down}, wrong ones a thumb up with {up}"
    if feedback.is_biased and not plan.always:
        yield "each answer is right or wrong, and no rating is between"
    if plan.imputes:
        yield f"answers without feedback count as {feedback.missing} after {EXPIRES:,} questions (`expires`)"
    elif not plan.open:
        yield "feedback comes before the next question"
    else:
        if not feedback.reserve:
            yield f"at most {plan.open:,} answers at a time wait for feedback"
        if feedback.missing != "wrong":
            yield f"no feedback comes more than {EXPIRES:,} questions late (`expires`)"
    yield "no answer is withdrawn" + (" after its feedback" if plan.always else "")


def rounded_up(value: float) -> str:
    """Return a number as text with four decimals that is not below it."""
    text = f"{value:.4f}"
    return text if float(text) >= value else f"{value + 1e-4:.4f}"


def main(given: Mapping[str, Any]) -> int:
    """Print the guarantee of each learner and, with ``slack``, the horizon that it needs."""
    config = Plan(**given)
    if config.slack is not None and config.alpha + config.slack >= 1:
        raise BadInput(f"slack: {config.slack} found; alpha + slack must be below 1")
    shown = {name: x for name, x in learners().items() if config.perfect or _risks(x)}
    left_out = [name for name in learners() if name not in shown]
    width = terminal_width()
    # numbers of the user are printed as given, because a rounded condition may be a weaker one
    head = (
        f"at alpha = {config.alpha}, T = {config.horizon:,}, H = {config.arms:,}, "
        f"a share {config.coverage} answered: "
        "FDR at most alpha + abstaining + learning"
    )
    print(f"{wrap(head, width)}\n\n{format_table(_columns(config, shown), width)}")
    if left_out:
        text = f"Nothing is proved for {', '.join(left_out)} under imperfect feedback (docs/promises.md)."
        print(f"\n{wrap(text, width)}")
    print(
        "",
        *(wrap(text, width) for text in ("Each guarantee holds if", *(f"- {x}" for x in conditions(config)))),
        sep="\n",
    )
    end = "A guarantee of 1 or more is empty. It covers the worst sequence; the FDR in practice is far smaller."
    print(f"\n{wrap(end, width)}")
    return 0


def _columns(plan: Plan, shown: Mapping[str, Learner[Any]]) -> list[TextColumn]:
    """Return the columns of the guarantees, one line per learner."""
    guarantees = [promise(learner, plan) for learner in shown.values()]
    always = [plan.always and _risks(learner) for learner in shown.values()]
    holds = ["on every sequence" if x else f"with probability 1 - {plan.delta}" for x in always]
    columns = [
        TextColumn("learner", list(shown), 3, is_name=True),
        TextColumn("abstaining", [rounded_up(x.abstaining) for x in guarantees], 1),
        TextColumn("learning", [rounded_up(x.learning) for x in guarantees], 1),
        TextColumn("FDR at most", [rounded_up(x.fdr) for x in guarantees], 3),
        TextColumn("larger term", [x.larger for x in guarantees], 0, is_name=True),
        TextColumn("holds", holds, 3, is_name=True),
    ]
    if plan.slack is None:
        return columns
    horizons = [shortest(learner, plan) for learner in shown.values()]
    texts = ["none" if x is None else f"{x:,}" for x in horizons]
    return [*columns, TextColumn(f"T for alpha + {plan.slack}", texts, 2)]


COMMANDS = {"plan": Command((Plan,), main)}
