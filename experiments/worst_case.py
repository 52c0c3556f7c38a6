"""``worst-case``: tune an adversary's parameters in batch for the largest FDR risk or regret of each learner.

The search is the cross-entropy method: parameters are drawn around what was best so far, between their bounds (in
logarithms where these are positive), each is played in some trials, and the best eighth says where to look next.
What is reported is played anew, with draws that the search has not seen.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from scipy import stats
from tqdm import tqdm

from engine import metrics, tables
from engine.environments import ENVIRONMENTS
from engine.environments.adaptive import Adaptive, World
from engine.errors import BadInput
from engine.flags import known, setting, within
from engine.game import Game, load, prepare
from engine.interaction import Met, meet
from engine.learners import LEARNERS, block_lengths
from engine.metrics import Floats
from engine.rollout import Copies
from engine.sweep import Sweep
from kernels.bounds import lemma_bound

OBJECTIVES = ("risk", "regret")
ELITE = 8  # one in so many parameters says where to look next
SPREAD = 0.3  # of the first draws around the defaults, in units of the range


@dataclass(frozen=True, kw_only=True)
class WorstCase:
    """What to search for. Every field is a flag of ``python -m experiments worst-case``.

    Raises:
        BadInput: a field is out of its range; the sentence names it.
    """

    environment: str = setting("adversary-history", "adversary whose parameters are tuned", "NAME")
    learners: tuple[str, ...] = setting(("exaul", "exp3-ix", "ew"), "learners to press", "NAME")
    objective: str = setting("risk", "what is to be large: risk (of the FDR, a round) or regret", "NAME")
    alpha: float = setting(0.2, "target FDR in (0, 1)", "ALPHA")
    horizon: int = setting(2000, "rounds T of a game", "T")
    arms: int = setting(1000, "thresholds H of the grid", "H")
    candidates: int = setting(64, "parameters that are tried at a step", "N")
    trials: int = setting(16, "games that each is tried in", "N")
    steps: int = setting(6, "of the search", "N")
    seed: int = setting(0, "of all draws", "N")

    def __post_init__(self) -> None:
        adaptive = [name for name, world in ENVIRONMENTS.items() if isinstance(world, Adaptive) and world.tunables]
        known("environment", (self.environment,), adaptive)
        known("learners", self.learners, [name for name, x in LEARNERS.items() if x.rates is not None])
        known("objective", (self.objective,), OBJECTIVES)
        for name in ("candidates", "trials", "steps"):
            within(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")

    def sweep(self) -> Sweep:
        """One game of the search, as a sweep."""
        return Sweep(
            environment=self.environment,
            learners=self.learners,
            alphas=(self.alpha,),
            horizon=self.horizon,
            arms=self.arms,
            seed=self.seed,
        )


def figures(game: Game, name: str, met: Met, candidates: int) -> dict[str, Floats]:
    """The figures [candidates, trials] of the games that were played."""
    answered, wrong, best = (x[-1].reshape(candidates, -1) for x in (met.answered, met.wrong, met.best_loss))
    alpha = game.alpha[0]
    loss = metrics.loss(answered, wrong, game.horizon, game.answer[0], game.abstain[0])
    rates, lengths = game.rates(name), block_lengths(game.horizon)
    bound = LEARNERS[name].regret_bound(*rates, lengths, game.sweep.arms, game.sweep.delta)
    return {
        "risk": metrics.fdr_risk(answered, wrong, alpha) / game.horizon,
        "risk_bound": lemma_bound(answered, bound, game.lam[0]) / game.horizon,
        "regret": loss - best,
        "regret_bound": np.full(loss.shape, bound),
        "fdr": metrics.fdr(answered, wrong, alpha),
        "inefficiency": 1 - answered / game.horizon,
    }


def played(game: Game, world: World, name: str, tuning: Floats, trials: NDArray[np.int64]) -> dict[str, Floats]:
    """The figures of parameters [parameters, candidates], each in the same trials."""
    environment, candidates = game.environment, tuning.shape[1]
    assert isinstance(environment, Adaptive)
    one = game.copies(name, game.backend(name), game.sweep.precision)
    many = candidates * len(trials)
    copies = Copies(
        one.backend,
        one.eta,
        one.gamma,
        np.full(many, game.alpha[0]),
        np.full(many, game.answer[0]),
        np.full(many, game.abstain[0]),
        np.tile(np.arange(len(trials), dtype=np.int32), candidates),
        np.zeros(many, np.int32),
    )
    each = np.repeat(tuning, len(trials), axis=1)
    last = np.array([game.horizon])
    given = copies, environment, world, each, trials, game.sweep.seed, last
    return figures(game, name, meet(*given, lambda rounds: None), candidates)


def search(config: WorstCase, name: str, game: Game, world: World, told: Any) -> Floats:
    """The parameters [parameters] that press a learner most, going by the mean over trials."""
    assert isinstance(game.environment, Adaptive)
    low, high, start = (
        np.array([getattr(x, bound) for x in game.environment.tunables]) for bound in ("low", "high", "default")
    )
    positive = low > 0  # searched in logarithms

    def inwards(x: Floats) -> Floats:
        floor = np.where(positive, low, 1.0)
        logs = np.log(np.where(positive, x, 1.0) / floor) / np.log(np.where(positive, high, np.e) / floor)
        return np.where(positive, logs, (x - low) / (high - low))

    def outwards(y: Floats) -> Floats:
        a, b, linear = low[:, None], high[:, None], ~positive[:, None]
        floor = np.where(linear, 1.0, a)
        return np.where(linear, a + y * (b - a), floor * (np.where(linear, np.e, b) / floor) ** y)

    mean, spread = inwards(start), np.full(len(low), SPREAD)
    rng = np.random.default_rng(config.seed)
    trials = np.arange(config.trials)
    best, most = start, -np.inf
    for _ in range(config.steps):
        drawn = stats.truncnorm.rvs(
            (-mean / spread)[:, None],
            ((1 - mean) / spread)[:, None],
            mean[:, None],
            spread[:, None],
            size=(len(low), config.candidates),
            random_state=rng,
        )
        tuning = outwards(drawn)
        tuning[:, 0] = best
        worth = played(game, world, name, tuning, trials)[config.objective].mean(axis=1)
        order = np.argsort(-worth, kind="stable")
        if worth[order[0]] > most:
            best, most = tuning[:, order[0]], worth[order[0]]
        elite = drawn[:, order[: max(2, config.candidates // ELITE)]]
        mean, spread = elite.mean(axis=1), elite.std(axis=1) + 0.02
        told(config.candidates * config.trials)
    return best


def run(config: WorstCase) -> tables.Table:
    """Search for each learner; a row a learner and adversary: as it is by default, and as it was tuned."""
    sweep = config.sweep()
    game = prepare(sweep, load(sweep), np.arange(config.trials))
    if not isinstance(game.environment, Adaptive):
        raise BadInput(f"environment: {config.environment} does not answer back")
    world = game.world()
    fresh = 10_000 + np.arange(100)  # trials that the search has not seen
    names = [x.name for x in game.environment.tunables]
    default = np.array([x.default for x in game.environment.tunables])
    rows = []
    total = len(config.learners) * config.steps * config.candidates * config.trials
    with jax.enable_x64(True), tqdm(total=total, unit=" games", disable=None) as bar:
        for name in config.learners:
            found = search(config, name, game, world, bar.update)
            both = played(game, world, name, np.column_stack([default, found]), fresh)
            for i, (kind, tuning) in enumerate((("default", default), ("tuned", found))):
                rows.append(_row(config, name, kind, dict(zip(names, tuning, strict=True)), both, i))
    return tables.frame(rows)


def _row(
    config: WorstCase, learner: str, kind: str, tuning: dict[str, float], both: dict[str, Floats], i: int
) -> dict[str, Any]:
    one = {figure: values[i] for figure, values in both.items()}
    counts = one["inefficiency"] < 0.5
    return {
        "learner": learner,
        "environment": config.environment,
        "objective": config.objective,
        "adversary": kind,
        **tuning,
        "risk_per_round": one["risk"].mean(),
        "risk_of_bound": (one["risk"] / one["risk_bound"]).max(),
        "regret": one["regret"].mean(),
        "regret_of_bound": (one["regret"] / one["regret_bound"]).max(),
        "bound_broken": int((one["regret"] > one["regret_bound"]).sum()),
        "games": len(counts),
        "inefficiency": one["inefficiency"].mean(),
        "answering_games": int(counts.sum()),  # that abstained in less than half of the rounds
        "fdr_of_answering_games": one["fdr"][counts].mean() if counts.any() else np.nan,
    }
