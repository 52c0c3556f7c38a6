"""The table of environments."""

from engine.environments.alternating_shift import alternating_shift
from engine.environments.gradual_shift import gradual_shift
from engine.environments.oblivious import Environment
from engine.environments.replay import replay
from engine.environments.single_shift import single_shift
from engine.environments.stochastic import stochastic

ENVIRONMENTS: dict[str, Environment] = {
    "stochastic": stochastic,
    "single-shift": single_shift,
    "alternating-shift": alternating_shift,
    "gradual-shift": gradual_shift,
    "replay": replay,
}
