"""The table of environments."""

from engine.environments.adaptive import Adaptive
from engine.environments.adversary_history import adversary_history, adversary_history_tuned
from engine.environments.adversary_omniscient import (
    adversary_omniscient,
    adversary_omniscient_patient,
    adversary_omniscient_regret,
)
from engine.environments.alternating_shift import alternating_shift
from engine.environments.always_wrong import always_wrong
from engine.environments.gradual_shift import gradual_shift
from engine.environments.interactive import interactive
from engine.environments.oblivious import Environment
from engine.environments.replay import replay
from engine.environments.single_shift import single_shift
from engine.environments.stochastic import stochastic

ENVIRONMENTS: dict[str, Environment | Adaptive] = {
    "stochastic": stochastic,
    "single-shift": single_shift,
    "alternating-shift": alternating_shift,
    "gradual-shift": gradual_shift,
    "replay": replay,
    "adversary-history": adversary_history,
    "adversary-history-tuned": adversary_history_tuned,
    "adversary-omniscient": adversary_omniscient,
    "adversary-omniscient-patient": adversary_omniscient_patient,
    "adversary-omniscient-regret": adversary_omniscient_regret,
    "interactive": interactive,
    "always-wrong": always_wrong,
}
