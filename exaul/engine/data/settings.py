"""Nested settings, such as manifests, and their JSON."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from exaul.engine.checks import BadInput


def timestamp() -> str:
    """The time, as manifests have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def flatten(nested: Mapping[str, Any], between: str = "/") -> dict[str, Any]:
    """The leaves of nested dictionaries, by their keys joined."""
    leaves: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, dict):
            leaves |= {f"{key}{between}{inner}": leaf for inner, leaf in flatten(value, between).items()}
        else:
            leaves[key] = value
    return leaves


def unflatten(leaves: Mapping[str, Any], between: str = "/") -> dict[str, Any]:
    """What ``flatten`` took apart, but for dictionaries that were empty."""
    whole: dict[str, Any] = {}
    for name, value in leaves.items():
        *outer, last = name.split(between)
        place = whole
        for key in outer:
            place = place.setdefault(key, {})
        place[last] = value
    return whole


def name_with_values(name: str, values: Mapping[str, str]) -> str:
    """A name in tables and the values that go with it: ``name:a=1,b=2``."""
    return f"{name}:{','.join(f'{key}={value}' for key, value in values.items())}" if values else name


def round_trip_json(manifest: Any) -> Any:
    """Nested settings as they are read back from JSON."""
    return json.loads(json.dumps(manifest))


def load_json(path: Path) -> Any:
    """What ``save_json`` wrote.

    Raises:
        BadInput: the file is missing or unreadable.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadInput(f"{path}: no such file") from error
    except OSError as error:
        raise BadInput(f"{path}: unreadable ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: unreadable ({error})") from error


def save_json(manifest: Mapping[str, Any], path: Path) -> None:
    """Write nested settings as JSON."""
    path.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
