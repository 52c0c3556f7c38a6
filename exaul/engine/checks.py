"""Check user input. Every error is one sentence: the field, what was found, and what is allowed."""

import math
import operator
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from inspect import cleandoc
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

INTEGER_LIMIT = 2**31  # upper limit (exclusive) of trials, arms, checkpoints and rounds
LONGEST_QUOTE = 200  # characters of a value that are quoted in a sentence (chosen)
X = TypeVar("X")
Held = TypeVar("Held")
Given = TypeVar("Given")


class Field(Generic[Held, Given]):
    """The type of a field: what it holds, and for type checkers also what the constructor takes."""

    if TYPE_CHECKING:  # of a descriptor, a dataclass's argument has the type that is set (PEP 681)

        def __get__(self, owner: object, kind: object = None) -> Held: ...
        def __set__(self, owner: object, value: Given) -> None: ...

    else:

        def __class_getitem__(cls, types: tuple[Any, Any]) -> Any:
            return types[0]


Many = Field[tuple[X, ...], X | Iterable[X]]
PathText = str | os.PathLike[str]


class BadInput(ValueError):
    """Unusable input: one sentence that names the field (or file and row), what was found, and what is allowed."""

    def __init__(self, text: str) -> None:
        super().__init__(join_lines(text))  # the sentence may quote a foreign text


def setting(default: Any, text: str, metavar: str | None = None) -> Any:
    """Return a dataclass field with the help text of its flag; default MISSING makes it a positional argument."""
    return field(default=default, metadata={"help": text, "metavar": metavar})


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Configuration:
    """Makes each derived class a dataclass whose fields are flags, each checked against its type.

    The docstring of the class, which ``help`` shows, ends with the help texts of its fields.

    A tuple field accepts a list or a single value, a float field an integer, a field of text a path, and one of
    type ``str | int`` or ``str | float`` such a number, which becomes its text; nothing else is converted.

    Raises:
        BadInput: a value has the wrong type, or is a string that is not UTF-8 or contains a null character.
    """

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)
        texts = [f"    {f.name}: {f.metadata['help'].format(exaul='exaul')}" for f in fields(cls)]  # type: ignore[arg-type]
        cls.__doc__ = "\n".join([cleandoc(cls.__doc__ or ""), "", "Fields:", *texts])

    def __post_init__(self) -> None:
        hints = _hints(type(self))  # type: ignore[arg-type]  # classes are hashable
        for f in fields(self):  # type: ignore[arg-type]
            object.__setattr__(self, f.name, _converted(f.name, getattr(self, f.name), hints[f.name]))


_hints = cache(get_type_hints)  # resolving hints is slow, and thousands of configurations share a class


def _converted(name: str, value: Any, hint: Any) -> Any:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(hint, UnionType):  # X | None, or str | int
        first, *alternatives = get_args(hint)
        if value is None and NoneType in alternatives:
            return None
        number_type = next((kind for kind in alternatives if kind is not NoneType), None)
        if number_type is not None and not isinstance(value, str):
            return str(_converted(name, value, number_type))
        return _converted(name, value, first)
    if get_origin(hint) is tuple:  # tuple[X, ...]
        is_collection = isinstance(value, Iterable) and not isinstance(value, (str, bytes))
        return tuple(_converted(name, item, get_args(hint)[0]) for item in (value if is_collection else (value,)))
    allowed = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}[hint]
    is_bool = type(value).__name__ in ("bool", "bool_")  # Python's or NumPy's: True must not pass as 1
    try:
        if hint is int and not is_bool:
            return operator.index(value)
        if hint is float and not is_bool and isinstance(value, Real):
            return float(value)
        if (hint is bool and is_bool) or (hint is str and isinstance(value, str)):
            return check_legible(name, value) if hint is str else bool(value)
    except (TypeError, OverflowError):
        pass
    raise BadInput(f"{name}: {quote(value)} found; it must be {allowed}")


def check_legible(name: str, text: str) -> str:
    """Return a text that can be written to a UTF-8 file.

    Raises:
        BadInput: the text has unpaired surrogates, as file names in other encodings do, or a null character.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadInput(f"{name}: {quote(text)} found; it must be UTF-8") from error
    if "\0" in text:
        raise BadInput(f"{name}: {quote(text)} found; it must not contain a null character")
    return str(text)


def quote(value: object) -> str:
    """Return the ``repr`` of a value, shortened for use in a sentence."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of thousands of digits
        return "a number of thousands of digits"
    return shorten(text)


