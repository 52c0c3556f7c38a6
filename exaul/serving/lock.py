"""The lock of a journal: one process changes the file, and closes no handle of it by accident."""

import fcntl
import os
import threading
from pathlib import Path
from typing import BinaryIO
from weakref import WeakValueDictionary

from exaul.engine.checks import BadInput

# the locks of this process, by device and inode
_locks: WeakValueDictionary[tuple[int, int], BinaryIO] = WeakValueDictionary()
_locks_lock = threading.Lock()


def lock_file(path: Path) -> BinaryIO:
    """Lock a file, and create it if it is missing. The lock ends when the handle is closed, or with the process.

    The lock is on the file itself, whatever its name, and apart from SQLite's own. Closing any handle of a file
    releases SQLite's locks in the same process, so a file that this process has locked is not opened again.

    Raises:
        BadInput: the file is in use.
        OSError: it cannot be opened.
    """
    with _locks_lock:
        if path.exists() and is_locked_here(path):
            raise BadInput(f"{path}: is in use by this process")
        # others must not read a new file: whoever knows its seed can compute the draws
        handle = os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            handle.close()
            raise BadInput(f"{path}: is in use by another process; stop that first") from error
        status = os.fstat(handle.fileno())
        _locks[status.st_dev, status.st_ino] = handle
        return handle


def is_locked(path: Path) -> bool:
    """Return whether this or another process has a file open to change it."""
    if is_locked_here(path):
        return True
    with path.open("rb") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def is_locked_here(path: Path) -> bool:
    """Return whether this process has a file open to change it."""
    status = path.stat()
    handle = _locks.get((status.st_dev, status.st_ino))
    return handle is not None and not handle.closed


def _forget_locks() -> None:
    """Close the handles that a forked process has inherited: the lock stays with its parent, and ends with it."""
    for handle in _locks.values():
        handle.close()
    _locks_lock.release()


os.register_at_fork(before=_locks_lock.acquire, after_in_parent=_locks_lock.release, after_in_child=_forget_locks)
