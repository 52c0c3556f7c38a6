"""``python -m experiments``: results to stdout, all else to stderr; 1 if Lemma 1 is broken, 2 for bad input."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import fields

from engine.errors import BadInput
from engine.flags import Parser, add_flags
from experiments import worst_case
from experiments.paper import LEMMA, Paper
from experiments.report import claims_table
from experiments.run import EXPERIMENTS, play


def reproduce(names: Sequence[str]) -> Callable[[Paper], int]:
    """The command that runs some experiments and prints their claims."""

    def command(paper: Paper) -> int:
        claims = play(paper, names)
        print(claims_table(claims).to_csv(index=False), end="")
        return int(any(claim.claim == LEMMA and not claim.holds for each in claims.values() for claim in each))

    return command


def search(config: worst_case.WorstCase) -> int:
    """Print what the search for the worst case found."""
    print(worst_case.run(config).to_csv(index=False), end="")
    return 0


def parser() -> Parser:
    """The parser of all experiments."""
    root = Parser(prog="python -m experiments", allow_abbrev=False, description="Experiments with the engine.")
    commands = root.add_subparsers(title="experiments", required=True, metavar="NAME", parser_class=Parser)

    def command(name: str, config: type, action: Callable, text: str) -> None:
        sub = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        add_flags(sub, config, {})
        sub.set_defaults(action=action, config=config)

    command("all", Paper, reproduce(list(EXPERIMENTS)), "every experiment below but the search, in one report")
    for name, experiment in EXPERIMENTS.items():
        command(name, Paper, reproduce([name]), experiment.title)
    text = "search for the parameters of an adversary that press each learner most"
    command("worst-case", worst_case.WorstCase, search, text)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    try:
        given = parser().parse_args(argv)
        values = {f.name: getattr(given, f.name) for f in fields(given.config)}
        return given.action(given.config(**values))
    except BadInput as error:
        print(f"experiments: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
