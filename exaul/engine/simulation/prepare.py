"""Prepare a source: names become learners (with backends and rates) and an environment, logs become pools.

Later stages look up no name.
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exaul.engine import machine, registry
from exaul.engine.checks import BadInput, name_with_values
from exaul.engine.environments.adaptive import Adaptive, AdaptivePool, make_pool, read_tunables
from exaul.engine.environments.oblivious import Oblivious
from exaul.engine.feedback import describe_feedback
from exaul.engine.logs.log import Records, load_log, split_log, with_distinct_names
from exaul.engine.logs.profiles import load_profile
from exaul.engine.simulation.chunks import TILE, TrialRecords
from exaul.engine.simulation.prepare_learner import PreparedLearner, check_backend, prepare_learner
from exaul.engine.sweep import Sweep
from exaul.kernels.feedback import PERFECT_FEEDBACK
from exaul.kernels.game import ARMS, GRIDS, LOG_ARMS, LOG_GRID, Copies, compute_costs, compute_cuts, log_grid
from exaul.kernels.learners.learner import Learner
from exaul.kernels.metrics import Floats
from exaul.kernels.records import Pool, make_streams

Environment = Oblivious | Adaptive
PAPER_HORIZON = 30_000  # default, the paper's
SAMPLE = 1000  # rows of a built-in profile that stand for a user's log (chosen)


@dataclass(frozen=True)
class PreparedSource:
    """A source of a sweep before it is played: its learners, environment and records, cells and copies."""

    sweep: Sweep
    environment_name: str  # with the values that were set for tunables and feedback
    environment: Environment
    tunable_values: Floats  # [tunables] of an adaptive environment
    learners: tuple[PreparedLearner, ...]
    horizon: int
    checkpoints: NDArray[np.int64]  # [P] rounds, the last the horizon
    grid: Floats  # [H]
    all_records: tuple[Records, ...]  # of the logs or profiles
    records: tuple[Records, ...]  # those that are played
    warm_log: Records | None  # of ``warm_start``
    warm_log_names: dict[str, str]  # by learner, name of the log from which it starts, if any
    trials: NDArray[np.int64]  # numbers of the trials of this shard or batch
    # of all pairs of alpha and lambda, [pairs] each; a learner's cells combine them with its rates
    answer_cost: Floats  # loss of an answer per unit of error
    abstain_cost: Floats  # loss of an abstention

    @property
    def is_adaptive(self) -> bool:
        """Whether the environment is adaptive."""
        return isinstance(self.environment, Adaptive)

    @property
    def name(self) -> str:
        """The names of its records, in their order."""
        return " -> ".join(r.name for r in self.records)

    @property
    def rounds_of_copies(self) -> int:
        """The number of rounds of all copies of these trials."""
        return self.horizon * len(self.trials) * sum(len(learner.cells.pair) for learner in self.learners)

    def trial_records(self) -> TrialRecords:
        """Return the records of an oblivious environment before round 1."""
        assert isinstance(self.environment, Oblivious)
        choose_pool, shuffled, seed = self.environment.choose_pool, self.environment.shuffled, self.sweep.seed
        # without shuffling, all trials meet the same records: one stream of records serves them all
        trials = self.trials if shuffled else self.trials[:1]
        pools = [Pool(compute_cuts(self.grid, r.scores), r.errors) for r in self.records]
        records = make_streams(choose_pool, shuffled, pools, self.horizon, seed, trials)
        return TrialRecords(records, seed, self.trials, self.sweep.feedback != PERFECT_FEEDBACK)

    def adaptive_pool(self) -> AdaptivePool:
        """Return the pool of an adaptive environment."""
        assert isinstance(self.environment, Adaptive)
        numbers = self.tunable_values, self.sweep.seed, self.horizon, self.grid
        return make_pool(self.environment, *numbers, self.records)

    def cell_of_copies(self, learner: PreparedLearner) -> NDArray[np.intp]:
        """Return the cell of each of a learner's copies: all trials of the first cell, then of the next."""
        return np.repeat(np.arange(len(learner.cells.pair)), len(self.trials))

    def copies(self, learner: PreparedLearner) -> Copies:
        """Return a learner's copies."""
        cell, trials = self.cell_of_copies(learner), len(self.trials)
        pair = learner.cells.pair[cell]
        trial = np.tile(np.arange(trials, dtype=np.int32), len(learner.cells.pair))
        environment, copy = self.environment, np.arange(len(trial), dtype=np.int32)
        stream = copy if isinstance(environment, Adaptive) else trial * np.int32(environment.shuffled)
        costs = self.answer_cost[pair], self.abstain_cost[pair]
        eta_scale, gamma_scale = (factor[cell] for factor in learner.cells.factors)
        return Copies(learner.cells.alpha[cell], *costs, stream, trial, eta_scale, gamma_scale)


