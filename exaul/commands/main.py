"""The command line: its commands, and how one of them is called."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from exaul.commands import terminal
from exaul.commands.flags import Parser, add_flags
from exaul.commands.terminal import run_guarded
from exaul.engine import registry

COMMANDS = {  # each is a module of this package, such as journal_verify, imported when the command is called
    "sweep": "play learners over a log or a profile; tables, figures and a summary",
    "merge": "join the shards of a sweep",
    "rerun": "play the sweep of a manifest again, to the same bits",
    "profiles": "list the built-in profiles",
    "verify": "certify a sweep's precision and backends against dense float64",
    "plan": "what each learner promises before anything is played, and from which T on more",
    "journal verify": "repeat all decisions of a journal, and compare them",
    "journal export": "write the rated answers of a journal as a log",
    "collect": "ask a language model questions, and write what it answers as a log of scored answers",
    "convert": "write what another tool left as a log of scored answers",
    "live": "play a dialogue: a model asks, a model answers, and a learner decides what is shown",
    "inspect": "look at a log: error rate, ties, and what fixed thresholds can do",
}


GROUPS = {"journal": "check or export the journal of Abstainers"}


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
    groups = {"": _commands(root)}
    names = {
        "environments": ", ".join(registry.ENVIRONMENTS),
        "learners": ", ".join(registry.LEARNERS),
        "backends": ", ".join(registry.BACKENDS),
    }
    words = [word for word in argv if not word.startswith("-")]
    for name, text in COMMANDS.items():
        *group, verb = name.split()
        if group and group[0] not in groups:
            help_text = GROUPS[group[0]]
            groups[group[0]] = _commands(
                groups[""].add_parser(group[0], help=help_text, description=help_text, allow_abbrev=False)
            )
        sub = groups["".join(group)].add_parser(verb, help=text, description=text, allow_abbrev=False)
        if name.split() == words[: len(name.split())]:
            module = import_module(f"exaul.commands.{name.replace(' ', '_')}")
            for configuration in module.CONFIGURATIONS:
                add_flags(sub, configuration, names)
            sub.set_defaults(module=module)
    return root


def _commands(parser: Parser) -> Any:
    return parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)


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

    return run_guarded("exaul", command, advice)


def entry() -> None:
    """The installed command."""
    terminal.entry(main)
