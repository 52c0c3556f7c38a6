"""An upper limit of the FDR of all answers, from audits of some, which holds at all times at once.

Each answer is audited with probability c, whatever happened before. Let N be the number of audited answers that are
found wrong, and G the number of wrong answers among the n answers so far. For every rate v > 0, the number

    exp(-v N) (1 - p_0 k)^-(n - G) (1 - p_1 k)^-G        with k = 1 - exp(-v)

is a martingale that starts at 1, where p_0 and p_1 are the probabilities that a right and a wrong answer are
audited and found wrong. So is its mean over a few rates, which with probability 1 - delta never reaches 1 / delta
(Ville's inequality). The mean rises with G. So G is at most the G at which the mean is 1 / delta. F1 of
``docs/proofs.md`` has the proof.

Mixtures of such martingales are due to Robbins; see Howard et al. (2021) and Waudby-Smith and Ramdas (2023).
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MARTINGALES = 40  # martingales in the mean (this and the next two are chosen: any rates give a valid limit)
DEVIATIONS = 0.01, 0.98  # smallest and largest relative deviation of N for which a rate is best
LARGEST_SHARE = 1 - 1e-6  # rates are computed for at most this share, so that they are finite
STEPS = 50  # Newton steps at most; about six suffice


class Mixture(NamedTuple):
    """Logarithms of the factors of each martingale of the mean, [MARTINGALES] each."""

    found_wrong: NDArray[np.float64]  # v: subtracted for each audited answer that is found wrong
    right: NDArray[np.float64]  # ``-log(1 - p_0 k)`` >= 0: added for each right answer
    wrong: NDArray[np.float64]  # ``-log(1 - p_1 k)`` > right: added for each wrong answer


@lru_cache(maxsize=64)
def mixture(share: float, flips: tuple[float, ...]) -> Mixture:
    """Compute the factors of the martingales.

    The rates are ``v = log((1 - x (1 - y)) / ((1 - x) (1 - y)))`` with ``x = share (1 - r_0 - r_1)``, for geometric
    y. Without flips, such a rate is best if N falls short of its mean by a share y. Any rates give a valid limit.

    Args:
        share: c in (0, 1], the probability that an answer is audited.
        flips: r_0, the probability that a right answer is found wrong, and r_1, that a wrong one is found right;
            their sum is below 1.
    """
    right_flip, wrong_flip = flips
    x, y = min(share * (1 - right_flip - wrong_flip), LARGEST_SHARE), np.geomspace(*DEVIATIONS, MARTINGALES)
    rates = np.log1p(x * y / (1 - x)) - np.log1p(-y)
    k = -np.expm1(-rates)
    return Mixture(rates, -np.log1p(-share * right_flip * k), -np.log1p(-share * (1 - wrong_flip) * k))


def wrong_limit(found_wrong: float, answers: float, share: float, flips: tuple[float, ...], delta: float) -> float:
    """Bound the number of wrong answers, with probability 1 - delta for all numbers of answers at once.

    Args:
        found_wrong: N >= 0, the number of audited answers that were found wrong, or whose result is not known. It
            may be a fraction if answers are rated in [0, 1], which needs flips of 0.
        answers: n, the number of answers, including withdrawn ones.
        share, flips: as in ``mixture``.
        delta: in (0, 1).

    Returns:
        A limit in [0, n]. It does not fall with N. It is 0 if no number of wrong answers is compatible with N:
        even if all answers were right, more of them would be found wrong. If the flips are right, this happens with
        probability delta at most.
    """
    if share == 1 and not any(flips):
        return min(found_wrong, answers)  # every answer was audited
    factors = mixture(share, flips)
    slopes = factors.wrong - factors.right  # > 0
    logs = answers * factors.right - found_wrong * factors.found_wrong - math.log(MARTINGALES / delta)  # at G = 0
    # The log of the mean is convex and rises in G. Start where one martingale alone makes the mean 1 / delta.
    # Newton's steps decrease from there towards the limit without passing it, so each step is a valid limit.
    wrong = float((-logs / slopes).min())
    for _ in range(STEPS):
        terms = logs + wrong * slopes
        largest = terms.max()
        weights = np.exp(terms - largest)
        total = weights.sum()
        step = float((largest + math.log(total)) * total / (weights @ slopes))
        wrong -= step
        if step < 1e-9 * (1 + abs(wrong)):
            break
    return min(max(wrong, 0.0), answers)


def fdr_limit(
    found_wrong: float, answers: float, remaining: float, share: float, flips: tuple[float, ...], delta: float
) -> float:
    """Bound the FDR of the answers that were not withdrawn, with probability 1 - delta at all times at once.

    Args:
        found_wrong, answers, delta: as in ``wrong_limit``; withdrawn answers are included.
        share, flips: as in ``mixture``.
        remaining: number of answers that were not withdrawn.

    Returns:
        A limit in [0, 1], which treats all wrong answers as not withdrawn; NaN if there was no answer.
    """
    if not answers:
        return math.nan
    wrong = wrong_limit(found_wrong, answers, share, flips, delta)
    return wrong / remaining if wrong < remaining else 1.0
