"""``python -m benchmarks``: results to stdout, all else to stderr."""

import json
import sys
from collections.abc import Sequence
from importlib import import_module

from exaul.commands import terminal
from exaul.commands.flags import Parser


def parser() -> Parser:
    """The parser of all commands."""
    root = Parser(prog="python -m benchmarks", allow_abbrev=False, description="How fast the engine is.")
    commands = root.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)
    texts = {
        "throughput": "rounds a second of every backend of every learner, beside the floor, NumPy and packages",
        "interaction": "rounds a second of games that are played round by round, against an adversary",
        "gpu": "rates on an NVIDIA GPU, a case at a time, the most useful ones first",
        "gpu-model": "rates on NVIDIA GPUs, modelled without one (group gpu)",
        "abstainer": "a question and its thumb in a program of one's own, with a journal, many keys, a replay",
        "scaling": "cost of a round of exaul against arms and rounds, with the slopes",
    }
    for name, text in texts.items():
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        if name == "gpu":
            command.add_argument("--minutes", type=float, default=30, help="for all cases (default: 30)")
        else:
            command.add_argument("--quick", action="store_true", help="under a minute, and nothing is written")
        command.set_defaults(command=name, json=False)
        if name == "throughput":
            command.add_argument("--json", action="store_true", help="print the rows as one JSON list instead")
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run one benchmark and return its exit status."""
    return terminal.run_guarded("benchmarks", lambda: measure(argv))


def measure(argv: Sequence[str] | None) -> int:
    """Run one benchmark, print what it measured, and write it unless it is a quick one."""
    flags = parser().parse_args(argv)
    if flags.command == "gpu":
        from benchmarks import gpu

        return gpu.main(flags.minutes)
    import jax  # here, as all that imports it: not for --help

    from benchmarks import stamp
    from exaul.engine.machine import cache

    cache.use_compilation_cache()
    module = import_module(f"benchmarks.{flags.command.replace('-', '_')}")
    with jax.enable_x64(True):
        rows = module.run(flags.quick)
    print(json.dumps(rows) if flags.json else module.table(rows))
    if not flags.quick:
        print("written:", stamp.save(flags.command, rows, module.draw(rows)), file=sys.stderr)
    return 0


if __name__ == "__main__":
    terminal.entry(main)
