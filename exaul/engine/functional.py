"""Make learners, grids and cuts for a JAX program of your own (``exaul.kernels.play``)."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exaul.engine import registry
from exaul.engine.checks import BadInput, check_count, check_holds, check_known, check_not_negative, check_positive
from exaul.kernels.dense import GameLearner, make_game
from exaul.kernels.game import ARMS, GRIDS, Rates, compute_cuts, log_grid
from exaul.kernels.learners.learner import Fixed, Learner, Own, Ranked
from exaul.kernels.learners.start import start_of
from exaul.kernels.play import FixedParams, Params, RankedParams
from exaul.kernels.rates import block_rates
from exaul.kernels.rows import Rows


def make(
    learner: str | Learner[Any],
    arms: int | None = None,
    *,
    alpha: float,
    horizon: int | None = None,
    lam: float | None = None,
    eta: float | None = None,
    gamma: float | None = None,
    anytime: bool = False,
    grid: Any = None,
    log: tuple[Any, Any] | None = None,
) -> tuple[GameLearner, Any]:
    """Return a learner as pure functions of one game, and its numbers.

    Args:
        learner: name, ``module:name``, or a ``Learner``; not ``best-fixed``, which needs hindsight.
        arms: H; default: the length of ``grid``, or 1,000.
        alpha: target FDR in (0, 1).
        horizon: T, from which eta, gamma and lam follow unless given.
        lam: weight of the FDR against abstaining; default: sqrt(T), or NaN without a horizon if only ``regret``
            would read it.
        eta: learning rate, or the step of ``aci-rank``; default: the learner's own at this horizon.
        gamma: implicit exploration; default: the learner's own at this horizon.
        anytime: use the rates for an unknown horizon. Then eta and gamma are [K], constant over blocks of 256
            rounds: ``play`` takes the next of each, a loop of your own calls ``learner.reweigh`` with them. The
            horizon still says how many there are, and gives lam.
        grid: [H] thresholds, if the learner starts from a log.
        log: scores [N] and errors [N] of a log from which ``aci-rank`` starts, the latest last.

    Raises:
        BadInput: a number is out of range, the learner is unknown, or JAX computes in float32.
    """
    if not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        raise BadInput('JAX computes in float32; add after "import jax": jax.config.update("jax_enable_x64", True)')
    name = learner if isinstance(learner, str) else "learner"
    if isinstance(learner, str):
        learner = registry.resolve("learner", learner, registry.LEARNERS, (Learner,))
    assert isinstance(learner, Learner)
    known = not isinstance(learner.rule, Own) and learner.feedback != "hindsight"
    check_holds("learner", name, known, "a learner whose rule is Sided, Drawn, Ranked or Fixed, without hindsight")
    arms = (ARMS if grid is None else len(grid)) if arms is None else arms
    check_count("arms", arms, 2)
    check_count("horizon", horizon)
    check_holds("alpha", alpha, 0 < alpha < 1, "in (0, 1)")
    for field, number, check in (("lam", lam, check_not_negative), ("eta", eta, check_positive)):
        check(field, number)
    check_not_negative("gamma", gamma)
    if log is not None and (grid is None or len(grid) != arms):
        raise BadInput("log: given without grid; its scores need the thresholds")
    rates = None if horizon is None or learner.rates is None else learner.rates(horizon, arms)
    if anytime and learner.anytime is not None:
        rates = block_rates(learner, _known("horizon", horizon), arms, True, eta, gamma)
        rates, eta, gamma = Rates(rates.eta, np.nan_to_num(rates.gamma)), None, None
    if lam is None:
        reads_lam = not isinstance(learner.rule, Fixed | Ranked)
        lam = math.sqrt(_known("lam", horizon)) if horizon or reads_lam else math.nan
    made = make_game(learner, arms, Rows)
    if isinstance(learner.rule, Fixed):
        return made, FixedParams(alpha, lam, np.int32(learner.rule.arm(arms, np.int32(0))))
    if rates is None and (isinstance(learner.rule, Ranked) and learner.rates is not None):
        rates = learner.rates(1, arms)  # a step depends on no horizon
    if learner.rates is None and learner.anytime is None:
        eta = gamma = math.nan  # which the learner does not read
    if eta is None:
        eta = _known("eta", None if rates is None else rates.eta)
    if isinstance(learner.rule, Ranked):
        counted = None if log is None else (compute_cuts(np.asarray(grid), log[0]), np.asarray(log[1], np.float64))
        state, counts = start_of(learner.rule, arms, [alpha], counted)
        return made, RankedParams(alpha, lam, eta, type(state)(*(float(x[0]) for x in state)), counts)
    if gamma is None:
        gamma = (
            0.0
            if rates is not None and rates.gamma is None
            else _known("gamma", None if rates is None else rates.gamma)
        )
    return made, Params(alpha, lam, eta, gamma)


def _known(field: str, value: Any) -> Any:
    if value is None:
        raise BadInput(f"{field}: not given, and it does not follow without a horizon")
    return value


def grid(name: str, arms: int, scores: Any = None) -> Any:
    """Return thresholds [H] from 0 to 1: ``uniform``, ``logit``, or of scores [N] ``quantile`` or ``log``."""
    check_known("grid", (name,), (*GRIDS, "log"))
    if name in ("quantile", "log") and scores is None:
        raise BadInput(f"scores: not given; the grid {name} is made of them")
    return (log_grid if name == "log" else GRIDS[name])(arms, () if scores is None else scores)


def cuts(grid: Any, scores: Any) -> Any:
    """Return the cut of each score, the number of thresholds [H] that it reaches, int32 in 1..H-1.

    NumPy arrays give NumPy arrays; under ``jit`` and ``vmap`` it is traced.
    """
    if isinstance(grid, jax.Array) or isinstance(scores, jax.Array):
        reached = jnp.searchsorted(jnp.asarray(grid), jnp.asarray(scores), side="right")
        return jnp.clip(reached, 1, len(grid) - 1).astype(jnp.int32)
    return compute_cuts(np.asarray(grid, np.float64), scores)
