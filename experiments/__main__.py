"""``python -m experiments``: results on stdout, messages on stderr.

The exit status is 1 if Lemma 1 or a regression limit is broken. That a claim of the paper does not hold is a
result, not an error.
"""

import sys
from collections.abc import Sequence
from importlib import import_module

from exaul.commands import terminal
from exaul.commands.flags import Parser, add_flags, fields_given
from experiments.paper import Paper
from experiments.registry import EXPERIMENTS, PAPER_EXPERIMENTS

TEXTS = {
    "paper": "the paper's experiments; at the end a table of what agrees with its figures and what differs",
    "all": "all experiments below except worst-case, in one report",
    "impostors": "the same, and which claims fail if another learner takes the place of exaul",
    **{name: experiment.title for name, experiment in EXPERIMENTS.items()},
    "worst-case": "search for the adversary parameters that are worst for each learner",
}


def reproduce(command: str, paper: Paper) -> int:
    """Run the experiments of a command. Print their claims, or of ``paper`` what agrees and what differs."""
    from experiments.report import describe_agreement, describe_claims, has_failed, summary
    from experiments.run import run_experiments

    several = {"paper": PAPER_EXPERIMENTS, "all": tuple(EXPERIMENTS), "impostors": tuple(EXPERIMENTS)}
    table = run_experiments(paper, several.get(command, (command,)), command == "impostors")
    terminal.show(describe_agreement(table) if command == "paper" else describe_claims(table))
    print(summary(table), file=sys.stderr)
    return int(has_failed(table))


def parser(argv: Sequence[str]) -> Parser:
    """Return the parser, with the flags of the called command alone: the module of worst-case imports SciPy."""
    root = Parser(prog="python -m experiments", description="Experiments with the engine.")
    commands = root.add_subparsers(title="experiments", dest="command", required=True, metavar="NAME")
    for name, text in TEXTS.items():
        sub = commands.add_parser(name, help=text, description=text)
        if name in argv:
            config = Paper if name != "worst-case" else import_module("experiments.worst_case").WorstCase
            add_flags(sub, (config,))
            sub.set_defaults(config=config)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    argv = sys.argv[1:] if argv is None else argv

    def command() -> int:
        flags = parser(argv).parse_args(argv)
        config = flags.config(**fields_given(flags.config, vars(flags)))
        if flags.command != "worst-case":
            return reproduce(flags.command, config)
        from exaul.engine.logs.files import save
        from experiments.worst_case import run

        save(run(config), sys.stdout)
        return 0

    return terminal.run_guarded("experiments", command)


if __name__ == "__main__":
    terminal.entry(main)
