"""The table of learners, and their rates over the blocks of a horizon."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import optax
from numpy.typing import NDArray

from engine.errors import BadInput
from kernels import compressed, dense, native, two_level
from kernels.calibrate_then_fix import calibrate_then_fix
from kernels.ew import ew
from kernels.exaul import exaul
from kernels.exp3_ix import exp3_ix
from kernels.fixed import always_abstain, best_fixed, held, no_abstention
from kernels.game import LARGEST_STEP, ROUNDS
from kernels.learner import Backend, HostBackend, Learner
from kernels.log_price import log_price
from kernels.ranked_threshold import ranked_threshold
from kernels.threshold import threshold

LEARNERS: dict[str, Learner] = {
    "exaul": exaul,
    "exp3-ix": exp3_ix,
    "ew": ew,
    "no-abstention": no_abstention,
    "always-abstain": always_abstain,
    "best-fixed": best_fixed,
    "threshold": threshold,
    "log-price": log_price,
    "ranked-threshold": ranked_threshold,
    "calibrate-then-fix": calibrate_then_fix,
}
PAPER = ("exaul", "exp3-ix", "ew", "no-abstention", "always-abstain", "best-fixed")  # its own, and its comparators

# Where a learner's kind of rule finds its backend; "sided, full" asks for full feedback too.
BACKENDS: dict[str, dict[str, Callable[[Learner, str], Backend | HostBackend]]] = {
    "dense": {
        "sided": dense.sided,
        "drawn": dense.drawn,
        "priced": dense.priced,
        "descent": dense.descent,
        "ranked": dense.ranked,
        "fixed": held,
        "own": lambda learner, precision: learner.rule(learner, precision),
    },
    "compressed": {"sided": compressed.sided, "priced": compressed.priced},
    "parallel": {"sided, full": compressed.in_parallel},
    "two-level": {"sided": two_level.sided, "drawn": two_level.drawn, "priced": two_level.priced},
    "native": {
        "sided": native.sided,
        "drawn": native.drawn,
        "priced": native.priced,
        "descent": native.descent,
        "ranked": native.ranked,
    },
}
TURNS = ("two-level", "dense")  # backends that play round by round, the fastest first
_PREFERENCE = {"cpu": ("native", "dense"), "gpu": ("parallel", "compressed", "two-level", "dense")}


def _place(learner: Learner, name: str) -> Callable[[Learner, str], Backend | HostBackend] | None:
    kinds = BACKENDS[name]
    return kinds.get(f"{learner.kind}, {learner.feedback}", kinds.get(learner.kind))


def runs_on(learner: Learner, name: str) -> bool:
    """Whether the named backend has a place for the learner's kind of rule."""
    return _place(learner, name) is not None


@cache
def backend(learner: Learner, name: str, precision: str) -> Backend | HostBackend:
    """The learner on a named backend that it runs on: one object each, so that it compiles once."""
    make = _place(learner, name)
    assert make is not None
    return make(learner, precision)


def choose_backend(
    learner: Learner,
    wanted: str | None,
    platform: str,
    eta: NDArray[np.float64],
    rounds: int,
    precision: str,
    by_turns: bool = False,
) -> str:
    """The backend that a learner plays on: the one wanted if it runs there, else the platform's best.

    For ``sided`` and ``drawn`` rules all but ``dense`` hold linear weights over a block; their sum shrinks by at
    most exp(-eta) a round.

    Args:
        learner: who plays.
        wanted: a name, or None.
        platform: of the device, as JAX calls it.
        eta: [K] learning rates, NaN where there are none.
        rounds: T.
        precision: of the sums.
        by_turns: whether the game is played round by round.

    Raises:
        BadInput: the rates are too large for the backend that is wanted.
    """
    steps = np.nan_to_num(eta).max() * min(ROUNDS, rounds)
    fits = learner.kind not in ("sided", "drawn") or steps <= LARGEST_STEP[precision]
    if wanted is not None and runs_on(learner, wanted) and (wanted in TURNS or not by_turns):
        if not fits and wanted != "dense":
            raise BadInput(
                f"backend: {wanted} found; at eta = {eta.max():.4g} the weights of a block leave the range of "
                f"{precision}, and it must be dense"
            )
        return wanted
    best = next(
        name for name in (TURNS if by_turns else _PREFERENCE.get(platform, ("dense",))) if runs_on(learner, name)
    )
    return best if fits else "dense"


def block_lengths(horizon: int) -> NDArray[np.int64]:
    """Rounds [K] of each block: 256, and what is left for the last."""
    starts = np.arange(0, horizon, ROUNDS)
    return np.minimum(ROUNDS, horizon - starts)


Rate = float | str  # by hand: a number, or "X/sqrt", which is X / sqrt(t) at round t


def by_hand(rate: Rate) -> optax.Schedule:
    """A rate by hand, over rounds.

    Raises:
        ValueError: it is no rate.
    """
    text = str(rate)
    if not text.endswith("/sqrt"):
        return optax.constant_schedule(float(text))
    scale = float(text.removesuffix("/sqrt"))
    return lambda t: scale / math.sqrt(t)


@cache
def block_rates(
    learner: Learner, horizon: int, arms: int, anytime: bool, eta: Rate | None, gamma: Rate | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The rates of a learner, held over blocks of 256 rounds.

    Args:
        learner: whose rates.
        horizon: T >= 1.
        arms: H >= 2.
        anytime: take round t's rates of an unknown horizon, at ``t' = 256 ceil(t / 256)``.
        eta: learning rate set by hand, or None.
        gamma: implicit exploration set by hand, or None.

    Returns:
        eta [K] and gamma [K] of the blocks; NaN where the learner has no such rate.
    """
    ends = ROUNDS * np.arange(1, len(block_lengths(horizon)) + 1)

    def over_blocks(schedule: optax.Schedule) -> NDArray[np.float64]:
        return np.array([schedule(int(t)) for t in ends], np.float64)

    def by_name(name: str, given: Rate | None) -> NDArray[np.float64]:
        falling = learner.anytime if anytime or learner.rates is None else None
        rates = falling or learner.rates
        if rates is None or getattr(rates(horizon, arms), name) is None:
            return over_blocks(optax.constant_schedule(np.nan))
        if given is not None:
            return over_blocks(by_hand(given))
        if falling is not None:
            return over_blocks(lambda t: getattr(falling(t, arms), name))
        return over_blocks(optax.constant_schedule(getattr(rates(horizon, arms), name)))

    return by_name("eta", eta), by_name("gamma", gamma)
