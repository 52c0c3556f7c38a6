"""What a learner begins with: nothing, or a log of the past (``docs/learners.md``, "Start from a log")."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.kernels.game import Start
from exaul.kernels.learners.learner import Fixed, Ranked, Rule


def first_counts(rule: Ranked, arms: int) -> NDArray[np.float64]:
    """Return the counts [H] before any record: the prior at each cut, and 0 at 0, since cuts begin at 1."""
    counts = np.full(arms, rule.prior)
    counts[0] = 0.0
    return counts


def count_log(rule: Ranked, cuts: NDArray[np.integer], arms: int) -> NDArray[np.float64]:
    """Return the counts [H] after the records of a log, with cuts [N] in 1..H-1, the latest last."""
    ages = np.arange(len(cuts), 0, -1) - 1.0
    seen = np.bincount(cuts, rule.decay**ages, arms)
    return first_counts(rule, arms) * rule.decay ** len(cuts) + seen


def start_of(
    rule: Rule,
    arms: int,
    alphas: Sequence[float] | NDArray[np.float64],
    log: tuple[NDArray[np.integer], NDArray[np.float64]] | None = None,
    past: NDArray[np.integer] | None = None,
) -> tuple[Any, Any]:
    """Return what a ``Start`` has of a rule, its state and its counts; () each if the rule is not ``Ranked``.

    Args:
        rule: of a learner.
        arms: H.
        alphas: [cells] target FDRs.
        log: cuts [N] in 1..H-1 and errors [N] in [0, 1] of a log, the latest last; None without one. A rule without
            ``fit`` does not use it.
        past: cuts [M] in 1..H-1 of all past answers, the latest last, if the log is a sample of them.

    Returns:
        The rule's numbers, a NamedTuple of [cells] each, and the counts [H].
    """
    if not isinstance(rule, Ranked):
        return (), ()
    if log is None or rule.fit is None:
        states, counts = [rule.start] * len(alphas), first_counts(rule, arms)
    else:
        cuts, errors = log
        counts = count_log(rule, cuts if past is None else past, arms)
        states = [rule.fit(cuts, errors, counts, alpha) for alpha in alphas]
    return type(rule.start)(*np.array(states, np.float64).T), counts


def fitted_share(rule: Rule, state: Any) -> Any:
    """Return the share in a state that the rule may have fitted to a log; None if there is none."""
    return None if getattr(rule, "fit", None) is None else getattr(state, "share", None)


def start_copies(
    rule: Rule, arms: int, first: tuple[Any, Any], cell: NDArray[np.integer], best: NDArray[np.int32]
) -> Start:
    """Return the ``Start`` of B copies on H arms.

    Args:
        rule: of the learner.
        arms: H.
        first: from ``start_of``.
        cell: [B], the cell of each copy.
        best: [B] in 0..H-1, the arm of least loss in hindsight, which only a ``Fixed`` rule may read.
    """
    state, counts = first
    arm = np.broadcast_to(rule.arm(arms, best) if isinstance(rule, Fixed) else np.int32(0), best.shape)
    return Start(arm.astype(np.int32), type(state)(*(x[cell] for x in state)) if state else (), counts)
