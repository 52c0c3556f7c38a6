"""The table of experiments: what ``registry.load`` of the engine imports when one is run, and its title."""

from typing import NamedTuple


class Entry(NamedTuple):
    """An experiment, before it is imported."""

    place: str  # module:name
    title: str


EXPERIMENTS = {
    "stochastic-easy": Entry("experiments.stochastic:easy", "Stochastic, easy questions"),
    "stochastic-hard": Entry("experiments.stochastic:hard", "Stochastic, hard questions"),
    "scores": Entry("experiments.scores:scores", "Two scores of the same questions"),
    "single-shift": Entry("experiments.shift:single", "A single shift"),
    "alternating-shift": Entry("experiments.shift:alternating", "Alternating shifts"),
    "gradual-shift": Entry("experiments.shift:gradual", "A gradual shift"),
    "alpha-stochastic": Entry("experiments.alpha:stochastic", "Every alpha, stochastic"),
    "alpha-shift": Entry("experiments.alpha:shift", "Every alpha, under a single shift"),
    "lambda": Entry("experiments.weight:weight", "The weight of the FDR"),
    "long-stochastic": Entry("experiments.long:stochastic", "A long horizon, stochastic"),
    "long-shift": Entry("experiments.long:shift", "A long horizon, one shift at half of it"),
    "regret": Entry("experiments.regret:regret", "Regret under the three shifts"),
    "adversary": Entry("experiments.reactive:adversary", "An adversary that sees the decisions"),
    "interactive": Entry("experiments.reactive:interactive", "An interactive user"),
    "bounds": Entry("experiments.bounds:bounds", "Theory against measurement"),
    "thumbs": Entry("experiments.thumbs:thumbs", "Thumbs that come rarely, late or wrong"),
    "beyond": Entry("experiments.beyond:beyond", "Beyond the paper"),
}
