"""Rates of learners that divide the charge of one side of the cut by gamma plus its probability, like ``exaul``."""

import math

from exaul.kernels.game import Rates


def rates(horizon: int, arms: int) -> Rates:
    """Return the paper's rates, ``eta = 2 gamma = sqrt(ln H / T)`` (theorem on the regret of ExAUL)."""
    eta = math.sqrt(math.log(arms) / horizon)
    return Rates(eta, eta / 2)


def anytime(t: int, arms: int) -> Rates:
    """Return ``eta_t = 2 gamma_t = sqrt(ln H / (2 t))``, which is ``rates`` at T = 2 t.

    The form is that of Neu, "Explore no more", 2015, Theorem 1.
    """
    return rates(2 * t, arms)
