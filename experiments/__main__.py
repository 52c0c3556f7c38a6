"""``python -m experiments``: results to stdout, all else to stderr; status 2 for bad input."""

import sys
from collections.abc import Sequence
from dataclasses import fields

from engine.errors import BadInput
from engine.flags import Parser, add_flags
from experiments import worst_case


def parser() -> Parser:
    """The parser of all experiments."""
    root = Parser(prog="python -m experiments", allow_abbrev=False, description="Experiments with the engine.")
    commands = root.add_subparsers(title="experiments", required=True, metavar="NAME", parser_class=Parser)
    text = "search for the parameters of an adversary that press each learner most"
    add_flags(commands.add_parser("worst-case", help=text, description=text), worst_case.WorstCase, {})
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run one experiment and return its exit status."""
    try:
        given = parser().parse_args(argv)
        values = {f.name: getattr(given, f.name) for f in fields(worst_case.WorstCase)}
        values["learners"] = tuple(values["learners"])
        table = worst_case.run(worst_case.WorstCase(**values))
    except BadInput as error:
        print(f"experiments: {error}", file=sys.stderr)
        return 2
    print(table.to_csv(index=False), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
