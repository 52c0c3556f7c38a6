"""Rates of learners that charge one side of the cut over gamma plus its probability, as ``exaul`` does."""

import math

from exaul.kernels.game import Rates


def rates(horizon: int, arms: int) -> Rates:
    """The paper's rates, ``eta = 2 gamma = sqrt(ln H / T)`` (theorem on the regret of ExAUL).

    Args:
        horizon: T >= 1.
        arms: H >= 2.

    Returns:
        eta and gamma.
    """
    eta = math.sqrt(math.log(arms) / horizon)
    return Rates(eta, eta / 2)


def anytime(t: int, arms: int) -> Rates:
    """Rates for an unknown horizon, ``eta_t = 2 gamma_t = sqrt(ln H / (2 t))``.

    They are ``rates`` at twice the rounds so far; rates that fall as 1 / sqrt(t) are those of Neu, "Explore no
    more", 2015, Theorem 1.

    Args:
        t: the round, >= 1.
        arms: H >= 2.

    Returns:
        eta_t and gamma_t.
    """
    return rates(2 * t, arms)
