"""``worst-case``: search for the adversary parameters with the largest FDR risk or regret of each learner.

The search is SciPy's differential evolution within the bounds of the parameters (of logarithms, if the bounds are
positive), and begins with the defaults. The candidates of a step are simulated at once, in some trials each. The
reported values come from fresh trials. Only numbers are searched: a tunable that is a word keeps its value. A
search runs no fixed sweeps and claims nothing, so it is no ``Experiment``: it has a configuration and a command.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from scipy.optimize import differential_evolution
from tqdm import tqdm

from exaul.engine import machine, registry
from exaul.engine import run as sweeps
from exaul.engine.checks import Configuration, check_count, check_known, setting
from exaul.engine.environments.adaptive import Adaptive, AdaptivePool, Tunable
from exaul.engine.logs import files
from exaul.engine.simulation.batch import simulate_pass
from exaul.engine.simulation.prepare import PreparedSource, prepare_source
from exaul.engine.simulation.prepare_learner import Cells, PreparedLearner
from exaul.engine.sweep import Sweep
from exaul.kernels import metrics
from exaul.kernels.learners.learner import Fixed
from exaul.kernels.metrics import Floats

OBJECTIVES = ("risk", "regret")
MINIMA = {"candidates": 5, "trials": 1, "steps": 1}  # differential evolution combines several candidates


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
        load, learners = registry.load_object, registry.LEARNERS
        tunable = [name for name, reference in registry.ENVIRONMENTS.items() if _numeric_tunables(load(reference))]
        check_known("environment", (self.environment,), tunable)
        learning = [name for name, reference in learners.items() if not isinstance(load(reference).rule, Fixed)]
        check_known("learners", self.learners, learning)
        check_known("objective", (self.objective,), OBJECTIVES)
        for name, minimum in MINIMA.items():
            check_count(name, getattr(self, name), minimum)

    def sweep(self) -> Sweep:
        """Return one game of the search, as a sweep."""
        names = "environment", "tunables", "learners", "horizon", "arms", "seed"
        return Sweep(alphas=(self.alpha,), **{name: getattr(self, name) for name in names})

    def fresh_trials(self, learner: str, tunables: dict[str, float]) -> files.Table:
        """Return 100 trials of a learner with other draws than those of the search: no selection bias."""
        words = [text for text in self.tunables if text.partition("=")[0] not in tunables]
        texts = (*words, *(f"{name}={value!r}" for name, value in tunables.items()))
        sweep = replace(
            self.sweep(), tunables=texts, learners=(learner,), seed=self.seed ^ 1, checkpoints=(1,), trials=100
        )
        return sweeps.run(sweep).trials


def _numeric_tunables(environment: Any) -> dict[int, Tunable]:
    """Return the numeric tunables of an environment, which can be searched, by their index among all."""
    tunables = environment.tunables if isinstance(environment, Adaptive) else ()
    return {index: x for index, x in enumerate(tunables) if not x.words}


def simulate_parameters(
    config: WorstCase, source: PreparedSource, pool: AdaptivePool, learner: PreparedLearner, values: Floats
) -> Floats:
    """Simulate values of tunables [tunables, candidates], each in the same trials; return the mean objectives."""
    candidates, trials = values.shape[1], np.arange(config.trials)
    # Copies are ordered by candidate, then by trial.
    tunables = np.repeat(source.tunable_values[None], candidates, axis=0)
    tunables[:, [*_numeric_tunables(source.environment)]] = values.T
    # a cell for each candidate: they share the draws of a trial, so they differ by their tunables alone
    start = learner.start
    state = start.state._make(np.repeat(x, candidates) for x in start.state) if start.state else ()
    cells = Cells._make(np.repeat(x, candidates) for x in learner.cells)
    searched = learner._replace(cells=cells, start=start._replace(state=state))
    source = replace(
        source,
        trials=trials,
        checkpoints=np.array([source.horizon]),
        tunable_values=np.repeat(tunables, len(trials), axis=0),
    )
    (learner_run,) = simulate_pass(source, [searched], pool, lambda rounds: None).values()
    assert learner_run.asked is not None
    answered, wrong, alpha = learner_run.answered[-1], learner_run.wrong[-1], source.sweep.alphas[0]
    if config.objective == "risk":
        value = metrics.fdr_risk(answered, wrong, alpha)
    else:
        costs = source.answer_cost[0], source.abstain_cost[0]
        value = metrics.loss(answered, wrong, source.horizon, *costs) - learner_run.asked.counter.best()[0][-1]
    return value.reshape(candidates, -1).mean(axis=1)


def search(
    config: WorstCase,
    source: PreparedSource,
    pool: AdaptivePool,
    learner: PreparedLearner,
    progress: Callable[[int], object],
) -> Floats:
    """Return the values of tunables [tunables] with the largest mean objective over trials."""
    numbers = _numeric_tunables(source.environment)
    low, high = np.array([(x.low, x.high) for x in numbers.values()]).T[..., None]
    is_positive = low > 0  # searched in logarithms

    def to_values(z: Floats) -> Floats:
        return np.clip(np.exp(z, out=z.copy(), where=is_positive), low, high)

    def negative_objective(z: Floats) -> Floats:
        progress(z.shape[1] * config.trials)
        return -simulate_parameters(config, source, pool, learner, to_values(z))

    initial = source.tunable_values[[*numbers], None]
    start, lowest, highest = (np.log(x, out=x.copy(), where=is_positive) for x in (initial, low, high))
    population = np.random.default_rng(config.seed).uniform(lowest, highest, (len(low), config.candidates))
    population[:, :1] = start
    optimum = differential_evolution(
        negative_objective,
        np.hstack([lowest, highest]),
        init=population.T,
        maxiter=config.steps - 1,
        tol=0,
        seed=config.seed,
        polish=False,
        updating="deferred",
        vectorized=True,
    )
    return to_values(optimum.x[:, None])[:, 0]


def run(config: WorstCase) -> files.Table:
    """Search for each learner. Return one row per learner and adversary, with default and tuned parameters.

    Raises:
        BadInput: the game is invalid.
    """
    machine.use_compilation_cache()
    source = prepare_source(config.sweep())
    pool = source.adaptive_pool()
    numbers, rows = _numeric_tunables(source.environment), []
    default = source.tunable_values[[*numbers]]
    total = len(config.learners) * config.steps * config.candidates * config.trials
    with jax.enable_x64(True), tqdm(total=total, unit=" games", disable=None) as bar:
        for learner in source.learners:
            tuned = search(config, source, pool, learner, bar.update)
            for kind, values in (("default", default), ("tuned", tuned)):
                tunables = {x.name: float(value) for x, value in zip(numbers.values(), values, strict=True)}
                columns = {"learner": learner.name, "environment": source.environment_name}
                columns |= {"objective": config.objective, "adversary": kind}
                rows.append(columns | tunables | _summary_columns(config.fresh_trials(learner.name, tunables)))
    return files.Table(rows)


def _summary_columns(trials: files.Table) -> dict[str, Any]:
    """Return the columns of a row from the trials of one adversary."""
    lemma = (trials["fdr_bound"] - trials["alpha"]) * trials["answered"]  # where no bound on any sequence is proved
    risk_bound = trials["risk_bound"].fillna(lemma)
    answering_games = trials[trials["inefficiency"] < 0.5]
    return {
        "risk_per_round": (trials["fdr_risk"] / trials["horizon"]).mean(),
        "risk_of_bound": (trials["fdr_risk"] / risk_bound).max(),
        "regret": trials["regret"].mean(),
        "regret_of_bound": (trials["regret"] / trials["regret_bound"]).max(),
        "bound_broken": int((trials["regret"] > trials["regret_bound"]).sum()),
        "games": len(trials),
        "inefficiency": trials["inefficiency"].mean(),
        "answering_games": len(answering_games),  # abstained in less than half of the rounds
        "fdr_of_answering_games": answering_games["fdr"].mean(),
    }
