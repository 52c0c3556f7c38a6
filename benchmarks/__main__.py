"""``python -m benchmarks``: results on stdout, messages on stderr."""

import sys
from collections.abc import Sequence
from importlib import import_module

from exaul.commands import terminal
from exaul.commands.flags import Parser

TEXTS = {
    "throughput": "rounds per second of all backends of all learners, of NumPy, a compiled loop, PyMAB and River",
    "scaling": "cost of a round of exaul against copies, arms and rounds, with fitted exponents",
    "start": "exaul sweep in a new process: first and second start, and memory",
    "service": "Abstainer and exaul serve: latency, journal, many keys, replay, metrics",
    "all": "these four (uv run --group peers): renews their results, and the tables of docs/speed.md",
    "gpu": "rates on an NVIDIA GPU",
}
PUBLISHED = "throughput", "scaling", "start", "service"


def parser() -> Parser:
    """Return the parser of all commands."""
    root = Parser(prog="python -m benchmarks", description="Measure the speed of the engine.")
    commands = root.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")
    for name, text in TEXTS.items():
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--quick", action="store_true", help="take less than a minute and write nothing")
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run benchmarks and return the exit status."""
    return terminal.run_guarded("benchmarks", lambda: measure(argv))


def measure(argv: Sequence[str] | None) -> int:
    """Run benchmarks, print their results, and write them unless they are quick."""
    flags = parser().parse_args(argv)
    import jax  # here, so that --help does not import JAX

    from benchmarks import results
    from exaul.engine import machine

    machine.use_compilation_cache()
    for name in PUBLISHED if flags.command == "all" else (flags.command,):
        with jax.enable_x64(True):
            rows = import_module(f"benchmarks.{name}").run(flags.quick)
        print(results.table(rows))
        if not flags.quick:
            print("written:", results.save(name, rows), file=sys.stderr)
    return 0


if __name__ == "__main__":
    terminal.entry(main)
