"""Make command-line flags from the fields of dataclasses."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from inspect import get_annotations
from types import UnionType
from typing import Any, NamedTuple, NoReturn, get_args, get_origin, get_type_hints

from exaul.commands.terminal import HelpPrinted
from exaul.engine.checks import LONGEST, BadInput, typed


class Command(NamedTuple):
    """A command: dataclasses whose fields are its flags, and the function of the given values that runs it."""

    configurations: tuple[type, ...]
    run: Callable[[Mapping[str, Any]], int]  # returns the exit status


class Parser(argparse.ArgumentParser):
    """A parser that reports errors as ``BadInput``, in one line without the usage."""

    def error(self, message: str) -> NoReturn:
        """Raise ``message`` as BadInput, shortened."""
        raise BadInput(message if len(message) <= 10 * LONGEST else f"{message[: 10 * LONGEST]}...")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Raise HelpPrinted: argparse calls this after printing help or the version."""
        raise HelpPrinted


def add_flags(parser: argparse.ArgumentParser, config: type, names: dict[str, str]) -> None:
    """Add a flag for every field of a dataclass, inherited ones last. A field without default is positional.

    The metadata of a field has ``help`` and ``metavar``; ``names``, and as ``exaul`` the command as it is typed,
    fill the braces in help texts. Flags that are not given are absent from the parsed namespace, so that a caller
    can tell a default from a given value.
    """
    hints = get_type_hints(config)
    for f in sorted(fields(config), key=lambda f: f.name not in get_annotations(config)):
        text = f.metadata["help"].format(exaul=typed(), **names).replace("%", "%%")
        several = get_origin(hints[f.name]) is tuple
        if f.default is MISSING:
            parser.add_argument(f.name, help=text, metavar=f.metadata["metavar"], nargs="+" if several else None)
            continue
        flag = "--" + f.name.replace("_", "-")
        if hints[f.name] is bool:
            parser.add_argument(flag, action="store_true", help=text, default=argparse.SUPPRESS)
            continue
        if f.default not in (None, (), "") and "(default" not in text:
            shown = " ".join(map(str, f.default)) if isinstance(f.default, tuple) else f.default
            text += f" (default: {shown})"
        parser.add_argument(
            flag,
            default=argparse.SUPPRESS,
            help=text,
            metavar=f.metadata["metavar"],
            nargs="+" if several else None,
            type=_scalar(hints[f.name]),
        )


def fields_given(configuration: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given values that are fields of a configuration."""
    return {f.name: given[f.name] for f in fields(configuration) if f.name in given}


def _scalar(hint: Any) -> type:
    """Return the type of one value: float for ``tuple[float, ...]``, int for ``int | None``."""
    while get_origin(hint) is tuple or isinstance(hint, UnionType):
        hint = get_args(hint)[0]
    return hint
