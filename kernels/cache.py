"""The folder in which compiled programs are stored between processes."""

import os
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
