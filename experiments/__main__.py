"""``python -m experiments``: results on stdout, messages on stderr.

The exit status is 1 if Lemma 1 or a regression limit is broken. That a claim of the paper does not hold is a
result, not an error.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from exaul.commands import terminal
from exaul.commands.flags import Parser, add_flags, fields_given
from experiments.paper import Paper
from experiments.registry import EXPERIMENTS, PAPER_EXPERIMENTS

if TYPE_CHECKING:
    from experiments.worst_case import WorstCase


def reproduce(names: Sequence[str], paper: Paper, impostors: bool = False, agreement: bool = False) -> int:
    """Run experiments, with their ``impostors``. Print their claims, or their ``agreement`` with the paper."""
    from experiments.report import describe_agreement, describe_claims, has_failed, summary
    from experiments.run import run_experiments

    table = run_experiments(paper, names, impostors)
    terminal.show(describe_agreement(table) if agreement else describe_claims(table))
    print(summary(table), file=sys.stderr)
    return int(has_failed(table))


def search(config: "WorstCase") -> int:
    """Run the worst-case search and print its table."""
    from exaul.engine.logs.files import save
    from experiments.worst_case import run

    save(run(config), sys.stdout)
    return 0


def parser(argv: Sequence[str]) -> Parser:
    """Return the parser.

    The flags of worst-case are added only if it is called, since its module imports JAX.
    """
    root = Parser(prog="python -m experiments", description="Experiments with the engine.")
    commands = root.add_subparsers(title="experiments", required=True, metavar="NAME")

    def command(name: str, text: str, config: type | None, action: Callable[..., Any]) -> None:
        sub = commands.add_parser(name, help=text, description=text)
        if config is not None:
            add_flags(sub, (config,))
        sub.set_defaults(action=action, config=config)

    text = "the paper's experiments; at the end a table of what agrees with its figures and what differs"
    command("paper", text, Paper, partial(reproduce, PAPER_EXPERIMENTS, agreement=True))
    text = "all experiments below except worst-case, in one report"
    command("all", text, Paper, partial(reproduce, tuple(EXPERIMENTS)))
    text = "the same, and which claims fail if another learner takes the place of exaul"
    command("impostors", text, Paper, partial(reproduce, tuple(EXPERIMENTS), impostors=True))
    for name, experiment in EXPERIMENTS.items():
        command(name, experiment.title, Paper, partial(reproduce, (name,)))
    config = import_module("experiments.worst_case").WorstCase if "worst-case" in argv else None
    command("worst-case", "search for the adversary parameters that are worst for each learner", config, search)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    argv = sys.argv[1:] if argv is None else argv

    def command() -> int:
        flags = parser(argv).parse_args(argv)
        return flags.action(flags.config(**fields_given(flags.config, vars(flags))))

    return terminal.run_guarded("experiments", command)


if __name__ == "__main__":
    terminal.entry(main)
