"""Hashes of the sources that the bits of a result depend on."""

import sys
from functools import cache
from pathlib import Path

from exaul.kernels.cache import hash_of

# of exaul, that decide what is counted
HASHED_FOLDERS = ("kernels", "engine/data", "engine/environments", "engine/simulation")


@cache
def engine_hash() -> str:
    """The SHA-256 of all files of exaul that decide what is counted."""
    package = Path(__file__).parents[2]
    return hash_of(package, (path for room in HASHED_FOLDERS for path in (package / room).rglob("*.py")))


def module_hash(place: str) -> str:
    """The SHA-256 of the source behind ``module:name``, which has been imported.

    Of a module of its own that is its file; of a module in a package all files of the package. It is empty where
    there is no file.
    """
    module = sys.modules[place.split(":")[0].split(".")[0]]
    if getattr(module, "__file__", None) is None:
        return ""
    path = Path(str(module.__file__))
    return hash_of(path.parent, path.parent.rglob("*.py") if path.name == "__init__.py" else [path])
