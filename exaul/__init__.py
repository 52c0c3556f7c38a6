"""A batched Monte-Carlo engine for online conformal abstention.

``run(Sweep(...))`` runs a sweep, optionally in batches on an executor, and returns its tables. ``resume(folder)``
continues an interrupted sweep, ``rerun(folder)`` repeats a sweep, and ``merge(folders)`` joins shards.
``regret_scaling(sweep, horizons)`` fits how regret grows with T. ``load_log(path)`` returns the scores and errors
of a log. ``make`` returns a learner as pure functions, for your own JAX program; ``play``, ``grid``, ``cuts``,
``regret``, ``regret_bound``, ``risk_bound``, ``environment``, ``keys`` and ``play_in`` go with it. ``Abstainer`` is
a learner for your own program, ``Abstainers`` one for each of many keys. ``Learner``, ``Rates``, ``Decision`` and
the rules ``Sided``, ``Drawn``, ``Ranked``, ``Fixed`` and ``Own`` define a learner of your own, with
``RegretBounds``; and ``Oblivious`` or ``Adaptive``, with what its functions take and return, an environment. The
other names are types of what these take and return. Each name is imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exaul.engine.checks import BadInput as BadInput
    from exaul.engine.environments.adaptive import Adaptive as Adaptive
    from exaul.engine.environments.adaptive import AdaptivePool as AdaptivePool
    from exaul.engine.environments.adaptive import AskedRecord as AskedRecord
    from exaul.engine.environments.adaptive import Objective as Objective
    from exaul.engine.environments.adaptive import Tunable as Tunable
    from exaul.engine.environments.adaptive import draw_index as draw_index
    from exaul.engine.environments.adaptive import draw_record as draw_record
    from exaul.engine.environments.adaptive import word_tunable as word_tunable
    from exaul.engine.environments.oblivious import Oblivious as Oblivious
    from exaul.engine.executors import BatchFailed as BatchFailed
    from exaul.engine.executors import Mismatch as Mismatch
    from exaul.engine.functional import cuts as cuts
    from exaul.engine.functional import grid as grid
    from exaul.engine.functional import make as make
    from exaul.engine.functional import play as play
    from exaul.engine.functional import regret as regret
    from exaul.engine.functional import regret_bound as regret_bound
    from exaul.engine.functional import risk_bound as risk_bound
    from exaul.engine.functional_environments import AdaptiveEnvironment as AdaptiveEnvironment
    from exaul.engine.functional_environments import Game as Game
    from exaul.engine.functional_environments import GameKey as GameKey
    from exaul.engine.functional_environments import GamePool as GamePool
    from exaul.engine.functional_environments import ObliviousEnvironment as ObliviousEnvironment
    from exaul.engine.functional_environments import environment as environment
    from exaul.engine.functional_environments import keys as keys
    from exaul.engine.functional_environments import play_in as play_in
    from exaul.engine.logs.log import Layout as Layout
    from exaul.engine.logs.log import LogLike as LogLike
    from exaul.engine.logs.log import Records as Records
    from exaul.engine.logs.log import load_log as load_log
    from exaul.engine.results.result import PlayedSource as PlayedSource
    from exaul.engine.results.result import Result as Result
    from exaul.engine.run import merge as merge
    from exaul.engine.run import rerun as rerun
    from exaul.engine.run import resume as resume
    from exaul.engine.run import run as run
    from exaul.engine.scaling import regret_scaling as regret_scaling
    from exaul.engine.sweep import Sweep as Sweep
    from exaul.kernels.bounds import RegretBounds as RegretBounds
    from exaul.kernels.game import Array as Array
    from exaul.kernels.game import Rates as Rates
    from exaul.kernels.game import RuleParams as RuleParams
    from exaul.kernels.game import compute_costs as compute_costs
    from exaul.kernels.learners.learner import Drawn as Drawn
    from exaul.kernels.learners.learner import Fixed as Fixed
    from exaul.kernels.learners.learner import Learner as Learner
    from exaul.kernels.learners.learner import Own as Own
    from exaul.kernels.learners.learner import Ranked as Ranked
    from exaul.kernels.learners.learner import Sided as Sided
    from exaul.kernels.play import Decision as Decision
    from exaul.kernels.play import FixedParams as FixedParams
    from exaul.kernels.play import GameLearner as GameLearner
    from exaul.kernels.play import LearnerParams as LearnerParams
    from exaul.kernels.play import Params as Params
    from exaul.kernels.play import RankedParams as RankedParams
    from exaul.kernels.records import Pool as Pool
    from exaul.serving.abstainer import Abstainer as Abstainer
    from exaul.serving.abstainer import AbstainerDecision as AbstainerDecision
    from exaul.serving.abstainers import Abstainers as Abstainers
    from exaul.serving.configuration import AbstainerConfiguration as AbstainerConfiguration
    from exaul.serving.configuration import SharedConfiguration as SharedConfiguration
    from exaul.serving.entries import JournalEntry as JournalEntry
    from exaul.serving.entries import Outcome as Outcome

__version__ = "0.3.0.dev0"

_MODULES = {  # the names of each module
    "engine.checks": "BadInput",
    "engine.environments.adaptive": "Adaptive AdaptivePool AskedRecord Objective Tunable "
    "draw_index draw_record word_tunable",
    "engine.environments.oblivious": "Oblivious",
    "engine.executors": "BatchFailed Mismatch",
    "engine.functional": "cuts grid make play regret regret_bound risk_bound",
    "engine.functional_environments": "AdaptiveEnvironment Game GameKey GamePool ObliviousEnvironment "
    "environment keys play_in",
    "engine.logs.log": "Layout LogLike Records load_log",
    "engine.results.result": "PlayedSource Result",
    "engine.run": "merge rerun resume run",
    "engine.scaling": "regret_scaling",
    "engine.sweep": "Sweep",
    "kernels.bounds": "RegretBounds",
    "kernels.game": "Array Rates RuleParams compute_costs",
    "kernels.learners.learner": "Drawn Fixed Learner Own Ranked Sided",
    "kernels.play": "Decision FixedParams GameLearner LearnerParams Params RankedParams",
    "kernels.records": "Pool",
    "serving.abstainer": "Abstainer AbstainerDecision",
    "serving.abstainers": "Abstainers",
    "serving.configuration": "AbstainerConfiguration SharedConfiguration",
    "serving.entries": "JournalEntry Outcome",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "testing":  # a module, which imports JAX
        return import_module("exaul.testing")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"exaul.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__version__", "testing"])
