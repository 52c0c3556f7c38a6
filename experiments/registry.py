"""The table of experiments: where each is defined, and its title. Nothing is imported until an experiment runs."""

from typing import NamedTuple


class ExperimentEntry(NamedTuple):
    """An experiment, before it is imported."""

    place: str  # module:name
    title: str


EXPERIMENTS = {
    "stochastic-easy": ExperimentEntry("experiments.simulations:easy", "Stochastic, easy questions"),
    "stochastic-hard": ExperimentEntry("experiments.simulations:hard", "Stochastic, hard questions"),
    "scores": ExperimentEntry("experiments.simulations:scores", "Two scores of the same questions"),
    "single-shift": ExperimentEntry("experiments.simulations:single", "A single shift"),
    "alternating-shift": ExperimentEntry("experiments.simulations:alternating", "Alternating shifts"),
    "gradual-shift": ExperimentEntry("experiments.simulations:gradual", "A gradual shift"),
    "alpha-stochastic": ExperimentEntry("experiments.simulations:alpha_stochastic", "Every alpha, stochastic"),
    "alpha-shift": ExperimentEntry("experiments.simulations:alpha_shift", "Every alpha, under a single shift"),
    "lambda": ExperimentEntry("experiments.simulations:weight", "The weight of the FDR"),
    "long-stochastic": ExperimentEntry("experiments.simulations:long_stochastic", "A long horizon, stochastic"),
    "long-shift": ExperimentEntry("experiments.simulations:long_shift", "A long horizon, one shift at half of it"),
    "regret": ExperimentEntry("experiments.simulations:regret", "Regret under the three shifts"),
    "adversary": ExperimentEntry("experiments.simulations:adversary", "An adversary that sees the decisions"),
    "interactive": ExperimentEntry("experiments.simulations:interactive", "An interactive user"),
    "bounds": ExperimentEntry("experiments.bounds:bounds", "Theory against measurement"),
    "feedback": ExperimentEntry("experiments.feedback:feedback", "Rare, late or wrong feedback"),
    "beyond": ExperimentEntry("experiments.beyond:beyond", "Beyond the paper"),
    "advice": ExperimentEntry("experiments.advice:advice", "Advice for records that were not seen"),
}
OVER_TRACES = {"beyond", "advice"}  # experiments that can run all traces of a folder (``--data``)
OF_THE_PAPER = tuple(name for name in EXPERIMENTS if name not in ("feedback", *OVER_TRACES))
