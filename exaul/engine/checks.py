"""Checks of a user's input: each raises one sentence with the field, what was found and what is allowed."""

import math
import operator
from collections.abc import Iterable
from dataclasses import field, fields
from functools import cache
from numbers import Real
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

MOST = 2**31  # trials, arms, checkpoints and rounds are fewer
LONGEST = 200  # characters of what was found, in a sentence


class BadInput(ValueError):
    """Input that cannot be used: one sentence that names the file and row, or the field, and what is allowed."""


def setting(default: Any, text: str, metavar: str | None = None) -> Any:
    """A field of a configuration, with the help text of its flag; MISSING makes it a positional argument."""
    return field(default=default, metadata={"help": text, "metavar": metavar})


class Configuration:
    """A dataclass whose fields are flags. Each value is checked against the type of its field.

    Where several values are allowed, one alone is taken for a tuple of it. Whole numbers serve as floats; nothing
    else is converted.

    Raises:
        BadInput: a value has another type, or is a text that no file can hold; the sentence names the field.
    """

    def __post_init__(self) -> None:
        hints = _hints(type(self))  # type: ignore[arg-type]  # classes are hashable
        for f in fields(self):  # type: ignore[arg-type]
            object.__setattr__(self, f.name, _typed(f.name, getattr(self, f.name), hints[f.name]))


@cache  # for thousands of one configuration
def _hints(configuration: type) -> dict[str, Any]:
    return get_type_hints(configuration)


def _typed(name: str, value: Any, hint: Any) -> Any:
    if isinstance(hint, UnionType):  # X | None
        return None if value is None else _typed(name, value, get_args(hint)[0])
    if get_origin(hint) is tuple:  # tuple[X, ...]
        several = isinstance(value, Iterable) and not isinstance(value, (str, bytes))
        return tuple(_typed(name, each, get_args(hint)[0]) for each in (value if several else (value,)))
    allowed = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}[hint]
    flag = type(value).__name__ in ("bool", "bool_")  # True is no number, here
    try:
        if hint is int and not flag:
            return operator.index(value)
        if hint is float and not flag and isinstance(value, Real):
            return float(value)
        if (hint is bool and flag) or (hint is str and isinstance(value, str)):
            return check_legible(name, value) if hint is str else bool(value)
    except (TypeError, OverflowError):
        pass
    raise BadInput(f"{name}: {quote(value)} found; it must be {allowed}")


def check_legible(name: str, text: str) -> str:
    """Check that a text can be written to a file, as UTF-8.

    Raises:
        BadInput: it cannot, as names of files in other encodings.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadInput(f"{name}: {quote(text)} found; it must be UTF-8") from error
    if "\0" in text:
        raise BadInput(f"{name}: {quote(text)} found; it must not hold a null character")
    return str(text)


def quote(value: object) -> str:
    """A value as a sentence shows it: shortened where it is long."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return "a number of thousands of digits"
    return shorten(text)


def shorten(text: str) -> str:
    """A text, or its beginning where it is too long for a sentence."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def join_lines(text: str) -> str:
    """A text with its control characters, line breaks and unpaired surrogates escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def check_known(name: str, values: Iterable[str], table: Iterable[str]) -> None:
    """Check that every value is in the table.

    Raises:
        BadInput: one is not.
    """
    for value in values:
        if value not in table:
            raise BadInput(f"{name}: {quote(value)} is unknown; one of {', '.join(table)}")


def check_holds(name: str, value: object, holds: bool, allowed: str) -> None:
    """Check that a value is what is allowed.

    Raises:
        BadInput: it is not.
    """
    if not holds:
        raise BadInput(f"{name}: {quote(value)} found; it must be {allowed}")


def check_count(name: str, value: int | None, least: int = 1) -> None:
    """Check that a whole number, if it is given, is from ``least`` to 2**31 - 1.

    Raises:
        BadInput: it is not.
    """
    check_holds(name, value, value is None or least <= value < MOST, f"from {least} to {MOST - 1}")


def check_not_negative(name: str, value: float | None) -> None:
    """Check that a number, if it is given, is finite and not below 0.

    Raises:
        BadInput: it is not.
    """
    check_holds(name, value, value is None or 0 <= value < math.inf, "a finite number >= 0")


def check_positive(name: str, value: float | None) -> None:
    """Check that a number, if it is given, is finite and above 0.

    Raises:
        BadInput: it is not.
    """
    check_holds(name, value, value is None or 0 < value < math.inf, "a finite number > 0")


def check_manual_rate(name: str, text: str | None) -> None:
    """Check a ``step``, above 0, or a ``drift``, from 0, if it is given.

    Raises:
        BadInput: it is no rate, or not in (0, 1] or [0, 1].
    """
    from exaul.kernels.rates import manual_rate  # here: it imports NumPy, which most commands start without

    try:
        rate = 1.0 if text is None else manual_rate(text)(1)
    except ValueError:
        rate = math.nan
    allowed = f"X or X/sqrt, {'0 <' if name == 'step' else '0 <='} X <= 1"
    check_holds(name, text, 0 <= rate <= 1 and (rate > 0 or name == "drift"), allowed)
