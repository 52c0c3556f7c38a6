"""The manifest of a sweep: all that is needed to repeat it, to the same bits on the same kind of processor."""

import hashlib
import json
import platform
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from exaul.engine import machine
from exaul.engine.checks import BadInput, as_typed, quote
from exaul.engine.sweep import Sweep
from exaul.kernels.cache import hash_of, kernels_hash

MANIFEST = "manifest.json"  # a sweep writes it first
RELEASE = import_module("exaul").__version__  # not from its metadata: it may be on the path uninstalled
# beside the kernels, the code that simulates, and the counts from which profiles are drawn; code that reads flags,
# prints or draws figures does not enter
HASHED_FILES = [f"engine/{x}.py" for x in ("logs/*", "environments/*", "simulation/*", "machine")]
HASHED_FILES += ["engine/logs/profiles.csv"]
# Someone may have edited a manifest: fields that are read must have these types; messages name them in words.
JSON_NAMES = {dict: "an object", list: "a list", str: "a text", int: "an integer", type(None): "null"}
MANIFEST_TYPES: dict[str, tuple[type, ...]] = {
    "configuration": (dict,),
    "sources": (list,),
    "left_out": (int, type(None)),
    "code": (dict,),
    "versions": (dict,),
    "device": (str,),
    "start": (str,),
    "end": (str, type(None)),
}
SOURCE_TYPES: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "horizon": (int,),
    "segments": (int,),
    "learners": (list,),
    "records": (list,),
    "warm_start": (dict, type(None)),
    "answerable": (dict,),
}


def versions() -> dict[str, str]:
    """Return the versions of Python and the packages that the bits of a result depend on."""
    packages = {name: metadata.version(name) for name in ("jax", "jaxlib", "numba", "numpy")}  # imports none
    return {"python": platform.python_version(), "exaul": RELEASE} | packages


def device() -> str:
    """Return platform and kind of the first JAX device."""
    if machine.is_one_cpu():
        return "cpu: cpu"
    import jax

    first = jax.devices()[0]
    return f"{first.platform}: {first.device_kind}"


@cache
def engine_hash() -> str:
    """Return the SHA-256 of the code of exaul's kernels and of the files ``HASHED_FILES``."""
    package = Path(__file__).parents[1]
    files_hash = hash_of(package, (path for name in HASHED_FILES for path in package.glob(name)))
    return hashlib.sha256(f"{kernels_hash()} {files_hash}".encode()).hexdigest()


def module_hash(reference: str) -> str:
    """Return the SHA-256 of the code of an imported ``module:name``: of its file or its package; or ""."""
    module = sys.modules[reference.split(":")[0].split(".")[0]]
    if getattr(module, "__file__", None) is None:
        return ""
    path = Path(str(module.__file__))
    return hash_of(path.parent, path.parent.rglob("*.py") if path.name == "__init__.py" else [path])


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a results folder.

    Raise BadInput if it is missing, unreadable, or not as this version writes it.
    """
    path = folder / MANIFEST
    if folder.is_dir() and not path.exists():
        raise BadInput(f"{path}: no such file; {folder} is no folder of a sweep")
    manifest = load_json(path)
    if not isinstance(manifest, dict) or "configuration" not in manifest:
        raise BadInput(f"{path}: not the manifest of a sweep")
    _check_manifest(path, manifest)
    count = len(manifest["sources"])
    if count == 0 or (count > 1 and not is_over_traces(manifest)):
        raise BadInput(f"{path}: sources has {count} entries; only sweeps over traces have several")
    for source in manifest["sources"]:
        if not isinstance(source, dict):
            raise BadInput(f"{path}: sources has {quote(source)}; it must have objects")
        _check_types(f"{path}: sources", source, SOURCE_TYPES, "")
    return manifest


def is_over_traces(manifest: Mapping[str, Any]) -> bool:
    """Return whether a sweep is over traces; then ``left_out`` is the number of those that are too short."""
    return manifest["left_out"] is not None


def read_finished(folder: Path) -> dict[str, Any]:
    """Read the manifest of a finished sweep; BadInput as in ``read_manifest``, or if it is unfinished."""
    manifest = read_manifest(folder)
    if manifest["end"] is None:
        raise BadInput(f"{folder}: not finished; {resume_advice(str(folder))}")
    return manifest


def _check_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Raise BadInput unless a manifest has fields of the types of this version, and its configuration too."""
    saved, saved_versions = manifest.get("configuration"), manifest.get("versions")
    writer = saved_versions.get("exaul") if isinstance(saved_versions, dict) else None
    release = "another release of exaul" if writer is None else f"exaul {writer}"
    hint = f"{release} wrote the folder and reads it"
    names = {f.name for f in fields(Sweep)}
    for name in sorted(names ^ saved.keys()) if isinstance(saved, dict) else ():
        problem = "is missing" if name in names else "is unknown"
        raise BadInput(f"{path}: configuration: {quote(name)} {problem}; {hint}")
    _check_types(str(path), manifest, MANIFEST_TYPES, "" if writer in (None, RELEASE) else f"; {hint}")
    try:
        Sweep(**manifest["configuration"])
    except BadInput as error:
        raise BadInput(f"{path}: configuration: {error}") from error


