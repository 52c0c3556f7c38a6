"""The table of experiments: where each is defined, and its title. Nothing is imported until an experiment runs."""

from typing import NamedTuple


class ExperimentEntry(NamedTuple):
    """An experiment, before it is imported."""

    place: str  # module:name
    title: str


EXPERIMENTS = {
    "stochastic-easy": ExperimentEntry("experiments.stochastic:easy", "Stochastic, easy questions"),
    "stochastic-hard": ExperimentEntry("experiments.stochastic:hard", "Stochastic, hard questions"),
    "scores": ExperimentEntry("experiments.scores:scores", "Two scores of the same questions"),
    "single-shift": ExperimentEntry("experiments.shift:single", "A single shift"),
    "alternating-shift": ExperimentEntry("experiments.shift:alternating", "Alternating shifts"),
    "gradual-shift": ExperimentEntry("experiments.shift:gradual", "A gradual shift"),
    "alpha-stochastic": ExperimentEntry("experiments.alpha:stochastic", "Every alpha, stochastic"),
    "alpha-shift": ExperimentEntry("experiments.alpha:shift", "Every alpha, under a single shift"),
    "lambda": ExperimentEntry("experiments.weight:weight", "The weight of the FDR"),
    "long-stochastic": ExperimentEntry("experiments.long:stochastic", "A long horizon, stochastic"),
    "long-shift": ExperimentEntry("experiments.long:shift", "A long horizon, one shift at half of it"),
    "regret": ExperimentEntry("experiments.regret:regret", "Regret under the three shifts"),
    "adversary": ExperimentEntry("experiments.reactive:adversary", "An adversary that sees the decisions"),
    "interactive": ExperimentEntry("experiments.reactive:interactive", "An interactive user"),
    "bounds": ExperimentEntry("experiments.bounds:bounds", "Theory against measurement"),
    "feedback": ExperimentEntry("experiments.feedback:feedback", "Rare, late or wrong feedback"),
    "beyond": ExperimentEntry("experiments.beyond:beyond", "Beyond the paper"),
    "advice": ExperimentEntry("experiments.advice:advice", "Advice for records that were not seen"),
}
OVER_TRACES = {"beyond", "advice"}  # experiments that can run all traces of a folder (``--data``)
