"""The table of experiments: where each is defined, and its title. Nothing is imported until an experiment runs."""

from typing import TYPE_CHECKING, NamedTuple

from exaul.engine import registry

if TYPE_CHECKING:
    from experiments.experiment import Experiment


class Entry(NamedTuple):
    """An experiment, before it is imported."""

    reference: str  # module:name
    title: str
    figures: str = ""  # of the paper that it draws, by number


EXPERIMENTS = {
    "stochastic-easy": Entry("experiments.simulations:easy", "Stochastic, easy questions", "3, 6"),
    "stochastic-hard": Entry("experiments.simulations:hard", "Stochastic, hard questions", "7, 8"),
    "scores": Entry("experiments.simulations:scores", "Two scores of the same questions", "9, 10"),
    "single-shift": Entry("experiments.simulations:single", "A single shift", "4, 11-13"),
    "alternating-shift": Entry("experiments.simulations:alternating", "Alternating shifts", "14-17"),
    "gradual-shift": Entry("experiments.simulations:gradual", "A gradual shift", "18-21"),
    "alpha-stochastic": Entry("experiments.simulations:alpha_stochastic", "Every alpha, stochastic", "23"),
    "alpha-shift": Entry("experiments.simulations:alpha_shift", "Every alpha, under a single shift", "24"),
    "lambda": Entry("experiments.simulations:weight", "The weight of the FDR", "27, 28"),
    "long-stochastic": Entry("experiments.simulations:long_stochastic", "A long horizon, stochastic", "25"),
    "long-shift": Entry("experiments.simulations:long_shift", "A long horizon, one shift at half of it", "26"),
    "regret": Entry("experiments.simulations:regret", "Regret under the three shifts", "29"),
    "adversary": Entry("experiments.simulations:adversary", "An adversary that sees the decisions", "5"),
    "interactive": Entry("experiments.simulations:interactive", "An interactive user", "22"),
    "bounds": Entry("experiments.bounds:bounds", "Theory against measurement"),
    "feedback": Entry("experiments.feedback:feedback", "Rare, late or wrong feedback"),
    "beyond": Entry("experiments.beyond:beyond", "Beyond the paper"),
    "advice": Entry("experiments.advice:advice", "Advice for records that were not seen"),
}
OVER_TRACES = {"beyond", "advice"}  # experiments that can run all traces of a folder (``--data``)
PAPER_EXPERIMENTS = tuple(name for name in EXPERIMENTS if name not in ("feedback", *OVER_TRACES))


def find_experiment(name: str) -> "Experiment":
    """Return the experiment of a name."""
    return registry.load_object(EXPERIMENTS[name].reference)
