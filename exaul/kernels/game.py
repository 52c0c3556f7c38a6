"""The game: grids of thresholds, cuts of scores, and the loss (eq. 4).

The arms are the thresholds tau of a grid. A record with score f is answered by the arms with ``tau <= f``. These
are the first ``c`` arms; c is the record's cut (sections "Online Conformal Abstention Under Adversarial Bandit
Feedback" and "Reduction" of the paper).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.uniforms import Draws

Array = Any  # a JAX or a NumPy array, or a number; under ``jit`` and ``vmap`` a traced value

BLOCK = 256  # rounds of a block (chosen): rates are constant in it, and uniforms are drawn block by block
SPAN = 1024  # rounds of a span (chosen): chunks begin with one, and weights are computed anew at least once in it
# Largest eta x (rounds between two computations of the weights). A round divides the sum of the weights by at most
# e^eta, so that the sum stays above e^-300 and e^-40, far from the smallest numbers (1e-308 and 1e-38).
LARGEST_STEP = {"float64": 300.0, "float32": 40.0}


class Block(NamedTuple):
    """C consecutive rounds of one copy [C], or of B copies [C, B]; a single round has the same fields without C."""

    cuts: Array  # [C] or [C, B] int32 in 1..H-1: arms k < cut answer, the others abstain
    errors: Array  # [C] or [C, B] float64 in [0, 1]: the error e of an answer
    draws: Draws  # uniforms, [C] or [C, B] float64 in [0, 1) each
    active: Array  # [C] bool: False for rounds that pad the last block


class Rates(NamedTuple):
    """The rates of a learner: numbers for one block, arrays [K] for K blocks."""

    eta: Array  # > 0, learning rate; NaN in arrays if the learner has none
    gamma: Array  # >= 0, implicit exploration; None, or NaN in arrays, if the learner has none


class ImperfectFeedback(NamedTuple):
    """Rates and parameters of imperfect feedback, where a round may be learned after later decisions."""

    rates: Rates  # [K] each, for all blocks of the horizon
    parameters: Any  # ``FeedbackParameters``


class RuleParams(NamedTuple):
    """The numbers that a rule reads in one block: scalars of one copy, or arrays [B].

    A rule of yours reads ``eta`` and ``gamma`` (NaN without rates), ``alpha``, and the costs ``answer_cost`` of an
    answer per unit of error and ``abstain_cost`` of an abstention (eq. 4), each in [0, 1].
    """

    eta: Array  # [] > 0, learning rate; with ``imperfect``, a factor of its rates, like gamma
    gamma: Array  # [] >= 0, implicit exploration
    alpha: Array  # [] in (0, 1), target FDR; with biased or flipped feedback, the aim
    answer_cost: Array  # [] in [0, 1], the loss of an answer per unit of error
    abstain_cost: Array  # [] in [0, 1], the loss of an abstention
    weight: Array = 1.0  # [] in [0, 1], of an abstention: below 1 if only a share is learned, 0: no change
    block: Array = 0  # [] for ``Own`` rules, the block's number, from 0; the same for all copies
    imperfect: ImperfectFeedback | None = None  # None if feedback is perfect; the same for all copies


class Copies(NamedTuple):
    """The numbers in which B copies of a learner differ, [B] each."""

    alpha: Array  # in (0, 1), target FDR
    answer_cost: Array  # in [0, 1], the loss of an answer per unit of error
    abstain_cost: Array  # in [0, 1], the loss of an abstention
    record_stream: Array  # int32 in 0..R-1, the copy's stream of records
    draw_stream: Array  # int32 in 0..U-1, the copy's stream of uniforms
    eta_scale: Array  # > 0, factor of the learner's eta
    gamma_scale: Array  # >= 0, factor of the learner's gamma

    def rule_params(self, rates: Rates, block: Array, imperfect: ImperfectFeedback | None) -> RuleParams:
        """Return the numbers that a rule reads, at the rates of a block or with factors of ``imperfect.rates``."""
        eta, gamma = (1.0, 1.0) if imperfect else rates
        costs = self.alpha, self.answer_cost, self.abstain_cost
        return RuleParams(eta * self.eta_scale, gamma * self.gamma_scale, *costs, 1.0, block, imperfect)

    def take(self, numbers: NDArray[np.intp]) -> "Copies":
        """Return the copies with the given indices [L]."""
        return Copies(*(np.take(x, numbers) for x in self))


class Sums(NamedTuple):
    """Answers and errors of B copies, summed over the rounds so far."""

    answered: Array  # [B] int64, number of answered rounds
    wrong: Array  # [B] float64, sum of their errors


class Start(NamedTuple):
    """What B copies of a learner, or one for each cell, begin with, beside weights that are all equal."""

    arm: Array  # [B] int32 in 0..H-1, of a ``Fixed`` rule; else 0
    state: Any = ()  # of a ``Ranked`` rule: its numbers, [B] float64 each
    counts: Any = ()  # of a ``Ranked`` rule: [H] float64, counts of recent records by cut


def uniform_grid(arms: int, scores: ArrayLike) -> NDArray[np.float64]:
    """Return the paper's grid [H], ``{k / (H - 1)}`` (section "Online Conformal Abstention").

    All grids begin at 0, end at 1 and never fall, and take the same arguments, H = ``arms`` >= 2 and scores [N] in
    [0, 1]; only ``quantile_grid`` and ``log_grid`` read the scores.
    """
    return np.arange(arms) / (arms - 1)


def logit_grid(arms: int, scores: ArrayLike) -> NDArray[np.float64]:
    """Return 0, H - 2 thresholds evenly spaced in logit from -7 to 14 (chosen), and 1.

    Likelihoods cluster above 0.999, where the paper's uniform grid has a single threshold.
    """
    inner = 1 / (1 + np.exp(-np.linspace(-7, 14, arms - 2)))
    return np.concatenate([[0.0], inner, [1.0]])


def quantile_grid(arms: int, scores: ArrayLike) -> NDArray[np.float64]:
    """Return 0, H - 2 evenly spaced quantiles of the scores, and 1. This grid looks ahead at the records."""
    levels = np.arange(1, arms - 1) / (arms - 1)
    return np.concatenate(
        [[0.0], np.quantile(np.asarray(scores, np.float64), levels, method="inverted_cdf"), [1.0]]
    )


def log_grid(arms: int, scores: ArrayLike) -> NDArray[np.float64]:
    """Return 0, the distinct scores of a log from the past (quantiles of them if they are more than H - 2), and 1.

    H = ``arms`` is the largest number of thresholds. All but the first and the last are distinct.
    """
    inner = np.unique(np.asarray(scores, np.float64))
    if len(inner) > arms - 2:
        inner = np.unique(quantile_grid(arms, scores)[1:-1])
    return np.concatenate([[0.0], inner, [1.0]])


GRIDS = {"uniform": uniform_grid, "logit": logit_grid, "quantile": quantile_grid}
LOG_GRID = "log"  # the name of ``log_grid``, which reads another log than the records
ARMS, LOG_ARMS = 1000, 514  # default H, and largest H of the grid of a log: more do not answer more (measured)


def compute_cuts(grid: NDArray[np.float64], scores: ArrayLike) -> NDArray[np.int32]:
    """Compute the cut of each score, the number of thresholds that it reaches: ``c = #{k : tau_k <= f}``.

    An arm answers if ``tau <= f`` (section "Online Conformal Abstention"), so the cut determines every arm's
    decision.

    Args:
        grid: [H] non-decreasing thresholds, the first 0 and the last 1, H >= 2.
        scores: [N] in [0, 1].

    Returns:
        [N] int32 in 1..H-1.
    """
    cuts = np.searchsorted(grid, np.asarray(scores, np.float64), side="right")
    # A score of exactly 1 gets H - 1: Lemma 1 needs an arm that always abstains.
    return np.clip(cuts, 1, len(grid) - 1).astype(np.int32)


def compute_costs(alpha: Array, lam: Array) -> tuple[Array, Array]:
    """Compute the two costs in the loss ``l = (a + lam d) / (1 + lam)`` (eq. 4).

    With ``a = 1{IDK}`` and ``d = 1{answer} e - alpha 1{answer} + alpha``, an answer with error e costs
    ``lam e / (1 + lam)`` and an abstention ``(1 + lam alpha) / (1 + lam)``, for every arm.

    Args:
        alpha: target FDR in (0, 1), a number or an array.
        lam: weight of the FDR against abstaining, >= 0, broadcasts.

    Returns:
        The cost of an answer per unit of error, and that of an abstention, in [0, 1] and of the broadcast shape.
    """
    # eq. 4; ``0 * alpha`` broadcasts the first cost
    return lam / (1 + lam) + 0 * alpha, (1 + lam * alpha) / (1 + lam)
