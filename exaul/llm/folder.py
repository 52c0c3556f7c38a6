"""The folder of a run that asks models: locked while it runs; the same run goes on in it."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from exaul import __version__
from exaul.engine.checks import BadInput
from exaul.engine.data import settings
from exaul.engine.results.folder import claim, explaining, lock, made, write_beside
from exaul.llm.asking import Asking
from exaul.llm.prompts import digest, prompts

MANIFEST, CALLS = "manifest.json", "calls.sqlite"
BEGUN = MANIFEST, CALLS, f"{CALLS}-wal", f"{CALLS}-shm"  # what is there before anything has come of it
FREE = (
    "out",
    "key_variable",
    "judge_key_variable",
    "concurrent",
    "per_minute",
    "retries",
    "timeout",
    "price",
    "budget",
    "dry_run",
    "progress",
)


@contextmanager
def begun(out: str, about: Mapping[str, Any], free: Sequence[str]) -> Iterator[Path]:
    """A folder with a manifest, locked: a new one, or one that was begun with the same.

    A new one in which nothing came of it is gone afterwards.

    Args:
        out: the folder.
        about: the manifest, with a command, its configuration and its prompts.
        free: fields of the configuration that may differ, besides those of ``FREE``.

    Raises:
        BadInput: it holds something else, was begun with something else, is in use, or cannot be written.
    """
    there = Path(out) / MANIFEST
    fresh = not there.is_file()
    folder = claim(out) if fresh else Path(out).resolve()
    with explaining(folder), made(folder):
        handle = lock(folder)
        try:
            if fresh:
                write_beside(folder / MANIFEST, lambda path: settings.save_json(about, path))
            else:
                _check(settings.load_json(there), about, folder, (*FREE, *free))
            try:
                yield folder
            except BadInput:
                if fresh and {path.name for path in folder.iterdir()} <= set(BEGUN):
                    for name in BEGUN:
                        (folder / name).unlink(missing_ok=True)
                raise
        finally:
            os.close(handle)


def manifest(command: str, config: Asking, programs: Sequence[str], **more: Any) -> dict[str, Any]:
    """The manifest of a run before its first call.

    Args:
        command: with its kind.
        config: whose key is in none of its fields.
        programs: distributions whose versions matter, besides exaul and aiohttp.
        more: what it reads.

    Raises:
        BadInput: a prompt cannot be used.
    """
    return {
        "command": command,
        "configuration": asdict(config),
        "prompts": {role: digest(text) for role, text in prompts(config.files).items()},
        **more,
        "versions": {name: metadata.version(name) for name in ("aiohttp", *programs)} | {"exaul": __version__},
        "start": settings.now(),
        "end": None,
    }


def _check(before: Any, about: Mapping[str, Any], folder: Path, free: Sequence[str]) -> None:
    if not isinstance(before, dict) or before.get("command") != about["command"]:
        raise BadInput(f"out: {folder} holds something else; a folder that is absent or empty is needed")
    for part in ("configuration", "prompts"):
        for name, value in settings.as_json(about[part]).items():
            found = before.get(part, {}).get(name)
            if name not in free and value != found:
                raise BadInput(f"{name}: {value!r} found; {folder} was begun with {found!r}")
