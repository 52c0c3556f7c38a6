"""Rivals: learners of other papers that ``beyond`` compares, by ``experiments.rivals:NAME``."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import betainc, xlogy

from exaul.kernels.game import BLOCK, Rates, RuleParams
from exaul.kernels.learners.learner import Learner, Own, Ranked
from exaul.kernels.play import Decision

DELTA = 0.05  # a certificate holds with probability 1 - delta
ROUNDING = 1e-9  # in wrong answers: a sum of errors this little above a limit counts as equal to it


@jax.tree_util.register_static
@dataclass(frozen=True)
class OneThreshold:
    """A learner of one game on H arms, which before each block chooses an arm by the labels so far.

    Attributes:
        arms: H.
        labels: returns for H the state before round 1: the field ``arm``, and ``add(cut, error, is_seen)``.
        choose: returns for a state, the parameters and H the arm of the next block.
        sees_all: whether it also sees the labels of rounds without an answer.
    """

    arms: int
    labels: Callable[[int], Any]
    choose: Callable[[Any, RuleParams, int], Any]
    sees_all: bool = False

    def init(self, start: Any) -> Any:
        """Return the state before round 1."""
        return self.labels(self.arms)

    def reweigh(self, state: Any, params: RuleParams) -> Any:
        """Return the state with the arm of the next block."""
        return state._replace(arm=self.choose(state, params, self.arms))

    def decide(self, state: Any, params: RuleParams, cut: Any, u: Any) -> tuple[Any, Decision]:
        """Answer if the score reaches the threshold."""
        answer = state.arm < cut
        return state, Decision(answer, answer.astype(jnp.float64))

    def learn(self, state: Any, params: RuleParams, cut: Any, decision: Decision, error: Any) -> Any:
        """Return the state with the label of a round, if it is seen."""
        return state.add(cut, error, decision.answer | self.sees_all)

    def distribution(self, state: Any, params: RuleParams) -> jax.Array:
        """Return all probability on the threshold, [H]."""
        return jax.nn.one_hot(state.arm, self.arms, dtype=jnp.float64)


class LabelCounts(NamedTuple):
    """The arm in use, and the labels of a copy, counted by cut."""

    arm: Any  # [] int32
    is_fractional: Any  # [] bool, whether some error was neither 0 nor 1
    count: Any  # [H] labels
    wrong: Any  # [H] sums of their errors

    def add(self, cut: Any, error: Any, is_seen: Any) -> "LabelCounts":
        """Return the counts with one more label, if it is seen."""
        return self._replace(
            is_fractional=self.is_fractional | (is_seen & (error > 0) & (error < 1)),
            count=self.count.at[cut].add(jnp.where(is_seen, 1.0, 0.0)),
            wrong=self.wrong.at[cut].add(jnp.where(is_seen, error, 0.0)),
        )

    def answered(self) -> tuple[Any, Any]:
        """Return the number of labels above each threshold but the last, and the sums of their errors, [H - 1]."""
        count, wrong = (jnp.sum(x) - jnp.cumsum(x)[:-1] for x in (self.count, self.wrong))
        return count, wrong

    def lowest(self, qualifies: Any) -> Any:
        """Return the lowest threshold that ``qualifies`` [H - 1], or the last arm, which answers nothing."""
        return jnp.where(jnp.any(qualifies), jnp.argmax(qualifies), self.count.size - 1).astype(jnp.int32)


def no_labels(arms: int) -> LabelCounts:
    """Return the counts before round 1, for H arms."""
    nothing = jnp.zeros(arms)
    return LabelCounts(jnp.zeros((), jnp.int32), jnp.asarray(False), nothing, nothing)


# `aci`: adaptive conformal inference on the score, with feedback on answers only.
# Gibbs and Candes, "Adaptive conformal inference under distribution shift", 2021. A round is answered if its score
# lies above z, a position in the grid in units of its length. An answer moves z by `.005 (e - alpha)`: up if it was
# wrong, down if it was right. An abstention moves nothing, so the learner stays silent if no score reaches z.
# Beside it, `aci-rank` shows what ranks, the payback and the drift are worth.

STEP = 0.005
# The first count of every cut, in records: so large that the records to come change no rank, and the rank of a
# score remains its position in the grid.
FIRST_COUNT = 2.0**50


class AciState(NamedTuple):
    """The state of a copy."""

    threshold: Any  # z, in units of the grid


aci = Learner(
    feedback="bandit",
    rule=Ranked(
        AciState(0.0),
        lambda where, z, high, low: where(high > z.threshold, 1.0, 0.0),
        # z moves by eta (e - alpha) after an answer
        lambda where, z, answered, error, params: AciState(
            z.threshold + where(answered, params.eta * (error - params.alpha), 0.0)
        ),
        prior=FIRST_COUNT,
        decay=1 - 2.0**-50,
    ),
    rates=lambda horizon, arms: Rates(STEP, None),
)


# `csa`: the lowest threshold that bets certify, after Conformal Selective Acting.
# Khosravi and Huo, "Conformal selective acting: anytime-valid risk control for RLVR-trained LLMs", 2026. Every
# threshold has a wealth that grows if its answers are wrong less often than alpha. If its FDR is above alpha, the
# wealth ever reaches (H - 1) / delta with probability at most delta / (H - 1) (Ville). The learner takes the lowest
# threshold with such a wealth, or the last arm, which answers nothing. As where rewards can be verified, it sees
# the label of every round, answered or not. Ours are the bets (the wealth is a mean over fixed ones) and the times:
# the threshold is chosen anew before every block of 256 rounds. The paper's calibration of scores is left out.

BETS = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)  # shares of the wealth that a wrong answer costs (chosen)


def log_wealth(answered: Any, wrong: Any, alpha: Any) -> Any:
    """Return the logarithm of the mean over bets b of ``(1 + b alpha / (1 - alpha))^(n - W) (1 - b)^W``.

    It is a supermartingale if the mean error is at least alpha. For errors between 0 and 1 it is at most the
    product of ``1 + b (alpha - e) / (1 - alpha)``, since the logarithm is concave.

    Args:
        answered: n >= 0, number of answers, any shape.
        wrong: W, the sum of their errors, same shape.
        alpha: in (0, 1), broadcasts.
    """
    gains = [(answered - wrong) * jnp.log1p(b * alpha / (1 - alpha)) + wrong * math.log1p(-b) for b in BETS]
    return jax.nn.logsumexp(jnp.stack(gains), axis=0) - math.log(len(BETS))


def certified_arm(labels: LabelCounts, params: RuleParams, arms: int) -> Any:
    """Return the lowest threshold whose wealth is at least (H - 1) / delta."""
    return labels.lowest(log_wealth(*labels.answered(), params.alpha) >= jnp.log((arms - 1) / DELTA))


csa = Learner(
    feedback="full",
    rule=Own(partial(OneThreshold, labels=no_labels, choose=certified_arm, sees_all=True)),
)


# `learn-then-test`: calibrate once, then keep a certified threshold.
# Angelopoulos, Bates, Candes, Jordan and Lei, "Learn then test: calibrating predictive algorithms to achieve risk
# control", 2021. The learner answers the first 1,024 rounds and then fixes the lowest threshold whose FDR is
# certified to be at most alpha. If rounds are independent and identically distributed, all certified thresholds
# have such an FDR with probability .95. Each threshold except the last, which never answers, is a hypothesis.
# p-values are those of Hoeffding and Bentkus, with Holm's correction, the defaults of
# `BinaryClassificationController` in MAPIE 1.6. If no threshold is certified, the learner uses the last arm.
# Nothing is proved if the distribution changes.

CALIBRATION = 1024  # rounds, all answered: four whole blocks


def p_value(answered: Any, wrong: Any, alpha: Any, is_fractional: Any) -> Any:
    """Compute the Hoeffding-Bentkus p-value of the hypothesis that a mean error is above alpha.

    ``min(exp(-n kl(min(W / n, alpha), alpha)), c P(Bin(n, alpha) <= ceil(W)))``. The constant c is 1 if each error
    is 0 or 1, so that W is binomial, and e if errors are fractional (Angelopoulos et al. 2021, after Bentkus, "On
    Hoeffding's inequalities", 2004).

    Args:
        answered: n >= 0, the number of answered rounds, any shape.
        wrong: W, the sum of their errors, same shape.
        alpha: in (0, 1), broadcasts.
        is_fractional: bool, whether some error is neither 0 nor 1, broadcasts.

    Returns:
        In [0, 1], of the broadcast shape; 1 if nothing was answered.
    """
    mean = jnp.minimum(wrong / jnp.maximum(answered, 1.0), alpha)
    hoeffding = jnp.exp(-answered * (xlogy(mean, mean / alpha) + xlogy(1 - mean, (1 - mean) / (1 - alpha))))
    ceiling = jnp.ceil(wrong - ROUNDING)
    # P(Bin(n, alpha) <= k) = I_{1 - alpha}(n - k, k + 1), for k < n; the guard keeps the first argument positive.
    binomial = betainc(jnp.maximum(answered - ceiling, 1.0), ceiling + 1, 1 - alpha)
    bentkus = jnp.where(is_fractional, math.e, 1.0) * jnp.where(ceiling < answered, binomial, 1.0)
    return jnp.minimum(hoeffding, bentkus)


def certified(p: Any) -> Any:
    """Return which hypotheses Holm's procedure rejects; with probability 1 - delta none of them is true.

    The i-th smallest of m p-values is rejected if it is at most ``delta / (m + 1 - i)`` and all smaller ones are
    rejected (Holm, "A simple sequentially rejective multiple test procedure", 1979).

    Args:
        p: [m] in [0, 1].

    Returns:
        [m] bool.
    """
    ordered = jnp.sort(p)
    is_small = ordered <= DELTA / jnp.arange(len(p), 0, -1, jnp.float64)
    # The first p-value above its limit ends the procedure.
    rejected = jnp.cumprod(is_small, dtype=bool)
    return p <= jnp.max(jnp.where(rejected, ordered, -1.0))


def arm_of_block(labels: LabelCounts, params: RuleParams, arms: int) -> Any:
    """Return the arm in use; after the last round of calibration, the lowest certified threshold, which is kept."""

    def threshold() -> Any:
        return labels.lowest(certified(p_value(*labels.answered(), params.alpha, labels.is_fractional)))

    # All copies share the block's number, so under vmap this stays a branch, which is taken only once. A
    # batched condition would become a select and compute the threshold in every block.
    return lax.cond(params.block * BLOCK == CALIBRATION, threshold, lambda: labels.arm)


learn_then_test = Learner(feedback="bandit", rule=Own(partial(OneThreshold, labels=no_labels, choose=arm_of_block)))


# `refit`: a threshold that is refitted to a moving window, a widely used baseline.
# The learner answers everything in the first 256 rounds. Then, before every block of 256 rounds, it takes the
# lowest threshold at which a share of at most alpha of its last 2,000 labels was wrong, without a margin (selection
# by the empirical risk, as in Geifman and El-Yaniv, "Selective classification for deep neural networks", 2017,
# without their confidence bound). Only answers give labels, so labels of scores below the threshold are old or
# missing; nothing is proved. If no threshold qualifies, it uses the last arm, which answers nothing: it then gets
# no labels and never answers again.

LABELS = 2000  # size of the window


class Window(NamedTuple):
    """The arm of a block, and the last 2,000 labels of a copy in a ring buffer."""

    arm: Any  # [] int32
    cuts: Any  # [2000] int32, 0 if empty
    errors: Any  # [2000] float64
    total: Any  # [] int64, number of labels so far

    def add(self, cut: Any, error: Any, is_seen: Any) -> "Window":
        """Return the labels with one more, if it is seen."""
        # LABELS is out of range: dropped
        index = jnp.where(is_seen, self.total % LABELS, LABELS)
        cuts = self.cuts.at[index].set(cut, mode="drop")
        errors = self.errors.at[index].set(error, mode="drop")
        return Window(self.arm, cuts, errors, jnp.where(is_seen, self.total + 1, self.total))


def no_window(arms: int) -> Window:
    """Return the state before round 1, without labels."""
    zero = jnp.zeros((), jnp.int32)
    return Window(zero, jnp.zeros(LABELS, jnp.int32), jnp.zeros(LABELS), zero.astype(jnp.int64))


def fitted_arm(window: Window, params: RuleParams, arms: int) -> Any:
    """Return the lowest threshold whose error rate on the labels is at most alpha; 0 if there is no label yet.

    ``min {k : 0 < n_k, W_k <= alpha n_k}``, where n_k is the number of labels that threshold k would have answered,
    and W_k the sum of their errors (the empirical selective risk of Geifman and El-Yaniv 2017). H - 1, which never
    answers, if there is none.
    """
    cuts, labels = window.cuts, no_labels(arms)  # no threshold answers a cut of 0, which empty entries have
    labels = labels._replace(count=labels.count.at[cuts].add(1.0), wrong=labels.wrong.at[cuts].add(window.errors))
    above, wrong_above = labels.answered()
    fitted = labels.lowest((above > 0) & (wrong_above <= params.alpha * above + ROUNDING))
    return jnp.where(window.total == 0, 0, fitted)


refit = Learner(feedback="bandit", rule=Own(partial(OneThreshold, labels=no_window, choose=fitted_arm)))
