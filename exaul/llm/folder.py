"""The output folder of a run that calls models: locked during the run, continued by the same command."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from exaul import __version__
from exaul.engine.checks import BadInput, quote
from exaul.engine.folder import explain_errors, lock, lock_new, write_manifest
from exaul.engine.manifest import MANIFEST, load_json, round_trip_json, timestamp
from exaul.llm.flags import EndpointFlags

CALLS_FILE, LOG_FILE = "calls.sqlite", "log.csv"
RUN_FILES = {MANIFEST, CALLS_FILE, f"{CALLS_FILE}-wal", f"{CALLS_FILE}-shm"}  # files of a run without results
CHANGEABLE = (  # fields that may change when a run is continued
    *("out", "key_variable", "judge_key_variable", "concurrent", "per_minute", "retries", "timeout", "price"),
    *("budget", "dry_run", "progress"),
)


@contextmanager
def open_folder(out: str, manifest: Mapping[str, Any], changeable: Sequence[str]) -> Iterator[Path]:
    """Lock a new folder and write its manifest, or lock the folder of the same run.

    A new folder is removed if the body raises BadInput before the run has results. ``changeable`` names further
    fields of the configuration that may change.

    Raises:
        BadInput: the folder holds something else or another run, is in use, or is not writable.
    """
    manifest_path = Path(out) / MANIFEST
    is_new = not manifest_path.is_file()
    with explain_errors(Path(out)), lock_new(out) if is_new else lock(Path(out).resolve()) as folder:
        if is_new:
            write_manifest(folder, manifest)
        else:
            _check_run(load_json(manifest_path), manifest, folder, (*CHANGEABLE, *changeable))
        try:
            yield folder
        except BadInput:
            if is_new and {path.name for path in folder.iterdir()} <= RUN_FILES:
                for name in RUN_FILES:
                    (folder / name).unlink(missing_ok=True)
            raise


def manifest_of(command: str, config: EndpointFlags, **sources: Any) -> dict[str, Any]:
    """Return the manifest of a run before its first call, with its ``sources``."""
    return {
        "command": command,
        "configuration": asdict(config),
        "prompts": {role: hashlib.sha256(text.encode()).hexdigest() for role, text in config.prompts.items()},
        **sources,
        "versions": {name: metadata.version(name) for name in ("openai", "jax", "numpy")} | {"exaul": __version__},
        "start": timestamp(),
        "end": None,
    }


def describe_usage(manifest: Mapping[str, Any]) -> list[str]:
    """Return lines: calls of the last run, calls and cost of all runs, and what is missing, by reason."""
    usage, last_run = manifest["usage"], manifest["usage"]["last run"]
    cost = "" if usage["dollars"] is None else f", ${usage['dollars']:.2f}"
    return [
        f"{last_run['calls']:,} calls made, {last_run['from before']:,} replies reused from folder or equal calls; "
        f"{usage['calls']:,} calls of all runs{cost}",
        *(f"  {reason}: {number:,}" for reason, number in manifest["left out"].items()),
    ]


def _check_run(saved: Any, manifest: Mapping[str, Any], folder: Path, changeable: Sequence[str]) -> None:
    parts = "configuration", "prompts"
    is_manifest = isinstance(saved, dict) and all(isinstance(saved.get(part), dict) for part in parts)
    if not is_manifest or saved.get("command") != manifest["command"]:
        raise BadInput(f"out: {folder} holds something else; a folder that is absent or empty is needed")
    for part in parts:
        for name, value in round_trip_json(manifest[part]).items():
            stored = saved[part].get(name)
            if name not in changeable and value != stored:
                raise BadInput(f"{name}: {quote(value)} found; {folder} was begun with {quote(stored)}")
