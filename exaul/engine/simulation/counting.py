"""Make the counts of a sweep from the trajectories of its players: totals, sums of feedback, and bounds."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.engine.results.counts import EVERY, Counts
from exaul.engine.simulation.best_arms import Trajectory
from exaul.engine.simulation.players import Player
from exaul.engine.simulation.prepare import Prepared
from exaul.kernels.feedback import PERFECT_FEEDBACK
from exaul.kernels.rates import block_lengths


def counts_of(prepared: Prepared, trajectories: Mapping[str, Trajectory]) -> Counts:
    """Return the counts of all players; ``trajectories`` are by player."""

    def shaped(x: NDArray[Any]) -> NDArray[Any]:
        """Turn [..., copies] into [P, cells, trials]."""
        return x.reshape(len(x) if x.ndim > 1 else 1, -1, len(prepared.trials))

    players = {player.name: player for player in prepared.players}
    t = prepared.checkpoints
    hindsight = {name: trajectories[name].best for name in players}
    if not prepared.is_adaptive:  # all learners meet the same records
        hindsight = {EVERY: next(iter(hindsight.values()))}
    answered = {name: shaped(trajectories[name].answered) for name in players}

    def risk_bound(player: Player) -> NDArray[np.float64]:
        counts = answered[player.name]
        alpha = player.cells.alpha[:, None]
        rounds = t[: len(counts), None, None]
        bound = player.risk_bound(len(prepared.grid), prepared.horizon, rounds, counts, alpha)
        return bound + _pending_risk(player, player.feedback.most_open(prepared.horizon), alpha)

    def sums_of_feedback(player: Player) -> dict[str, NDArray[np.float64]]:
        """Return the sums of imperfect feedback, the aim, and the bound at the aim (``docs/proofs.md``, M1)."""
        sums = {kind: shaped(x) for kind, x in trajectories[player.name].feedback_sums.items()}
        copies_at_aim = player.with_aim(prepared.copies(player))
        sums["aim"] = shaped(copies_at_aim.alpha)
        sums["bound"] = np.full(sums["aim"].shape, np.nan)
        if player.learner.risk_bound is not None:
            rounds, answers = np.minimum(sums["learned"] + 1, prepared.horizon), sums["settled"]
            bound = player.risk_bound(len(prepared.grid), prepared.horizon, rounds, answers, sums["aim"])
            sums["bound"] = bound + _pending_risk(player, np.maximum(sums["since"] - 1, 0), sums["aim"])
        return sums

    return Counts(
        learners=tuple(players),
        environment=prepared.environment_name,
        source=prepared.name,
        grid_name=prepared.sweep.grid,
        warm_start="" if prepared.log is None else prepared.log.name,
        grid=prepared.grid,
        trials=prepared.trials,
        checkpoints=t,
        cells={name: _cells(prepared, player) for name, player in players.items()},
        best_loss={name: shaped(best.loss) for name, best in hindsight.items()},
        best_arm={name: shaped(best.arm)[0] for name, best in hindsight.items()},
        regret_bounds={name: player.regret_bounds for name, player in players.items()},
        regret_bound={name: _regret_bound(prepared, player) for name, player in players.items()},
        risk_bound={
            name: risk_bound(player)
            for name, player in players.items()
            if player.learner.risk_bound is not None and player.feedback.bounds_risk(prepared.horizon)
        },
        answered=answered,
        wrong={name: shaped(trajectories[name].wrong) for name in players},
        asked={
            name: {kind: shaped(sums) for kind, sums in trajectories[name].asked.items()}
            for name in players
            if trajectories[name].asked
        },
        feedback_sums={
            name: sums_of_feedback(player)
            for name, player in players.items()
            if player.feedback != PERFECT_FEEDBACK
        },
    )


def _regret_bound(prepared: Prepared, player: Player) -> NDArray[np.float64]:
    """Return the bound of the regret against the best arm up to each checkpoint, [P, cells]."""
    cells = player.cells
    curve = np.full((len(prepared.checkpoints), len(cells.pair)), np.nan)
    if player.learner.regret_bounds is None or player.feedback != PERFECT_FEEDBACK:
        return curve
    for some, rates in player.rates_of_cells():
        given = len(prepared.grid), prepared.sweep.delta, cells.alpha[some], cells.lam[some]
        for bound, t in zip(curve, prepared.checkpoints, strict=True):
            rounds = block_lengths(int(t))
            eta, gamma = (rate[: len(rounds)] for rate in rates)
            bound[some] = player.learner.regret_bounds.best(eta, gamma, rounds, *given)
    return curve


def _cells(prepared: Prepared, player: Player) -> dict[str, NDArray[Any]]:
    """Return what the tables have of each cell; eta is NaN if it is a step."""
    eta, gamma = player.rates_at_end
    nothing, pair = np.full_like(eta, np.nan), player.cells.pair
    return player.cells._asdict() | {
        "answer_cost": prepared.answer_cost[pair],
        "abstain_cost": prepared.abstain_cost[pair],
        "eta": eta if player.learner.rate == "eta" else nothing,
        "step": eta if player.learner.rate == "step" else nothing,
        "gamma": gamma,
    }


def _pending_risk(player: Player, waiting: Any, alpha: Any) -> Any:
    """Return what answers that still wait for feedback add to R_T, at most 1 - alpha each (docs/proofs.md, D1)."""
    return 0 if player.feedback.reserve else waiting * (1 - alpha)
