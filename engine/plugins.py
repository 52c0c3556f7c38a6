"""Learners and environments of a user's own file, named ``module:name`` on the command line."""

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engine.errors import BadInput
from engine.flags import known


def find(field: str, names: Iterable[str], table: dict[str, Any], kinds: tuple[type, ...]) -> None:
    """Enter what ``module:name`` stands for in the table, from the working folder or an installed package.

    Raises:
        BadInput: a name is neither in the table nor to be had, or is something else.
    """
    for given in names:
        module, colon, name = given.partition(":")
        if given in table or not colon:
            known(field, (given,), table)
            continue
        here = str(Path.cwd())
        sys.path.insert(0, here)
        try:
            found = getattr(importlib.import_module(module), name)
        except Exception as error:
            raise BadInput(f"{field}: {given!r} cannot be had ({type(error).__name__}: {error})") from error
        finally:
            sys.path.remove(here)
        if not isinstance(found, kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise BadInput(f"{field}: {given!r} is a {type(found).__name__}; it must be a {wanted}")
        table[given] = found
