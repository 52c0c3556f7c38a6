"""The guaranteed FDR of a learner at T, and the T that a better one needs."""

import math
from bisect import bisect_left
from typing import Any, NamedTuple

import numpy as np

from exaul.kernels.bounds import fdr_bound, risk_from_feedback
from exaul.kernels.feedback import PERFECT_FEEDBACK, Feedback
from exaul.kernels.game import Rates
from exaul.kernels.learners.learner import Learner, start_of

LONGEST_HORIZON = 2**62  # longest horizon that is searched; an int64 holds it


class GuaranteeCase(NamedTuple):
    """The case for which a guarantee is computed."""

    alpha: float  # in (0, 1), target FDR
    horizon: int  # T in 1..LONGEST_HORIZON
    arms: int  # H >= 2
    delta: float  # in (0, 1)
    coverage: float  # in (0, 1], share of the rounds that are answered
    feedback: Feedback  # audits are feedback at their rate
    open: int = 0  # largest number of answers that wait for feedback at a time
    audit: float | None = None  # probability of an audit, if only audited answers are learned
    start: float | None = None  # in [0, 1], share of the questions that a learner with ``fit`` answers first

    @property
    def answered(self) -> float:
        """The number of answers."""
        return self.coverage * self.horizon

    @property
    def is_perfect(self) -> bool:
        """Whether each answer gets correct feedback before the next question."""
        return self.feedback == PERFECT_FEEDBACK and self.open == 0

    @property
    def is_certain(self) -> bool:
        """Whether bounds of R_T hold on every sequence, whoever gives feedback."""
        return self.feedback.bounds_risk(self.horizon)

    @property
    def imputes(self) -> bool:
        """Whether answers without feedback are learned when they expire."""
        return self.feedback.may_be_missing and self.feedback.missing != "skip"


class FdrBound(NamedTuple):
    """The guaranteed FDR at T: ``alpha + abstaining + learning``.

    For the paper's learners it holds with probability 1 - delta, at lambda = sqrt(T). For learners with a bound of
    R_T it holds on every sequence, or with probability 1 - delta if only some answers get feedback
    (``docs/proofs.md``).
    """

    fdr: float
    abstaining: float  # 1 / lambda: cost of the weight of abstaining (eq. 6)
    learning: float  # (1 + lambda) Reg / (lambda answered), or the bound of R_T / answered


def regret(
    learner: Learner[Any], bound: str, horizon: int, arms: int, delta: float, alpha: float, lam: float
) -> float:
    """Return a bound of the regret at T with the learner's rates; ``bound`` is a field of ``RegretBounds``."""
    assert learner.rates is not None
    eta, gamma = learner.rates(horizon, arms)
    rates = np.array([eta, gamma], np.float64)[:, None]  # NaN in place of None
    return float(getattr(learner.regret_bounds, bound)(*rates, np.array([horizon]), arms, delta, alpha, lam))


def guarantee(learner: Learner[Any], case: GuaranteeCase) -> FdrBound:
    """Return the guarantee of a learner: from its bound of R_T, else from its bound of the regret (eq. 6)."""
    if learner.risk_bound is None:
        lam = math.sqrt(case.horizon)
        bound = regret(learner, "abstaining", case.horizon, case.arms, case.delta, case.alpha, lam)
        fdr = float(fdr_bound(case.answered, bound, case.alpha, lam))
        return FdrBound(fdr, 1 / lam, fdr - case.alpha - 1 / lam)
    assert learner.rates is not None
    rates = Rates(*np.array(learner.rates(case.horizon, case.arms), np.float64)[:, None])  # NaN in place of None
    state = start_of(learner.rule, 2, [case.alpha]).state  # without a log; the state does not depend on H
    if case.start is not None and getattr(learner.rule, "fit", None) is not None:
        state = state._replace(share=np.array([case.start]))
    # An abstention has the weight of the share of answers that are learned, which is known only if answers are
    # audited; otherwise it is an estimate, which may be 1.
    t = case.answered + (1.0 if case.audit is None else case.audit) * (case.horizon - case.answered)
    aim = case.feedback.aim(case.alpha)
    bound = learner.risk_bound(rates.eta, t, case.answered, aim, state)
    risk = risk_of_all(case, float(np.ravel(bound)[0]))
    return FdrBound(case.alpha + risk / case.answered, 0.0, risk / case.answered)


def risk_of_all(case: GuaranteeCase, bound: float) -> float:
    """Return the bound of R_T of all answers from ``bound``, that of the learned feedback without delay."""
    # open answers, whose feedback or imputed error is still to be learned, add at most 1 - alpha each
    open_answers = case.feedback.most_open(case.horizon) if case.imputes else case.open
    pending = 0 if case.feedback.reserve else min(open_answers, case.answered)
    if case.is_certain:
        return bound + pending * (1 - case.alpha)
    if case.imputes or (case.feedback.uncorrected and case.feedback.is_biased):
        return math.inf
    # only some answers get feedback: the bound holds with probability 1 - delta
    return float(risk_from_feedback(bound, case.answered, pending, case.alpha, case.delta, case.feedback))


def shortest(learner: Learner[Any], case: GuaranteeCase, slack: float) -> int | None:
    """Return the smallest T from which on the guarantee is at most alpha + slack, or None above LONGEST_HORIZON."""

    def is_guaranteed(horizon: int) -> bool:
        return guarantee(learner, case._replace(horizon=horizon)).fdr <= case.alpha + slack

    horizon = bisect_left(range(LONGEST_HORIZON), True, lo=1, key=is_guaranteed)  # the guarantee improves with T
    return horizon if is_guaranteed(horizon) else None
