"""Flatten, save and load nested settings such as manifests."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from exaul.engine.checks import BadInput


def timestamp() -> str:
    """Return the current time in the format of manifests (ISO 8601, UTC, seconds)."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def flatten(nested: Mapping[str, Any], between: str = "/") -> dict[str, Any]:
    """Return the leaves of nested dictionaries, by joined keys."""
    leaves: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, dict):
            leaves |= {f"{key}{between}{inner}": leaf for inner, leaf in flatten(value, between).items()}
        else:
            leaves[key] = value
    return leaves


def name_with_values(name: str, values: Mapping[str, str]) -> str:
    """Return ``name:a=1,b=2``."""
    return f"{name}:{','.join(f'{key}={value}' for key, value in values.items())}" if values else name


def round_trip_json(nested: Any) -> Any:
    """Return settings as they are read back from JSON; tuples become lists."""
    return json.loads(json.dumps(nested))


def load_json(path: Path) -> Any:
    """Read a JSON file. Raise BadInput if it is missing or unreadable."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadInput(f"{path}: no such file") from error
    except OSError as error:
        raise BadInput(f"{path}: unreadable ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: unreadable ({error})") from error


def save_json(nested: Mapping[str, Any], path: Path) -> None:
    """Write nested settings as JSON."""
    path.write_text(json.dumps(nested, indent=2) + "\n", encoding="utf-8")
