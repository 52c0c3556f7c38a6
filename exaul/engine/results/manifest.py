"""The manifest of a sweep: all that is needed to run it again to the same bits."""

import importlib.util
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import jax

from exaul.engine import settings
from exaul.engine.checks import BadInput, check_holds, quote
from exaul.engine.logs.log import Records
from exaul.engine.sweep import Sweep
from exaul.kernels.cache import hash_of

JSON_NAMES: dict[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "an integer",
    float: "a number",
    type(None): "null",
}
KINDS: dict[str, tuple[type, ...]] = {
    "configuration": (dict,),
    "horizon": (int,),
    "segments": (int,),
    "players": (list,),
    "records": (list,),
    "sources": (dict,),
    "versions": (dict,),
    "device": (str,),
    "start": (str,),
    "end": (str, type(None)),
    "batch": (int,),
    "warm_start": (dict, type(None)),
}
TRACES_KINDS: dict[str, tuple[type, ...]] = {  # of a sweep over traces; each trace has its own manifest
    name: KINDS[name] for name in ("configuration", "sources", "versions", "device", "start", "end")
} | {"traces": (list,)}


def versions() -> dict[str, str]:
    """Return the versions of Python and the packages that the bits of a result depend on."""
    packages = ["exaul", "jax", "jaxlib", "numba", "numpy"]
    packages += ["numba-cuda"] if importlib.util.find_spec("numba_cuda") else []
    return {"python": platform.python_version()} | {p: version(p) for p in packages}


def version(package: str) -> str:
    """Return a package's ``__version__``. Package metadata is not used: exaul may be on the path uninstalled."""
    return str(import_module(package.replace("-", "_")).__version__)


def device() -> str:
    """Return platform and kind of the first JAX device."""
    first = jax.devices()[0]
    return f"{first.platform}: {first.device_kind}"


def describe_records(records: Sequence[Records]) -> list[dict[str, Any]]:
    """Return the name, size and hash of each log or profile, without paths."""
    return [{"name": r.name, "records": len(r.scores), "dropped": r.dropped, "sha256": r.sha256} for r in records]


def sweep_manifest(
    sweep: Sweep,
    warm_start: Mapping[str, Any] | None,
    horizon: int,
    segments: int,
    players: Sequence[Mapping[str, Any]],
    records: Sequence[Records],
    sources: Mapping[str, str],
    start: str,
) -> dict[str, Any]:
    """Return the manifest of a sweep that has not ended: ``end`` is None.

    ``warm_start`` describes the log from which learners start, with the shares that were fitted to it, or is None.
    ``segments`` is the number of segments with one source each. ``players`` are name, backend and feedback of each
    learner, and whether its bound of R_T depends on the number of answers. ``sources`` are hashes of the sources of
    exaul and of the user's modules, by name.
    """
    return {
        "configuration": asdict(sweep),
        "horizon": horizon,
        "segments": segments,
        "players": list(map(dict, players)),
        "records": describe_records(records),
        "warm_start": warm_start,
    } | _run_fields(sweep, sources, start)


def traces_manifest(
    sweep: Sweep, traces: Sequence[Mapping[str, Any]], sources: Mapping[str, str], start: str
) -> dict[str, Any]:
    """Return the manifest of a sweep over traces; ``traces`` are folder and ``describe_records`` of each."""
    return {"configuration": asdict(sweep), "traces": list(traces)} | _run_fields(sweep, sources, start)


def _run_fields(sweep: Sweep, sources: Mapping[str, str], start: str) -> dict[str, Any]:
    return {
        "sources": dict(sources),
        "versions": versions(),
        "device": device(),
        "precision": sweep.precision,
        "seed": sweep.seed,
        "start": start,
        "end": None,
    }


