"""The ``exaul`` command: parse the command line and call one command."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from exaul import __version__
from exaul.commands import terminal
from exaul.commands.flags import Command, Parser, add_flags
from exaul.commands.terminal import run_guarded
from exaul.engine.checks import BadInput, as_typed

COMMAND_MODULES = {  # the module of this package that has each command, imported when it is called
    "inspect": ("inspect", "describe a log or a folder of logs: error rate, what thresholds answer, defects"),
    "sweep": ("sweep", "run learners on a log or a profile, and print a summary; --out writes tables and figures"),
    "plan": ("plan", "print the guarantee of each learner, and how many questions a stronger one needs"),
    "serve": ("serve", "decide and learn over HTTP: an API, a page, metrics, a gateway in front of a model"),
    "audits": ("audits", "show the audited answers without a verdict, and judge them by hand or by a model"),
    "journal start": ("journal", "begin a key anew, from a log or because its model has changed"),
    "journal verify": ("journal", "repeat all decisions of a journal, and compare them"),
    "journal export": ("journal", "write the answers of a journal that have feedback as a log"),
    "collect": ("collect", "ask a language model questions, and write a log of scored answers"),
    "score": ("collect", "add scores of answers to rows that exist, by asking a language model"),
    "convert": ("convert", "write the results of another tool as a log of scored answers"),
    "live": ("live", "run a dialogue: a model asks, another answers, a learner decides which answers are shown"),
    "figures": ("sweep", "draw the figures of a finished sweep again; of traces, also those over time"),
    "rerun": ("sweep", "run the sweep of a manifest again, to the same bits"),
    "merge": ("sweep", "join the shards of a sweep"),
    "profiles": ("sweep", "list the built-in profiles"),
    "verify": ("verify", "compare the decisions of fast backends with those of the readable one, in float64"),
}
QUICK_START = """exaul decides when a language model says "I don't know", so that few of its
shown answers are wrong.

  {exaul} sweep
      compare ways to decide, on synthetic answers
  {exaul} sweep --logs LOG.csv
      the same on a log of your model: columns score, and correct or error
  {exaul} inspect LOG.csv
      what such a log allows, and what is wrong with it
  {exaul} serve --state FILE --warm-start LOG.csv --upstream URL
      put a learner between your model and its users

{exaul} --help lists all commands,
and {exaul} COMMAND --help the flags of one."""
SUBPARSERS: Any = {"title": "commands", "required": True, "metavar": "COMMAND"}
COMMAND_GROUPS = {"journal": "verify or export a journal (the file of --state), or begin a key anew"}


def parser(argv: Sequence[str]) -> Parser:
    """Return the parser of the called command, whose module alone is imported; or that of all, without flags."""
    root = Parser(
        prog="exaul",
        description="Decide when a language model says 'I don't know': try learners on a log, then run one.",
    )
    root.words = [name.partition(" ")[0] for name in COMMAND_MODULES]
    root.add_argument("--version", action="version", version=f"exaul {__version__}")
    groups = {"": root.add_subparsers(**SUBPARSERS)}
    called = next(filter(COMMAND_MODULES.get, (" ".join(argv[:2]), *argv[:1])), None)
    for name in COMMAND_MODULES if called is None else (called,):
        module, text = COMMAND_MODULES[name]
        *group, verb = name.split()
        if group and group[0] not in groups:
            help_text = COMMAND_GROUPS[group[0]]
            of_group = groups[""].add_parser(group[0], help=help_text, description=help_text)
            of_group.words = [name.split()[-1] for name in COMMAND_MODULES if name.startswith(group[0])]
            groups[group[0]] = of_group.add_subparsers(**SUBPARSERS | {"metavar": "|".join(of_group.words)})
        sub = groups["".join(group)].add_parser(verb, help=text, description=text)
        if called is not None:
            command: Command = import_module(f"exaul.commands.{module}").COMMANDS[name]
            add_flags(sub, command.configurations)
            sub.epilog = command.examples.format(exaul=as_typed())
            root.words = sub.words  # of the called command; else of all commands
            root.commands_with = commands_with
            sub.set_defaults(run=command.run)
    return root


def commands_with(flag: str) -> list[str]:
    """Return the commands that have a flag; this imports the modules of all."""
    return [name for name in COMMAND_MODULES if flag in parser(name.split()).words]


def name_flags(sentence: str, flags: Sequence[str]) -> str:
    """Return a sentence with flags, as a user types them, for the fields before the colon and NAME=COL after."""
    for name in ("score", "error", "correct"):  # serve has another --score
        flag = next((f"{flag} COL" for flag in (f"--log-{name}", f"--{name}") if flag in flags), f"{name}=COL")
        sentence = sentence.replace(f"{name}=COL", flag)
    fields, colon, message = sentence.partition(": ")
    typed_flags = [f"--{name.replace('_', '-')}" for name in fields.split(", ")]
    return f"{', '.join(typed_flags)}{colon}{message}" if set(typed_flags) <= set(flags) else sentence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    argv = sys.argv[1:] if argv is None else argv
    arguments: dict[str, Any] = {}

    def command() -> int:
        if not argv:
            print(QUICK_START.format(exaul=as_typed()))
            return 0
        if argv[0] == "help":
            return main([*argv[1:], "--help"])
        root = parser(argv)
        arguments.update(vars(root.parse_args(argv)))
        try:
            return int(arguments.pop("run")(arguments))
        except BadInput as error:
            sentence = str(error)
            if sentence.partition(": ")[0] != arguments.get("folder"):  # which may be named "out"
                error.args = (name_flags(sentence, root.words),)
            raise

    def advice() -> str:
        if argv[:1] in (["collect"], ["score"], ["live"]):
            return "; replies are kept: repeat the command to continue"
        from exaul.engine.manifest import resume_advice

        out = arguments.get("resume", arguments.get("out"))
        return f"; {resume_advice(out)}" if argv[:1] == ["sweep"] and out else ""

    return run_guarded("exaul", command, advice)


def entry() -> None:
    """Run the installed command."""
    terminal.entry(main)
