"""Checks of a user's input: each raises one sentence with the field, what was found and what is allowed."""

from collections.abc import Iterable
from dataclasses import field
from typing import Any


class BadInput(ValueError):
    """Input that cannot be used: one sentence that names the file and row, or the field, and what is allowed."""


def setting(default: Any, text: str, metavar: str | None = None) -> Any:
    """A field of a configuration, with the help text of its flag; MISSING makes it a positional argument."""
    return field(default=default, metadata={"help": text, "metavar": metavar})


def known(name: str, values: Iterable[str], table: Iterable[str]) -> None:
    """Check that every value is in the table.

    Raises:
        BadInput: one is not.
    """
    for value in values:
        if value not in table:
            raise BadInput(f"{name}: {value!r} is unknown; one of {', '.join(table)}")


def within(name: str, value: object, holds: bool, allowed: str) -> None:
    """Check that a value is what is allowed.

    Raises:
        BadInput: it is not.
    """
    if not holds:
        raise BadInput(f"{name}: {value} found; it must be {allowed}")
