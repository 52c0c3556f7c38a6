"""The folder in which compiled programs are stored between processes."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path


def cache_folder() -> Path | None:
    """Make the folder for compiled programs, ``exaul`` in the user's cache folder.

    That is ``$XDG_CACHE_HOME``, or ``~/.cache`` (XDG Base Directory Specification 0.8).

    Returns:
        The folder, or None where it cannot be made or written.
    """
    try:
        parent = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(parent) / "exaul"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # a read-only disk; a user without a home
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def hash_of(folder: Path, paths: Iterable[Path]) -> str:
    """Hash source files, so that what depends on them can tell whether one has changed.

    Args:
        folder: in which they are; where it lies does not count.
        paths: of the files, in any order.

    Returns:
        The SHA-256 (FIPS 180-4) of their names in the folder and their contents, in hexadecimal.

    Raises:
        OSError: one cannot be read.
    """
    digest = hashlib.sha256()
    for path in sorted(paths):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()