def prepare_source(sweep: Sweep, records: Sequence[Records] | None = None) -> PreparedSource:
    """Prepare a source of a sweep.

    Args:
        sweep: the configuration.
        records: records in memory that replace the sweep's logs or sources, in their order.

    Raises:
        BadInput: a name, a log, the horizon or a rate cannot be used.
    """
    environment = registry.resolve("environment", sweep.environment)
    is_profile = not sweep.logs and records is None
    learners = _load_learners(sweep, isinstance(environment, Adaptive), is_profile)
    check_backend(sweep, environment)
    # before logs are read and grids made: a sweep that cannot fit should fail at once
    _check_memory(sweep, PAPER_HORIZON if sweep.horizon is None else sweep.horizon, len(learners))
    all_records = _load_records(sweep, environment, records)
    played, warm_log = _split_log(sweep, environment, all_records)
    horizon = _resolve_horizon(sweep, environment, played)
    checkpoints, lambdas = _checkpoints(sweep, horizon), sweep.lambdas or (math.sqrt(horizon),)
    alpha, lam = (x.ravel() for x in np.meshgrid(sweep.alphas, lambdas, indexing="ij"))
    answer_cost, abstain_cost = compute_costs(alpha, lam)
    if warm_log is not None and sweep.grid == LOG_GRID:
        grid = log_grid(sweep.arms or LOG_ARMS, warm_log.scores)
    else:
        grid = GRIDS[sweep.grid](sweep.arms or ARMS, np.concatenate([r.scores for r in played]))
    warm_logs = dict.fromkeys(learners, warm_log)
    if registry.FROM_LOG in learners:
        first = all_records[0]
        sample, _ = split_log(first, SAMPLE / len(first.scores), False, sweep.seed)
        warm_logs[registry.FROM_LOG] = sample._replace(name=f"{SAMPLE:,} drawn rows of {first.name}")

    def ready_learner(name: str) -> PreparedLearner:
        with registry.user_code_errors("learners:", name):
            return prepare_learner(
                sweep, name, learners[name], checkpoints, environment, alpha, lam, grid, warm_logs[name]
            )

    with ThreadPoolExecutor() as threads:  # devices compile the programs of their checks side by side
        ready = list(threads.map(ready_learner, learners))
    _check_rates(sweep, ready)
    tunable_texts, values = dict(text.split("=", 1) for text in sweep.tunables), np.empty(0)
    if tunable_texts or isinstance(environment, Adaptive):
        values = read_tunables(sweep.environment, environment, tunable_texts)
    source = PreparedSource(
        sweep=sweep,
        environment_name=name_with_values(sweep.environment, tunable_texts | describe_feedback(sweep)),
        environment=environment,
        tunable_values=values,
        learners=tuple(ready),
        horizon=horizon,
        checkpoints=checkpoints,
        grid=grid,
        all_records=all_records,
        records=played,
        warm_log=warm_log,
        warm_log_names={name: x.name for name, x in warm_logs.items() if x is not None},
        trials=np.array(sweep.trial_numbers),
        answer_cost=answer_cost,
        abstain_cost=abstain_cost,
    )
    if sweep.user_code:
        from exaul.engine.simulation.user_code import try_user_code  # which imports JAX

        try_user_code(source)
    return source


def _check_rates(sweep: Sweep, learners: Sequence[PreparedLearner]) -> None:
    """Raise BadInput if a rate is given that no learner has."""
    scales = {"eta": "eta_scale", "gamma": "gamma_scale", "steps": "step"}
    for rate, scale in (scales | {"eta_scales": "eta_scale", "gamma_scales": "gamma_scale"}).items():
        nobody_has = all(np.isnan(getattr(x.cells, scale)).all() for x in learners)
        if nobody_has and getattr(sweep, rate) not in (None, (), (1.0,)):
            raise BadInput(f"{rate}: given, but none of the learners has it: {', '.join(x.name for x in learners)}")


