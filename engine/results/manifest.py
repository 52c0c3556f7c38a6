"""The manifest of a sweep: what it takes to run it again to the same bits."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from exaul.engine.checks import BadInput
from exaul.engine.data import settings
from exaul.engine.data.records import Records
from exaul.engine.sweep import Sweep


def versions() -> dict[str, str]:
    """The versions of all that the bits of a result depend on."""
    packages = ("exaul", "jax", "jaxlib", "numba", "numpy")
    return {"python": platform.python_version()} | {p: metadata.version(p) for p in packages}


def device() -> str:
    """What JAX computes on."""
    one = jax.devices()[0]
    return f"{one.platform}: {one.device_kind}"


def described(records: Sequence[Records]) -> list[dict[str, Any]]:
    """The name, size and hash of each log or profile, without a path."""
    return [{"name": r.name, "records": len(r.scores), "dropped": r.dropped, "sha256": r.sha256} for r in records]


def manifest(
    sweep: Sweep, horizon: int, segments: int, backends: Mapping[str, str], records: Sequence[Records], start: str
) -> dict[str, Any]:
    """What it takes to run a sweep again, before it has ended.

    Args:
        sweep: its configuration.
        horizon: T.
        segments: of one source each, into which the rounds fall.
        backends: the backend on which each learner plays.
        records: what is played.
        start: when it was started.
    """
    return {
        "configuration": asdict(sweep),
        "horizon": horizon,
        "segments": segments,
        "players": [{"learner": learner, "backend": backend} for learner, backend in backends.items()],
        "records": described(records),
        "versions": versions(),
        "device": device(),
        "precision": sweep.precision,
        "seed": sweep.seed,
        "start": start,
        "end": None,
    }


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder of results.

    Raises:
        BadInput: there is none, or it cannot be read.
    """
    found = settings.load_json(folder / "manifest.json")
    kinds: dict[str, type] = {"configuration": dict, "start": str, "batch": int}
    if not isinstance(found, dict) or not all(isinstance(found.get(key), kind) for key, kind in kinds.items()):
        raise BadInput(f"{folder / 'manifest.json'}: not the manifest of a sweep")
    return found


def refuse_changes(there: Mapping[str, Any], here: Mapping[str, Any], field: str) -> None:
    """Raise a sentence that says what differs between two manifests, of all that bits depend on."""
    found = difference(there, settings.as_json(here))
    if found is not None:
        name, a, b = found
        raise BadInput(f"{field}: {name} is {b!r} here, {a!r} there")


def difference(
    one: Mapping[str, Any], other: Mapping[str, Any], besides: tuple[str, ...] = ("out",)
) -> tuple[str, Any, Any] | None:
    """The first of all that bits depend on in which two manifests differ, and what it is in each; or None.

    Args:
        one: as read from JSON.
        other: as read from JSON.
        besides: fields of the configuration that may differ.
    """
    parts = ("configuration", "horizon", "players", "records", "versions", "device")
    a, b = (settings.flat({part: _numbered(each.get(part)) for part in parts}, ": ") for each in (one, other))
    for name in (*a, *b):
        if name.removeprefix("configuration: ") not in besides and a.get(name) != b.get(name):
            return name, a.get(name), b.get(name)
    return None


def _numbered(value: Any) -> Any:
    """A list of dictionaries as a dictionary of them, from 1."""
    several = isinstance(value, list) and all(isinstance(each, dict) for each in value)
    return {str(i): each for i, each in enumerate(value, 1)} if several else value
