"""The folder that stores compiled programs between processes, and hashes of the code that they depend on."""

import ast
import hashlib
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path


def cache_folder() -> Path | None:
    """Create the folder for compiled programs and return it: ``$XDG_CACHE_HOME/exaul``, or ``~/.cache/exaul``.

    The XDG Base Directory Specification 0.8 defines the variable. None if the folder cannot be created or written.
    """
    try:
        parent = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(parent) / "exaul"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # a read-only disk, or a user without a home folder
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


@cache
def kernels_hash() -> str:
    """Return the hash of the code of ``exaul.kernels``. Raise OSError if a file cannot be read."""
    folder = Path(__file__).parent
    return hash_of(folder, folder.rglob("*.py"))


def hash_of(folder: Path, paths: Iterable[Path]) -> str:
    """Return the SHA-256 (FIPS 180-4) of the code of source files and their names in ``folder``, in hexadecimal.

    Comments and docstrings do not count. Raise OSError if a file cannot be read.
    """
    digest = hashlib.sha256()
    for path in sorted(paths):  # file systems list files in different orders
        content = _code_of(path.read_bytes())
        # The length ends the name, so that no content can imitate the start of the next file.
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _code_of(source: bytes) -> bytes:
    """Return the syntax tree of a file without docstrings, as text; the bytes if the file is not Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a package may hold templates
        return source
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node, clean=False) is not None
        ):
            del node.body[0]
    return ast.dump(tree).encode()
