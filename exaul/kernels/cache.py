"""The folder that stores compiled programs between processes."""

import hashlib
import os
from collections.abc import Iterable
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


def hash_of(folder: Path, paths: Iterable[Path]) -> str:
    """Hash source files, to detect whether one has changed.

    Args:
        folder: the parent of all files; its own path does not affect the hash.
        paths: the files, in any order.

    Returns:
        The SHA-256 (FIPS 180-4) of the files' names relative to the folder and their contents, in hexadecimal.

    Raises:
        OSError: a file cannot be read.
    """
    digest = hashlib.sha256()
    for path in sorted(paths):  # file systems list files in different orders
        content = path.read_bytes()
        # The length ends the name, so that no content can imitate the start of the next file.
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()
