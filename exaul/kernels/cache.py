"""The folder that stores compiled programs between processes, and hashes of the code that they depend on."""

import ast
import hashlib
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path


def cache_folder() -> Path | None:
    """Create the folder for compiled programs and return it: ``$XDG_CACHE_HOME/exaul``, or ``~/.cache/exaul``.

    The variable is that of the XDG Base Directory Specification 0.8.

    Returns:
        The folder, or None if it cannot be created or written.
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
    """Hash source files, to detect whether their code has changed; comments and docstrings do not count.

    Args:
        folder: the parent of all files; its own path does not affect the hash.
        paths: the files, in any order.

    Returns:
        The SHA-256 (FIPS 180-4) of the files' names relative to the folder and their code, in hexadecimal.

    Raises:
        OSError: a file cannot be read.
    """
    digest = hashlib.sha256()
    for path in sorted(paths):  # file systems list files in different orders
        content = _code_of(path.read_bytes())
        # The length ends the name, so that no content can imitate the start of the next file.
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _code_of(source: bytes) -> bytes:
    """Return the syntax tree of a file without docstrings, as text; of a file that is not Python, its bytes."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a package may hold templates
        return source
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                del node.body[0]
    return ast.dump(tree).encode()
