"""``worst-case``: search for the adversary parameters with the largest FDR risk or regret of each learner.

The search is SciPy's differential evolution within the bounds of the parameters (of logarithms, if the bounds are
positive), and begins with the defaults. Each candidate is a sweep of some trials. The reported values come from
fresh trials. Only numbers are searched: a tunable that is a word keeps its value. A search runs no fixed sweeps and
claims nothing, so it is no ``Experiment``: it has a configuration and a command.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import differential_evolution
from tqdm import tqdm

from exaul.engine import machine, registry
from exaul.engine import run as sweeps
from exaul.engine.checks import Configuration, check_count, check_known, setting
from exaul.engine.environments.adaptive import Adaptive, Tunable
from exaul.engine.logs import files
from exaul.engine.simulation.prepare import PreparedSource, prepare_source
from exaul.engine.sweep import Sweep
from exaul.kernels.learners.learner import Fixed
from exaul.kernels.metrics import Floats

OBJECTIVES = {"risk": "fdr_risk", "regret": "regret"}  # columns of trials
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

    def play(self, learner: str, tunables: dict[str, float], trials: int, seed: int) -> files.Table:
        """Return trials of a learner against the adversary with these values of its numeric tunables."""
        words = [text for text in self.tunables if text.partition("=")[0] not in tunables]
        texts = (*words, *(f"{name}={value!r}" for name, value in tunables.items()))
        sweep = replace(
            self.sweep(), tunables=texts, learners=(learner,), seed=seed, checkpoints=(1,), trials=trials
        )
        return sweeps.run(sweep).trials


def _numeric_tunables(environment: Any) -> dict[int, Tunable]:
    """Return the numeric tunables of an environment, which can be searched, by their index among all."""
    tunables = environment.tunables if isinstance(environment, Adaptive) else ()
    return {index: x for index, x in enumerate(tunables) if not x.words}


def search(
    config: WorstCase, source: PreparedSource, learner: str, progress: Callable[[int], object]
) -> dict[str, float]:
    """Return the values of the numeric tunables with the largest mean objective over trials, by name."""
    numbers = _numeric_tunables(source.environment)
    low, high = np.array([(x.low, x.high) for x in numbers.values()]).T
    is_positive = low > 0  # searched in logarithms

    def to_values(z: Floats) -> dict[str, float]:
        values = np.clip(np.exp(z, out=z.copy(), where=is_positive), low, high)
        return dict(zip((x.name for x in numbers.values()), values.tolist(), strict=True))

    def negative_objective(z: Floats) -> float:
        progress(config.trials)
        trials = config.play(learner, to_values(z), config.trials, config.seed)
        return -float(trials[OBJECTIVES[config.objective]].mean())

    initial = source.tunable_values[[*numbers]]
    start, lowest, highest = (np.log(x, out=x.copy(), where=is_positive) for x in (initial, low, high))
    shape = len(low), config.candidates
    population = np.random.default_rng(config.seed).uniform(lowest[:, None], highest[:, None], shape).T
    population[0] = start
    with ThreadPoolExecutor() as threads:
        optimum = differential_evolution(
            negative_objective,
            np.column_stack([lowest, highest]),
            init=population,
            maxiter=config.steps - 1,
            tol=0,
            seed=config.seed,
            polish=False,
            updating="deferred",
            workers=threads.map,
        )
    return to_values(optimum.x)


def run(config: WorstCase) -> files.Table:
    """Search for each learner. Return one row per learner and adversary, with default and tuned parameters.

    The rows are of 100 fresh trials with other draws than those of the search: no selection bias.

    Raises:
        BadInput: the game is invalid.
    """
    machine.use_compilation_cache()
    source = prepare_source(config.sweep())
    default = {x.name: float(source.tunable_values[n]) for n, x in _numeric_tunables(source.environment).items()}
    rows, total = [], len(config.learners) * config.steps * config.candidates * config.trials
    with tqdm(total=total, unit=" games", disable=None) as bar:
        for learner in config.learners:
            tuned = search(config, source, learner, bar.update)
            for kind, tunables in (("default", default), ("tuned", tuned)):
                columns = {"learner": learner, "environment": source.environment_name}
                columns |= {"objective": config.objective, "adversary": kind}
                trials = config.play(learner, tunables, 100, config.seed ^ 1)
                rows.append(columns | tunables | _summary_columns(trials))
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
