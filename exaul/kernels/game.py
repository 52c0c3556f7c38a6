"""The game: grids of thresholds, the cuts of scores, and the loss.

Sections "Online Conformal Abstention Under Adversarial Bandit Feedback" and "Reduction" of the paper (eq. 4). The
arms are thresholds tau of a grid, and a record with score f is answered by the arms with ``tau <= f``. Those are
the first ``c`` arms; c is the record's cut.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exaul.kernels.uniforms import Draws

Array = Any  # of JAX or of NumPy: one source serves both

ROUNDS = 256  # rounds of a block: rates are constant within a block, and uniforms are drawn block by block
# rounds of a span: a chunk is made of whole spans, and the native backend collapses at most one span at a time
SPAN = 1024
TIE = 1e-6  # in arms: a moving threshold that is so little below a cut counts as equal to it, whatever the rounding
# largest eta x rounds between two computations of the weights, so that linear weights do not underflow
LARGEST_STEP = {"float64": 300.0, "float32": 40.0}


class Block(NamedTuple):
    """C consecutive rounds, as a backend receives them; a round of it has the same fields, without C.

    A kernel that plays one copy receives cuts, errors and uniforms [C]. The compiled backends receive all copies at
    once: R streams of records and U streams of uniforms, from which copies choose.
    """

    cuts: Array  # [C] or [C, R] int32 in 1..H-1: arms k < cut answer, the others abstain
    errors: Array  # [C] or [C, R] float64 in [0, 1]: the feedback e that an answer gets
    draws: Draws  # uniforms, [C] or [C, U] float64 in [0, 1) each
    active: Array  # [C] bool: False for the rounds that only fill up the last block


class Rates(NamedTuple):
    """The rates of a learner: numbers in one block of rounds, arrays [K] over K blocks."""

    eta: Any  # > 0, learning rate; NaN in arrays of a learner without one
    gamma: Any  # >= 0, implicit exploration; None, or NaN in arrays, of a learner without one


class LateRates(NamedTuple):
    """What a kernel needs to learn from imperfect feedback, whose rounds are not learned when they are played."""

    rates: Rates  # [K] each, of all blocks of the horizon
    feedback: Array  # [5], as of ``exaul.kernels.feedback.draw_feedback``


class SharedParameters(NamedTuple):
    """What all copies share in a block beside its rates."""

    block: Array = 0  # [] its number
    late: LateRates | None = None  # None where feedback is perfect


class Parameters(NamedTuple):
    """The numbers that a rule reads in one block, of one copy or [B]."""

    eta: Array  # [] > 0, learning rate
    gamma: Array  # [] >= 0, implicit exploration
    alpha: Array  # [] in (0, 1), target FDR
    answer_cost: Array  # [] in [0, 1], the loss of an answer per unit of error
    abstain_cost: Array  # [] in [0, 1], the loss of an abstention
    shared: SharedParameters = SharedParameters()


class Copies(NamedTuple):
    """The numbers in which B copies of a learner differ, [B] each."""

    alpha: Array  # in (0, 1), target FDR
    answer_cost: Array  # in [0, 1], the loss of an answer per unit of error
    abstain_cost: Array  # in [0, 1], the loss of an abstention
    record: Array  # int32 in 0..R-1, the stream of records that a copy meets
    draw: Array  # int32 in 0..U-1, the stream of uniforms that a copy draws

    def parameters(self, rates: Rates, shared: SharedParameters = SharedParameters()) -> Parameters:  # noqa: B008
        """The parameters of the copies at the rates of a block, [B] but for what they share."""
        return Parameters(rates.eta, rates.gamma, self.alpha, self.answer_cost, self.abstain_cost, shared)

    def take(self, numbers: NDArray[np.intp]) -> "Copies":
        """Some of the copies, by number [L]."""
        return Copies(*(np.take(x, numbers) for x in self))


class Outcome(NamedTuple):
    """What a copy did in C rounds, or B copies, [C, B]."""

    answered: Array  # [C] bool
    probability: Array  # [C] in [0, 1], of answering, before the draw
    # [C] in (0, 1), the middle of the interval of uniforms that draw the same arm, with which a game is replayed
    middle: Array | None = None


def uniform_grid(arms: int, scores: ArrayLike) -> NDArray[np.float64]:
    """The paper's grid of thresholds, ``{k / (H - 1)}`` (section "Online Conformal Abstention").

    Args:
        arms: H >= 2.

    Returns:
        [H], increasing from 0 to 1.
    """
    return np.arange(arms) / (arms - 1)


def logit_grid(arms: int, scores: ArrayLike) -> NDArray[np.float64]:
    """A grid of 0, H - 2 thresholds that are evenly spaced in logit from -7 to 14, and 1.

    Likelihoods crowd above 0.999, where the uniform grid has a single threshold. It replaces the grid of the
    paper's section "Online Conformal Abstention".

    Args:
        arms: H >= 2.

    Returns:
        [H], increasing from 0 to 1.
    """
    inner = 1 / (1 + np.exp(-np.linspace(-7, 14, arms - 2)))
    return np.concatenate([[0.0], inner, [1.0]])


def quantile_grid(arms: int, scores: ArrayLike) -> NDArray[np.float64]:
    """A grid of 0, H - 2 evenly spaced quantiles of the scores, and 1. It looks ahead at the records.

    It replaces the grid of the paper's section "Online Conformal Abstention".

    Args:
        arms: H >= 2.
        scores: [N] in [0, 1].

    Returns:
        [H], non-decreasing from 0 to 1.
    """
    levels = np.arange(1, arms - 1) / (arms - 1)
    return np.concatenate(
        [[0.0], np.quantile(np.asarray(scores, np.float64), levels, method="inverted_cdf"), [1.0]]
    )


GRIDS = {"uniform": uniform_grid, "logit": logit_grid, "quantile": quantile_grid}


def compute_cuts(grid: NDArray[np.float64], scores: ArrayLike) -> NDArray[np.int32]:
    """Find the cut of each score, the number of thresholds that it reaches: ``c = #{k : tau_k <= f}``.

    A cut is all that a score says about the arms, for an arm answers if ``tau <= f`` (section "Online Conformal
    Abstention").

    Args:
        grid: [H] non-decreasing thresholds, the first 0 and the last 1, H >= 2.
        scores: [N] in [0, 1].

    Returns:
        [N] int32 in 1..H-1. A score of exactly 1 gets H-1, for Lemma 1 needs an arm that always abstains.
    """
    found = np.searchsorted(grid, np.asarray(scores, np.float64), side="right")
    return np.clip(found, 1, len(grid) - 1).astype(np.int32)


def compute_costs(alpha: ArrayLike, lam: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the two costs that the loss consists of, ``l = (a + lam d) / (1 + lam)`` (eq. 4).

    With ``a = 1{IDK}`` and ``d = 1{answer} e - alpha 1{answer} + alpha``, an answer with error e costs
    ``lam e / (1 + lam)`` and an abstention ``(1 + lam alpha) / (1 + lam)``, whatever the arm.

    Args:
        alpha: target FDR in (0, 1), any shape.
        lam: weight of the FDR against abstaining, >= 0, broadcasts.

    Returns:
        The cost of an answer per unit of error, and the cost of an abstention, each in [0, 1] and of the broadcast
        shape.
    """
    alpha, lam = np.asarray(alpha, np.float64), np.asarray(lam, np.float64)
    return lam / (1 + lam) + 0 * alpha, (1 + lam * alpha) / (1 + lam)