def shorten(text: str, limit: int = LONGEST_QUOTE) -> str:
    """Truncate a text to ``limit`` characters."""
    return text if len(text) <= limit else f"{text[:limit]}..."


def join_lines(text: str) -> str:
    """Escape control characters, line breaks and unpaired surrogates, so that a text is one printable line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def name_with_values(name: str, values: Mapping[str, str]) -> str:
    """Return ``name:a=1,b=2``."""
    return f"{name}:{','.join(f'{key}={value}' for key, value in values.items())}" if values else name


def check_known(name: str, values: Iterable[str], table: Iterable[str]) -> None:
    """Raise BadInput, with what was perhaps meant, unless every value is in the table."""
    for value in values:
        if value not in table:
            hint = "; separate values by spaces" if "," in str(value) else meant([value], table)
            raise BadInput(f"{name}: {quote(value)} is unknown; one of {', '.join(table)}{hint}")


def meant(unknown: Iterable[str], words: Iterable[str], least: float = 0.6) -> str:
    """Return the clause that names the words that were perhaps meant by misspelt ones; empty if there are none.

    ``least``, in [0, 1], is how much they must have in common (``difflib``).
    """
    matches = (match for word in unknown for match in get_close_matches(str(word), list(words), 1, least))
    hints = " and ".join(dict.fromkeys(matches))
    return f"; did you mean {hints}?" if hints else ""


def check_holds(name: str, value: object, is_valid: bool, allowed: str) -> None:
    """Raise BadInput, with the value and what is allowed, unless it is valid."""
    if not is_valid:
        raise BadInput(f"{name}: {quote(value)} found; it must be {allowed}")


def check_alpha(name: str, *alphas: float) -> None:
    """Raise BadInput unless each target FDR is in (0, 1)."""
    for alpha in alphas:
        check_holds(name, alpha, 0 < alpha < 1, "in (0, 1), such as 0.1 for 10%")


def check_count(name: str, value: int | None, lower: int = 1) -> None:
    """Raise BadInput unless a value is None or an integer from ``lower`` to 2**31 - 1."""
    if value is not None:
        noun, limits = "" if isinstance(value, Integral) else "an integer ", f"from {lower} to {INTEGER_LIMIT - 1}"
        check_holds(name, value, not noun and lower <= value < INTEGER_LIMIT, noun + limits)


def check_not_negative(name: str, *values: float | None) -> None:
    """Raise BadInput unless each number is None or finite and at least 0."""
    for value in values:
        holds = value is None or (not getattr(value, "ndim", 0) and 0 <= value < math.inf)
        check_holds(name, value, holds, "a finite number >= 0")


def check_positive(name: str, *values: float | None) -> None:
    """Raise BadInput unless each number is None or finite and above 0."""
    for value in values:
        holds = value is None or (not getattr(value, "ndim", 0) and 0 < value < math.inf)
        check_holds(name, value, holds, "a finite number > 0")


def check_installed(names: Iterable[str], advice: str) -> None:
    """Raise BadInput, with advice, unless all packages are installed."""
    if missing := [name for name in names if find_spec(name) is None]:
        raise BadInput(f"{', '.join(missing)}: not installed; {advice}")


def number(text: str) -> float:
    """Return the number in a text; 5% is 0.05. Raise ValueError if there is none."""
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


def integer(text: str) -> int:
    """Return the integer in a text; 1e5 is 100000. Raise ValueError if there is none."""
    value = float(text)  # has not all digits of a large integer
    return int(value) if "e" in text.lower() and value.is_integer() else int(text)


def as_typed(*arguments: str) -> str:
    """Return a command of ``exaul``, called like this process, with some arguments, quoted for a shell."""
    program = Path(sys.argv[0])
    if program.parts[-2:] == ("exaul", "__main__.py"):
        words = ["python", "-m", "exaul"]
    elif program.name == "exaul" and shutil.which("exaul") is None:
        words = [sys.argv[0]]  # called by its path
    else:
        words = ["exaul"]
    # uv sets UV for all that it runs (its reference, "Environment variables")
    return shlex.join([*(["uv", "run"] if "UV" in os.environ else []), *words, *arguments])
