"""``worst-case``: search for the adversary parameters with the largest FDR risk or regret of each learner.

The search is the cross-entropy method. Parameters are drawn from a truncated normal distribution within their
bounds (of logarithms, if the bounds are positive), each candidate is simulated in some trials, and the best eighth
gives the next mean and spread. The reported values come from fresh trials. Only numbers are searched: a tunable
that is a word keeps the value of ``make_pool``, or its default.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from scipy import stats
from tqdm import tqdm

from exaul.engine import machine, registry
from exaul.engine.checks import MOST, Configuration, check_holds, check_known, setting
from exaul.engine.environments.adaptive import Adaptive, AdaptivePool, Tunable
from exaul.engine.executors import cancel_on_error, check_workers, result_of
from exaul.engine.logs import files
from exaul.engine.simulation.batch import Rollout, simulate_rollouts
from exaul.engine.simulation.learners import Cells, PreparedLearner
from exaul.engine.simulation.prepare import Prepared, prepare
from exaul.engine.sweep import Sweep
from exaul.kernels import metrics
from exaul.kernels.bounds import lemma_bound
from exaul.kernels.learners.learner import Fixed
from exaul.kernels.metrics import Floats

OBJECTIVES = ("risk", "regret")
ELITE = 8  # the best 1 / ELITE of the candidates give the next distribution
SPREAD = 0.3  # initial standard deviation, in units of the range


@dataclass(frozen=True, kw_only=True)
class WorstCase(Configuration):
    """Configuration of the search; every field is a flag of ``python -m experiments worst-case``.

    Raises:
        BadInput: a field is out of its range; the message names it.
    """

    environment: str = setting("adversary-history", "adversary whose parameters are tuned", "NAME")
    tunables: tuple[str, ...] = setting((), "initial values of its tunables", "NAME=VALUE")
    learners: tuple[str, ...] = setting(("exaul", "exp3-ix", "ew"), "learners to search for", "NAME")
    objective: str = setting("risk", "value to maximise: risk (FDR risk per round) or regret", "NAME")
    alpha: float = setting(0.2, "target FDR in (0, 1)", "ALPHA")
    horizon: int = setting(2000, "rounds T of a game", "T")
    arms: int = setting(1000, "thresholds H of the grid", "H")
    candidates: int = setting(64, "candidates per step", "N")
    trials: int = setting(16, "games per candidate", "N")
    steps: int = setting(6, "steps of the search", "N")
    seed: int = setting(0, "seed of all draws", "N")

    def __post_init__(self) -> None:
        super().__post_init__()
        environments = {name: registry.load_object(place) for name, place in registry.ENVIRONMENTS.items()}
        check_known("environment", (self.environment,), [name for name, x in environments.items() if _numbers(x)])
        learners = {name: registry.load_object(place) for name, place in registry.LEARNERS.items()}
        check_known(
            "learners", self.learners, [name for name, x in learners.items() if not isinstance(x.rule, Fixed)]
        )
        check_known("objective", (self.objective,), OBJECTIVES)
        for name in ("candidates", "trials", "steps"):
            check_holds(name, getattr(self, name), 1 <= getattr(self, name) < MOST, f"from 1 to {MOST - 1}")

    def sweep(self) -> Sweep:
        """Return one game of the search, as a sweep."""
        return Sweep(
            environment=self.environment,
            tunables=self.tunables,
            learners=self.learners,
            alphas=(self.alpha,),
            horizon=self.horizon,
            arms=self.arms,
            seed=self.seed,
        )


def _numbers(environment: Any) -> list[Tunable]:
    """Return the numeric tunables of an environment, which can be searched."""
    return [x for x in environment.tunables if not x.words] if isinstance(environment, Adaptive) else []


def measures(prepared: Prepared, learner: PreparedLearner, rollout: Rollout, candidates: int) -> dict[str, Floats]:
    """Return measurements of simulated games, [candidates, trials] each."""
    assert rollout.asked is not None
    best_loss, _ = rollout.asked.best()
    answered, wrong, best = (x[-1].reshape(candidates, -1) for x in (rollout.answered, rollout.wrong, best_loss))
    alpha, horizon = prepared.alpha[0], prepared.horizon
    if learner.definition.risk_bound is None:
        risk_bound = lemma_bound(answered, learner.regret_bounds["abstaining"][0], prepared.lam[0])
    else:
        risk_bound = learner.risk_bound(len(prepared.grid), horizon, horizon, answered[:, None], alpha)[:, 0]
    loss = metrics.loss(answered, wrong, horizon, prepared.answer_cost[0], prepared.abstain_cost[0])
    return {
        "risk": metrics.fdr_risk(answered, wrong, alpha) / horizon,
        "risk_bound": risk_bound / horizon,
        "regret": loss - best,
        "regret_bound": np.full(loss.shape, learner.regret_bounds["best"][0]),
        "fdr": metrics.fdr(answered, wrong, alpha),
        "inefficiency": 1 - answered / horizon,
    }


def simulate_parameters(
    prepared: Prepared, pool: AdaptivePool, learner: PreparedLearner, tuning: Floats, trials: NDArray[np.int64]
) -> dict[str, Floats]:
    """Simulate parameters [parameters, candidates], each in the same trials, and measure the games."""
    environment, candidates = prepared.environment, tuning.shape[1]
    assert isinstance(environment, Adaptive)
    # Copies are ordered by candidate, then by trial: ``measures`` reshapes to [candidates, trials].
    every = np.repeat(prepared.tunable_values[None], candidates, axis=0)
    every[:, [not x.words for x in environment.tunables]] = tuning.T
    # a cell for each candidate: they share the draws of a trial, so they differ by their parameters alone
    state, counts = learner.first
    first = (state._make(np.repeat(x, candidates) for x in state) if state else ()), counts
    cells = Cells._make(np.repeat(x, candidates) for x in learner.cells)
    searched = learner._replace(cells=cells, first=first)
    prepared = replace(
        prepared,
        trials=trials,
        checkpoints=np.array([prepared.horizon]),
        tunable_values=np.repeat(every, len(trials), axis=0),
    )
    rollout = Rollout(prepared, searched, pool)
    simulate_rollouts([rollout], pool, prepared.checkpoints, lambda rounds: None)
    return measures(prepared, learner, rollout, candidates)


def _start(prepared: Prepared) -> Floats:
    environment = prepared.environment
    assert isinstance(environment, Adaptive)
    return prepared.tunable_values[[not x.words for x in environment.tunables]]


def search(
    config: WorstCase,
    prepared: Prepared,
    pool: AdaptivePool,
    learner: PreparedLearner,
    progress: Callable[[int], object],
) -> Floats:
    """Return the parameters [parameters] with the largest mean objective over trials."""
    searched = _numbers(prepared.environment)
    low, high = (np.array([getattr(x, bound) for x in searched]) for bound in ("low", "high"))
    start = _start(prepared)
    positive = low > 0  # searched in logarithms

    def logs(x: Floats) -> Floats:
        return np.where(positive, np.log(np.where(positive, x, 1.0)), x)

    def inwards(x: Floats) -> Floats:
        return (logs(x) - logs(low)) / (logs(high) - logs(low))

    def outwards(y: Floats) -> Floats:
        x = logs(low) + y.T * (logs(high) - logs(low))
        return np.clip(np.where(positive, np.exp(np.where(positive, x, 0.0)), x), low, high).T

    mean, spread = inwards(start), np.full(len(low), SPREAD)
    rng = np.random.default_rng(config.seed)
    trials = np.arange(config.trials)
    best, most = start, -np.inf
    for _ in range(config.steps):
        # truncnorm takes its limits 0 and 1 in units of the spread from the mean.
        drawn = stats.truncnorm.rvs(
            (-mean / spread)[:, None],
            ((1 - mean) / spread)[:, None],
            mean[:, None],
            spread[:, None],
            size=(len(low), config.candidates),
            random_state=rng,
        )
        drawn[:, 0] = inwards(best)  # candidate 0 is the best so far, simulated again
        tuning = outwards(drawn)
        tuning[:, 0] = best  # without the rounding of ``inwards`` and ``outwards``
        worth = simulate_parameters(prepared, pool, learner, tuning, trials)[config.objective].mean(axis=1)
        order = np.argsort(-worth, kind="stable")
        if worth[order[0]] > most:
            best, most = tuning[:, order[0]], worth[order[0]]
        elite = drawn[:, order[: max(2, config.candidates // ELITE)]]
        mean, spread = elite.mean(axis=1), elite.std(axis=1) + 0.02  # a floor: the search must not freeze early
        progress(config.candidates * config.trials)
    return best


def run(config: WorstCase, executor: Executor | None = None) -> files.Table:
    """Search for each learner. Return one row per learner and adversary, with default and tuned parameters.

    With an executor, one search per learner runs in it.

    Raises:
        BadInput: the game is invalid, or the workers are forked.
        BatchFailed: a worker failed.
    """
    if executor is not None:
        check_workers(executor)
        sent = {name: executor.submit(_run, replace(config, learners=(name,))) for name in config.learners}
        with cancel_on_error(sent.values()):
            return files.stack([result_of(future, name) for name, future in sent.items()])
    prepared = prepare(config.sweep(), trials=np.arange(config.trials))
    pool = prepared.adaptive_pool()
    fresh = 10_000 + np.arange(100)  # trials that the search did not use: no selection bias
    names, default = [x.name for x in _numbers(prepared.environment)], _start(prepared)
    rows = []
    total = len(config.learners) * config.steps * config.candidates * config.trials
    with jax.enable_x64(True), tqdm(total=total, unit=" games", disable=None) as bar:
        for learner in prepared.learners:
            found = search(config, prepared, pool, learner, bar.update)
            both = simulate_parameters(prepared, pool, learner, np.column_stack([default, found]), fresh)
            for i, (kind, tuning) in enumerate((("default", default), ("tuned", found))):
                one = {name: values[i] for name, values in both.items()}
                columns = {"learner": learner.name, "environment": prepared.environment_name}
                columns |= {"objective": config.objective, "adversary": kind}
                rows.append(columns | dict(zip(names, tuning, strict=True)) | _summary(one))
    return files.frame(rows)


def _run(config: WorstCase) -> files.Table:
    machine.use_compilation_cache()
    return run(config)


def _summary(one: dict[str, Floats]) -> dict[str, Any]:
    """Return the columns of a row from the measurements [trials] of one adversary."""
    answering = one["inefficiency"] < 0.5
    return {
        "risk_per_round": one["risk"].mean(),
        "risk_of_bound": (one["risk"] / one["risk_bound"]).max(),
        "regret": one["regret"].mean(),
        "regret_of_bound": (one["regret"] / one["regret_bound"]).max(),
        "bound_broken": int((one["regret"] > one["regret_bound"]).sum()),
        "games": len(answering),
        "inefficiency": one["inefficiency"].mean(),
        "answering_games": int(answering.sum()),  # abstained in less than half of the rounds
        "fdr_of_answering_games": one["fdr"][answering].mean() if answering.any() else np.nan,
    }
