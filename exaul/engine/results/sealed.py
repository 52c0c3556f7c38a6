"""Sealed files of arrays: each holds the identity of its sweep and a digest of its content.

A file that belongs to another sweep, or that was changed, is refused wherever it lies.
"""

import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from exaul.engine.checks import BadInput, quote
from exaul.engine.results.manifest import first_difference, identity

Arrays = dict[str, NDArray[Any]]
_IDENTITY, _DIGEST = "about.json", "sha256"
UNREADABLE = OSError, ValueError, EOFError, KeyError, AttributeError, NotImplementedError, zipfile.BadZipFile


def write(stream: BinaryIO, arrays: Arrays, manifest: Mapping[str, Any]) -> None:
    """Write arrays as ``npz``, sealed with the identity of a manifest."""
    text = np.array(json.dumps(identity(manifest), sort_keys=True))
    content = arrays | {_IDENTITY: text}
    np.savez(stream, **content, **{_DIGEST: np.array(_digest(content))})  # type: ignore[arg-type]


def read(stream: BinaryIO, name: str, manifest: Mapping[str, Any]) -> Arrays:
    """Return the arrays of a sealed file.

    Raises:
        BadInput: the file cannot be read, was changed, or belongs to another sweep; the sentence has its name.
    """
    try:
        found = np.load(stream, allow_pickle=False)
        content = {key: found[key] for key in found.files}
        sealed = str(content.pop(_DIGEST)) == _digest(content)
        belongs = json.loads(str(content.pop(_IDENTITY))) if sealed else {}
    except UNREADABLE as error:
        raise BadInput(f"{name}: unreadable ({error}); remove it to play that part anew") from error
    if not sealed:
        raise BadInput(f"{name}: changed since it was written; remove it to play that part anew")
    differs = first_difference(belongs, manifest)
    if differs is not None:
        what, there, here = differs
        raise BadInput(f"{name}: of another sweep: {what} is {quote(there)} there, {quote(here)} in the manifest")
    return content


def load(path: Path, manifest: Mapping[str, Any]) -> Arrays | None:
    """Return the arrays of the sealed file at a path, or None if there is no file.

    Raises:
        BadInput: as ``read``.
    """
    try:
        with path.open("rb") as stream:
            return read(stream, str(path), manifest)
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
