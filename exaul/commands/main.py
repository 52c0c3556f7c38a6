"""The command line: its commands, and how one of them is called."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from exaul.commands import terminal
from exaul.commands.flags import Parser, add_flags
from exaul.commands.terminal import guarded
from exaul.engine import registry

COMMANDS = {  # each a module of this package, which is imported when the command is called
    "sweep": "play learners over a log or a profile; tables, figures and a summary",
    "merge": "join the shards of a sweep",
    "rerun": "play the sweep of a manifest again, to the same bits",
    "profiles": "list the built-in profiles",
    "verify": "certify a sweep's precision and backends against dense float64",
    "plan": "what each learner promises before anything is played, and from which T on more",
    "replay": "play the journal of Abstainers again: are the decisions the same?",
    "export": "write what was rated in the journal of Abstainers as a log",
    "collect": "ask a language model questions, and write what it answers as a log of scored answers",
    "convert": "write what another tool left as a log of scored answers",
    "live": "play a dialogue: a model asks, a model answers, and a learner decides what is shown",
    "inspect": "look at a log: error rate, ties, and what fixed thresholds can do",
}


def parser(argv: Sequence[str]) -> Parser:
    """The parser of all commands, with the flags of the one that is called.

    A command's module has ``CONFIGURATIONS``, dataclasses whose fields are its flags, and ``main``, which takes the
    values of those that were given, by name, and returns the exit status.
    """
    root = Parser(
        prog="exaul",
        allow_abbrev=False,
        description="Online conformal abstention: what would a learner that says 'I don't know' have done?",
    )
    commands = root.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)
    names = {
        "environments": ", ".join(registry.ENVIRONMENTS),
        "learners": ", ".join(registry.LEARNERS),
        "backends": ", ".join(registry.BACKENDS),
    }
    for name, text in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        if name == next((word for word in argv if not word.startswith("-")), None):
            module = import_module(f"exaul.commands.{name}")
            for configuration in module.CONFIGURATIONS:
                add_flags(sub, configuration, names)
            sub.set_defaults(module=module)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    argv = sys.argv[1:] if argv is None else argv
    given: dict[str, Any] = {}

    def command() -> int:
        given.update(vars(parser(argv).parse_args(argv)))
        return given.pop("module").main(given)

    def advice() -> str:
        if argv[:1] in (["collect"], ["live"]):
            return "; what was replied is kept: run the same again to go on"
        out = given.get("resume", given.get("out"))
        return f"; go on with: exaul sweep --resume {out}" if argv[:1] == ["sweep"] and out else ""

    return guarded("exaul", command, advice)


def entry() -> None:
    """The installed command."""
    terminal.entry(main)
