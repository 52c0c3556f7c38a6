"""Hashes of the sources that the bits of a result depend on."""

import hashlib
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOMS = ("kernels", "engine/data", "engine/environments", "engine/play")  # of exaul, that decide what is counted


@cache
def own() -> str:
    """The SHA-256 of all files of exaul that decide what is counted."""
    package = Path(__file__).parents[2]
    return _digest(package, (path for room in ROOMS for path in (package / room).rglob("*.py")))


def of(place: str) -> str:
    """The SHA-256 of the source behind ``module:name``, which has been imported.

    Of a module of its own that is its file; of a module in a package all files of the package. It is empty where
    there is no file.
    """
    module = sys.modules[place.split(":")[0].split(".")[0]]
    if getattr(module, "__file__", None) is None:
        return ""
    path = Path(str(module.__file__))
    return _digest(path.parent, path.parent.rglob("*.py") if path.name == "__init__.py" else [path])


def _digest(folder: Path, paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()
