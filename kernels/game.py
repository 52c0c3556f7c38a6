"""The game: grids of thresholds, cuts of scores, and the loss (section "Reduction", eq. 3)."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = Any  # of JAX or of NumPy: one source serves both

ROUNDS = 256  # rounds of a block: uniforms are drawn, and anytime rates are held, over blocks of this length
TIE = 1e-6  # of an arm: a moving threshold so near below a cut stands on it, whatever the rounding
LARGEST_STEP = {"float64": 300.0, "float32": 40.0}  # of eta x rounds: what linear weights bear between two exps


class Block(NamedTuple):
    """C consecutive rounds, as a backend receives them: R streams of records and U streams of draws."""

    cuts: Array  # [C, R] int32 in 1..H-1: arms k < cut answer, the others abstain
    errors: Array  # [C, R] float64 in [0, 1]: the feedback that an answer would earn
    uniforms: Array  # [C, U] float64 in [0, 1)
    active: Array  # [C] bool: False on the rounds that only fill up the last block


class Parameters(NamedTuple):
    """What tells B copies apart during one block."""

    eta: Array  # [] > 0, learning rate
    gamma: Array  # [] >= 0, implicit exploration
    alpha: Array  # [B] in (0, 1), target FDR
    answer: Array  # [B], the loss of an answer per unit of error
    abstain: Array  # [B], the loss of an abstention
    record: Array  # [B] int32 in 0..R-1, which records a copy meets
    draw: Array  # [B] int32 in 0..U-1, which uniforms


class Outcome(NamedTuple):
    """What B copies did in C rounds."""

    answered: Array  # [C, B] bool
    probability: Array  # [C, B] in [0, 1]: of answering, before the draw
    middle: Array | None = None  # [C, B] in (0, 1), the middle of the drawn arm's share of the uniforms


def by_copy(block: Block, parameters: Parameters) -> Block:
    """The same rounds with a column a copy: cuts, errors and uniforms [C, B]."""
    cuts, errors = block.cuts[:, parameters.record], block.errors[:, parameters.record]
    return Block(cuts, errors, block.uniforms[:, parameters.draw], block.active)


def uniform_grid(arms: int, scores: ArrayLike) -> NDArray[np.float64]:
    """The paper's grid ``{k / (H - 1)}`` (section "Online Conformal Abstention"); the scores are not read."""
    return np.arange(arms) / (arms - 1)


def logit_grid(arms: int, scores: ArrayLike) -> NDArray[np.float64]:
    """H - 2 thresholds spaced evenly in logit from -7 to 14, between 0 and 1; the scores are not read.

    Likelihoods crowd above 0.999, where the uniform grid has a single threshold.
    """
    inner = 1 / (1 + np.exp(-np.linspace(-7, 14, arms - 2)))
    return np.concatenate([[0.0], inner, [1.0]])


def quantile_grid(arms: int, scores: ArrayLike) -> NDArray[np.float64]:
    """H - 2 evenly spaced quantiles of the scores [N], between 0 and 1. It looks ahead at the records."""
    levels = np.arange(1, arms - 1) / (arms - 1)
    return np.concatenate(
        [[0.0], np.quantile(np.asarray(scores, np.float64), levels, method="inverted_cdf"), [1.0]]
    )


GRIDS = {"uniform": uniform_grid, "logit": logit_grid, "quantile": quantile_grid}


def cuts(grid: NDArray[np.float64], scores: ArrayLike) -> NDArray[np.int32]:
    """The cut ``c = #{k : tau_k <= f}`` of each score, all that a score says about the arms.

    Args:
        grid: [H] sorted thresholds, the first 0 and the last 1, H >= 2.
        scores: [N] in [0, 1].

    Returns:
        [N] in 1..H-1. A score of exactly 1 gets H-1: Lemma 1 needs an arm that always abstains.
    """
    found = np.searchsorted(grid, np.asarray(scores, np.float64), side="right")
    return np.clip(found, 1, len(grid) - 1).astype(np.int32)


def costs(alpha: ArrayLike, lam: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The two values that the loss can take, ``l = (a + lam d) / (1 + lam)`` (eq. 3).

    With ``a = 1{IDK}`` and ``d = 1{answer} e - alpha 1{answer} + alpha``, an answer costs
    ``lam e / (1 + lam)`` and an abstention ``(1 + lam alpha) / (1 + lam)``, whatever the arm.

    Args:
        alpha: target FDR in (0, 1), any shape.
        lam: weight of the FDR against abstaining, >= 0, a shape that broadcasts with alpha.

    Returns:
        The cost of an answer per unit of error, and the cost of an abstention, each in [0, 1].
    """
    alpha, lam = np.asarray(alpha, np.float64), np.asarray(lam, np.float64)
    return lam / (1 + lam) + 0 * alpha, (1 + lam * alpha) / (1 + lam)
