"""Files of arrays that belong to one sweep: each has what that sweep's bits depend on, and a digest of all of it.

A file is never believed by its place: one that came from another sweep, or that was changed, is refused.
"""

import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from exaul.engine.checks import BadInput, shown
from exaul.engine.results.manifest import difference, identity

Arrays = dict[str, NDArray[Any]]
_ABOUT, _DIGEST = "about.json", "sha256"
UNREADABLE = OSError, ValueError, EOFError, KeyError, AttributeError, NotImplementedError, zipfile.BadZipFile


def write(stream: BinaryIO, arrays: Arrays, about: Mapping[str, Any]) -> None:
    """Write arrays of the sweep that a manifest describes, as ``npz``."""
    text = np.array(json.dumps(identity(about), sort_keys=True))
    content = arrays | {_ABOUT: text}
    np.savez(stream, **content, **{_DIGEST: np.array(_digest(content))})  # type: ignore[arg-type]


def read(stream: BinaryIO, name: str, about: Mapping[str, Any]) -> Arrays:
    """What ``write`` wrote.

    Raises:
        BadInput: it cannot be read, was changed, or belongs to another sweep; the sentence has the name.
    """
    try:
        found = np.load(stream, allow_pickle=False)
        content = {key: found[key] for key in found.files}
        sealed = str(content.pop(_DIGEST)) == _digest(content)
        belongs = json.loads(str(content.pop(_ABOUT))) if sealed else {}
    except UNREADABLE as error:
        raise BadInput(f"{name}: unreadable ({error}); remove it to play that part anew") from error
    if not sealed:
        raise BadInput(f"{name}: changed since it was written; remove it to play that part anew")
    differs = difference(belongs, about)
    if differs is not None:
        what, there, here = differs
        raise BadInput(f"{name}: of another sweep: {what} is {shown(there)} there, {shown(here)} in the manifest")
    return content


def load(path: Path, about: Mapping[str, Any]) -> Arrays | None:
    """What ``write`` wrote to a file; None where there is none.

    Raises:
        BadInput: as ``read``.
    """
    try:
        with path.open("rb") as stream:
            return read(stream, str(path), about)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadInput(f"{path}: unreadable ({error.strerror}); remove it to play that part anew") from error


def _digest(arrays: Arrays) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
