"""Hash the source code that the bits of a result depend on."""

import sys
from functools import cache
from pathlib import Path

from exaul.kernels.cache import hash_of

# folders of exaul whose code decides the counts; code that only prints or draws does not enter
HASHED_FOLDERS = ("kernels", "engine/data", "engine/environments", "engine/simulation")


@cache
def engine_hash() -> str:
    """Return the SHA-256 of exaul's Python files in ``HASHED_FOLDERS``."""
    package = Path(__file__).parents[2]
    return hash_of(package, (path for folder in HASHED_FOLDERS for path in (package / folder).rglob("*.py")))


def module_hash(reference: str) -> str:
    """Return the SHA-256 of an imported ``module:name``: of its file, or of all files of its package; or ""."""
    module = sys.modules[reference.split(":")[0].split(".")[0]]
    if getattr(module, "__file__", None) is None:
        return ""
    path = Path(str(module.__file__))
    return hash_of(path.parent, path.parent.rglob("*.py") if path.name == "__init__.py" else [path])