def _check_types(where: str, saved: Mapping[str, Any], types: Mapping[str, tuple[type, ...]], advice: str) -> None:
    for name, allowed in types.items():
        if name not in saved or type(saved[name]) not in allowed:
            words = " or ".join(JSON_NAMES[kind] for kind in allowed)
            raise BadInput(f"{where}: {name} is {quote(saved.get(name))}; it must be {words}{advice}")


def identity(manifest: Mapping[str, Any], source_number: int | None = None) -> dict[str, Any]:
    """Return the fields that the bits of a sweep, or of one source by number, depend on, as read back from JSON."""
    names = "configuration", "sources", "left_out", "code", "versions", "device"
    parts: dict[str, Any] = {name: manifest.get(name) for name in names}
    if source_number is not None:
        parts["sources"] = [parts["sources"][source_number]]
    return round_trip_json(parts)


def first_difference(
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    where: str,
    elsewhere: str,
    ignored: tuple[str, ...] = ("out",),
) -> str | None:
    """Return the first difference of two identities as a clause, such as "seed is 1 here, 2 there"; or None.

    Fields of the configuration that are named in ``ignored`` may differ.
    """
    a, b = flatten(first), flatten(second)
    for name in (*a, *b):
        if name.removeprefix("configuration: ") not in ignored and a.get(name) != b.get(name):
            return f"{name} is {quote(a.get(name))} {where}, {quote(b.get(name))} {elsewhere}"
    return None


def flatten(nested: Any, key: str = "") -> dict[str, Any]:
    """Return the leaves of nested dictionaries, and of lists of them, by keys and numbers joined by colons."""
    if isinstance(nested, list) and nested and all(isinstance(item, dict) for item in nested):
        nested = {str(i): item for i, item in enumerate(nested, 1)}
    if not isinstance(nested, Mapping):
        return {key: nested}
    leaves: dict[str, Any] = {}
    for name, inner in nested.items():
        leaves |= flatten(inner, f"{key}: {name}" if key else name)
    return leaves


def resume_advice(out: str) -> str:
    """Return the clause that says how to continue the sweep in a folder, whose manifest may name a user's code."""
    names = list[str]()
    with suppress(BadInput):  # no manifest, or one that --resume refuses
        names = Sweep(**read_manifest(Path(out))["configuration"]).user_code
    return f"continue with: {as_typed('sweep', '--resume', out, *['--trust'] * bool(names))}"


def timestamp() -> str:
    """Return the current time in the format of manifests (ISO 8601, UTC, seconds)."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def round_trip_json(nested: Any) -> Any:
    """Return settings as they are read back from JSON; tuples become lists."""
    return json.loads(json.dumps(nested))


def load_json(path: Path) -> Any:
    """Read a JSON file. Raise BadInput if it is missing or unreadable."""
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(loaded, ensure_ascii=False).encode()  # ValueError for half of a character
        return loaded
    except FileNotFoundError as error:
        raise BadInput(f"{path}: no such file") from error
    except OSError as error:
        raise BadInput(f"{path}: unreadable ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: unreadable ({error})") from error


def save_json(nested: Mapping[str, Any], path: Path) -> None:
    """Write nested settings as JSON."""
    path.write_text(json.dumps(nested, indent=2) + "\n", encoding="utf-8")
