"""Sealed files of arrays: each contains the identity of its sweep and a digest of its content.

A file of another sweep is refused wherever it lies, and so is a file that was changed.
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
# what NumPy and zipfile raise for files that are truncated, damaged or not archives
UNREADABLE = OSError, ValueError, EOFError, KeyError, AttributeError, NotImplementedError, zipfile.BadZipFile


def write(stream: BinaryIO, arrays: Arrays, manifest: Mapping[str, Any]) -> None:
    """Write arrays as ``npz``, with the identity of a manifest and a digest of both."""
    text = np.array(json.dumps(identity(manifest), sort_keys=True))
    content = arrays | {_IDENTITY: text}
    np.savez(stream, **content, **{_DIGEST: np.array(_digest(content))})  # type: ignore[arg-type]


def read(stream: BinaryIO, name: str, manifest: Mapping[str, Any]) -> Arrays:
    """Return the arrays of a file. Raise BadInput if it is unreadable, was changed, or is of another sweep."""
    try:
        archive = np.load(stream, allow_pickle=False)  # a pickle could run code
        content = {key: archive[key] for key in archive.files}
        sealed = str(content.pop(_DIGEST)) == _digest(content)
        # parsed only if the digest is right, so that a damaged file is reported as changed
        belongs = json.loads(str(content.pop(_IDENTITY))) if sealed else {}
    except UNREADABLE as error:
        raise BadInput(f"{name}: unreadable ({error}); remove it to run that part again") from error
    if not sealed:
        raise BadInput(f"{name}: changed since it was written; remove it to run that part again")
    differs = first_difference(belongs, manifest)
    if differs is not None:
        what, sealed_value, manifest_value = differs
        raise BadInput(
            f"{name}: of another sweep: {what} is {quote(sealed_value)} there, "
            f"{quote(manifest_value)} in the manifest"
        )
    return content


def load(path: Path, manifest: Mapping[str, Any]) -> Arrays | None:
    """Return the arrays of the sealed file at a path, or None if there is no file. Errors are those of ``read``."""
    try:
        with path.open("rb") as stream:
            return read(stream, str(path), manifest)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadInput(f"{path}: unreadable ({error.strerror}); remove it to run that part again") from error


def _digest(arrays: Arrays) -> str:
    # of names, types and shapes, too: equal bytes may be different arrays
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
