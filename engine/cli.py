"""The command line: results to stdout, all else to stderr; status 0 done, 1 a check failed, 2 bad input."""

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields

from engine.environments import ENVIRONMENTS
from engine.errors import BadInput
from engine.flags import Parser, add_flags
from engine.inspection import Inspect, inspect
from engine.learners import BACKENDS, LEARNERS
from engine.planner import Plan, plan
from engine.sources import PROFILES, load_profile
from engine.sweep import Sweep, run
from engine.verification import verify


def sweep(config: Sweep) -> int:
    """Play a sweep and print its summary."""
    result = run(config, progress=True)
    print(result.summary())
    if config.out is not None:
        print(f"\ntables, figures and manifest: {config.out}")
    if not result.lemma_holds:
        print("Lemma 1 is broken: the accounting is wrong; please report this", file=sys.stderr)
        return 1
    return 0


def profiles() -> int:
    """Print the built-in profiles."""
    print(f"{'profile':<22}{'records':>9}{'error rate':>12}{'ties at 1':>11}  what it is")
    for name, profile in PROFILES.items():
        records = load_profile(name)
        rate, ties = records.errors.mean(), (records.scores == 1).mean()
        print(f"{name:<22}{len(records.scores):>9}{rate:>12.3f}{ties:>11.3f}  {profile.description}")
    return 0


def parser() -> Parser:
    """The parser of all commands."""
    root = Parser(
        prog="exaul",
        allow_abbrev=False,
        description="Online conformal abstention: what would a learner that says 'I don't know' have done?",
    )
    commands = root.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)
    names = {
        "environments": ", ".join(ENVIRONMENTS),
        "learners": ", ".join(LEARNERS),
        "backends": ", ".join(BACKENDS),
    }

    def command(name: str, action: Callable, config: type | None, text: str) -> None:
        sub = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        if config is not None:
            add_flags(sub, config, names)
        sub.set_defaults(action=action, config=config)

    command("sweep", sweep, Sweep, "play learners over a log or a profile; tables, figures and a summary")
    command("profiles", profiles, None, "list the built-in profiles")
    command("verify", verify, Sweep, "certify a sweep's precision and backends against dense float64")
    command("plan", plan, Plan, "what each learner promises before anything is played, and from which T on more")
    command("inspect", inspect, Inspect, "look at a log: error rate, ties, and what fixed thresholds can do")
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    try:
        given = parser().parse_args(argv)
        return given.action(*_configuration(given))
    except BadInput as error:
        print(f"exaul: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("exaul: interrupted; nothing was written", file=sys.stderr)
        return 128 + signal.SIGINT


def _configuration(given: argparse.Namespace) -> list:
    if given.config is None:
        return []
    values = {f.name: getattr(given, f.name) for f in fields(given.config)}
    return [given.config(**values)]


def entry() -> None:
    """The installed command."""
    sys.exit(main())