def _checkpoints(sweep: Sweep, horizon: int) -> NDArray[np.int64]:
    """Return the rounds at which sums are reported [P]; the last is T. A shorter trace leaves out later ones."""
    if len(sweep.checkpoints) > 1:
        return np.unique([min(int(text), horizon) for text in (*sweep.checkpoints, str(horizon))])
    if sweep.checkpoints == ("log",):
        return np.unique(np.ceil(np.geomspace(1, horizon, sweep.points)).astype(np.int64))
    steps = min(sweep.points, horizon)
    return -(-np.arange(1, steps + 1) * horizon // steps)  # ceil(k T / P)


def _check_memory(sweep: Sweep, horizon: int, learners: int) -> None:
    """Raise BadInput if the host cannot hold even the tables of a sweep and one tile of copies."""
    checkpoint_count, arms = min(sweep.points, horizon), sweep.arms or ARMS
    trials = len(sweep.trial_numbers)
    required = 8 * (TILE * arms + trials * (1 + 2 * sweep.cells * checkpoint_count * learners))
    if required > (free := machine.host_memory()):
        needed, free_bytes = machine.show_bytes(required), machine.show_bytes(free)
        raise BadInput(
            f"trials, arms, checkpoints: {trials}, {arms}, {sweep.points} found; they need at least {needed} "
            f"of memory, and {free_bytes} is free"
        )


def _split_log(
    sweep: Sweep, environment: Environment, records: tuple[Records, ...]
) -> tuple[tuple[Records, ...], Records | None]:
    """Return the records that are played, and the log from which learners start.

    A fraction of the records is the first part of a log that is played in its own order, else a random part, drawn
    from the seed alone. With two pools, it is a part of the first, which alone is known in advance.
    """
    if sweep.warm_start is None:
        return records, None
    if (fraction := sweep.warm_fraction) is None:
        return records, load_log(str(sweep.warm_start), sweep)
    first, *following = records
    in_order = isinstance(environment, Oblivious) and not environment.shuffled
    warm_log, played = split_log(first, fraction, in_order, sweep.seed)
    return (played, *following), warm_log


def _load_learners(sweep: Sweep, is_adaptive: bool, is_profile: bool) -> dict[str, Learner[Any]]:
    """Load the learners by name; in an adaptive environment without comparators, or BadInput if one is named."""
    from_log = is_profile and sweep.warm_start is None
    names = sweep.learners or (*registry.DEFAULT_LEARNERS, *([registry.FROM_LOG] if from_log else []))
    if registry.FROM_LOG in names and not from_log:
        raise BadInput(
            f"learners: {registry.FROM_LOG} found; it starts from a sample of a built-in profile; to start from "
            "a log, choose aci-rank with --warm-start LOG, or --warm-start 0.5 for half of the log that is played"
        )
    learners = {name: registry.resolve("learners", name) for name in names}
    if not is_adaptive:
        return learners
    comparators = [name for name, learner in learners.items() if learner.feedback == "hindsight"]
    if comparators and sweep.learners:
        raise BadInput(
            f"learners: {comparators[0]} found; it needs the best threshold in hindsight before round 1, and the "
            f"records of {sweep.environment} depend on the learner"
        )
    return {name: learner for name, learner in learners.items() if name not in comparators}


def _load_records(sweep: Sweep, environment: Environment, records: Sequence[Records] | None) -> tuple[Records, ...]:
    """Load the records of a sweep, in the order of its flags; BadInput if the environment needs another number."""
    for name in ("each", "least"):
        if getattr(sweep, name) != getattr(Sweep, name):
            raise BadInput(f"{name}: given, but this is one sweep, not one for each trace")
    count = environment.pool_count
    names = sweep.logs or sweep.sources or ("triviaqa-like", "nq-like")[:count]
    kind, size = ("logs" if sweep.logs else "sources", len(names)) if records is None else ("records", len(records))
    if size != count:
        raise BadInput(f"{kind}: {size} given; {sweep.environment} needs {count}")
    if sweep.group is not None and isinstance(environment, Oblivious):
        raise BadInput(f"group: given, but {sweep.environment} does not choose among groups")
    if sweep.group is not None and any(text.startswith("groups=") for text in sweep.tunables):
        raise BadInput("group: given together with a value for groups; choose one of the two")
    if records is not None:
        if sweep.logs or sweep.sources:
            raise BadInput("records: given together with logs or sources; choose one of the two")
        return tuple(records)
    if not sweep.logs and sweep.group is not None:
        raise BadInput("group: given without logs; a built-in profile has no such column")
    if not sweep.logs:
        return tuple(load_profile(name) for name in names)
    return with_distinct_names([load_log(log, sweep, sweep.group) for log in names])


def _resolve_horizon(sweep: Sweep, environment: Environment, records: Sequence[Records]) -> int:
    """Return T; BadInput if it exceeds a log that is read once, in its own order.

    The default uses no record twice if the sources are shorter than PAPER_HORIZON, except in adaptive
    environments, which choose records.
    """
    default = length = environment.pool_count * min(len(r.scores) for r in records)
    if isinstance(environment, Adaptive):
        default = PAPER_HORIZON
    elif environment.shuffled or environment.pool_count > 1:
        default = min(PAPER_HORIZON, length)
    elif sweep.horizon is not None and sweep.horizon > length:
        length_clause = f"{sweep.environment} of {records[0].name} has {length} rounds"
        raise BadInput(f"horizon: {sweep.horizon} found; {length_clause}")
    return default if sweep.horizon is None else sweep.horizon