def read_manifest(folder: Path, kinds: Mapping[str, tuple[type, ...]] = KINDS) -> dict[str, Any]:
    """Read the manifest of a results folder, and check its fields by ``kinds``: ``KINDS`` or ``TRACES_KINDS``.

    Raise BadInput if it is missing, unreadable, or not as this version writes it.
    """
    path = folder / "manifest.json"
    manifest = settings.load_json(path)
    if not isinstance(manifest, dict) or "configuration" not in manifest:
        raise BadInput(f"{path}: not the manifest of a sweep")
    if "traces" in manifest and kinds is not TRACES_KINDS:
        raise BadInput(f"{path}: of a sweep over traces; use the manifest in the folder of a trace")
    check_manifest(path, manifest, kinds, Sweep)
    if "batch" in kinds:
        check_holds(f"{path}: batch", manifest["batch"], manifest["batch"] >= 1, "at least 1")
    return manifest


def check_manifest(
    path: Path, manifest: Mapping[str, Any], kinds: Mapping[str, tuple[type, ...]], configuration: type
) -> None:
    """Raise BadInput unless a manifest has fields of these kinds, and its configuration those of a dataclass."""
    saved, versions = manifest["configuration"], manifest.get("versions")
    names = {f.name for f in fields(configuration)}
    for name in sorted(names ^ saved.keys()) if isinstance(saved, dict) else ():
        what = "is missing" if name in names else "is unknown"
        writer = versions.get("exaul") if isinstance(versions, dict) else None
        release = "another release of exaul" if writer is None else f"exaul {writer}"
        raise BadInput(f"{path}: configuration: {quote(name)} {what}; {release} wrote the folder and reads it")
    for name, allowed in kinds.items():
        if name not in manifest or type(manifest[name]) not in allowed:
            words = " or ".join(JSON_NAMES[kind] for kind in allowed)
            raise BadInput(f"{path}: {name} is {quote(manifest.get(name))}; it must be {words}")
    try:
        configuration(**manifest["configuration"])
    except BadInput as error:
        raise BadInput(f"{path}: configuration: {error}") from error


def identity(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that the bits of a result depend on, as they are read back from JSON."""
    what = "configuration", "traces", "horizon", "segments", "players", "records", "warm_start"
    parts = *what, "sources", "versions", "device"
    return settings.round_trip_json({part: manifest.get(part) for part in parts})


def check_unchanged(saved_manifest: Mapping[str, Any], current: Mapping[str, Any], field: str) -> None:
    """Raise BadInput with the first difference if two manifests do not have the same ``identity``."""
    difference = first_difference(saved_manifest, current)
    if difference is not None:
        name, a, b = difference
        raise BadInput(f"{field}: {name} is {quote(b)} here, {quote(a)} there")


def first_difference(
    manifest: Mapping[str, Any], other: Mapping[str, Any], besides: tuple[str, ...] = ("out",)
) -> tuple[str, Any, Any] | None:
    """Return the first difference of two manifests or identities: name and both values; or None.

    Fields of the configuration that are named in ``besides`` may differ.
    """
    a, b = (
        settings.flatten({k: _numbered_lists(v) for k, v in identity(each).items()}, ": ")
        for each in (manifest, other)
    )
    for name in (*a, *b):
        if name.removeprefix("configuration: ") not in besides and a.get(name) != b.get(name):
            return name, a.get(name), b.get(name)
    return None


def _numbered_lists(value: Any) -> Any:
    """Turn a list of dictionaries into a dictionary numbered from 1, so that ``flatten`` enters it."""
    several = isinstance(value, list) and all(isinstance(each, dict) for each in value)
    return {str(i): each for i, each in enumerate(value, 1)} if several else value


# folders of exaul whose code decides the counts; code that only prints or draws does not enter
HASHED_FOLDERS = ("kernels", "engine/logs", "engine/environments", "engine/simulation")


@cache
def engine_hash() -> str:
    """Return the SHA-256 of exaul's Python files in ``HASHED_FOLDERS``."""
    package = Path(__file__).parents[2]
    return hash_of(package, (path for folder in HASHED_FOLDERS for path in (package / folder).rglob("*.py")))


def module_hash(reference: str) -> str:
    """Return the SHA-256 of an imported ``module:name``: of its file, or of all files of its package; or ""."""
    module = sys.modules[reference.split(":")[0].split(".")[0]]
    if getattr(module, "__file__", None) is None:
        return ""
    path = Path(str(module.__file__))
    return hash_of(path.parent, path.parent.rglob("*.py") if path.name == "__init__.py" else [path])
