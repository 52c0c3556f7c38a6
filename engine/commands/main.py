"""The command line: results to stdout, all else to stderr; status 0 done, 1 a check failed, 2 bad input."""

import argparse
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from importlib import import_module

from exaul.engine import registry
from exaul.engine.checks import BadInput
from exaul.engine.commands.flags import Parser, add_flags

COMMANDS = {  # each a module of this package, which is imported when the command is called
    "sweep": "play learners over a log or a profile; tables, figures and a summary",
    "merge": "join the shards of a sweep",
    "rerun": "play the sweep of a manifest again, to the same bits",
    "profiles": "list the built-in profiles",
    "verify": "certify a sweep's precision and backends against dense float64",
    "plan": "what each learner promises before anything is played, and from which T on more",
    "inspect": "look at a log: error rate, ties, and what fixed thresholds can do",
}


def parser(argv: Sequence[str]) -> Parser:
    """The parser of all commands, with the flags of the one that is called.

    A command's module has ``CONFIGURATIONS``, dataclasses whose fields are its flags, and ``main``, which takes one
    object of each and returns the exit status.
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
            module = import_module(f"exaul.engine.commands.{name}")
            for configuration in module.CONFIGURATIONS:
                add_flags(sub, configuration, names)
            sub.set_defaults(module=module)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    argv = sys.argv[1:] if argv is None else argv
    flags = argparse.Namespace()
    try:
        flags = parser(argv).parse_args(argv)
        with _terminable():
            return flags.module.main(
                *(
                    configuration(**{f.name: getattr(flags, f.name) for f in fields(configuration)})
                    for configuration in flags.module.CONFIGURATIONS
                )
            )
    except BadInput as error:
        print(f"exaul: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        out = getattr(flags, "resume", None) or getattr(flags, "out", None)
        advice = f"; go on with: exaul sweep --resume {out}" if hasattr(flags, "resume") and out else ""
        print(f"exaul: interrupted{advice}", file=sys.stderr)
        return 128 + (stop.args[0] if stop.args else signal.SIGINT)


@contextmanager
def _terminable() -> Iterator[None]:
    """Take SIGTERM as an interrupt, where signals can be taken."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt(number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def entry() -> None:
    """The installed command."""
    sys.exit(main())
