"""Shards of a sweep are joined into the sweep."""

from collections.abc import Sequence
from pathlib import Path

from engine import output, tables
from engine.errors import BadInput
from engine.results import Played, join, load_played
from engine.session import difference, read_manifest
from engine.sweep import Result, Sweep, result_of


class Mismatch(ValueError):
    """Shards that are not the parts of one sweep; the sentence says why."""


def _counts(path: Path) -> Played:
    try:
        with path.open("rb") as stream:
            return load_played(stream, str(path))
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; only a sweep with --shard leaves it") from error


def merge(folders: Sequence[str], out: str | None) -> Result:
    """Join the shards of a sweep, in any order.

    Args:
        folders: of all its shards.
        out: folder for the whole, or None.

    Raises:
        BadInput: a folder holds no finished shard, or the output folder cannot be used.
        Mismatch: the shards differ in more than their trials, overlap, or leave a hole.
    """
    shards = []
    for folder in map(Path, folders):
        about = read_manifest(folder)
        if about.get("end") is None:
            raise BadInput(f"{folder}: not finished; go on with: exaul sweep --resume {folder}")
        shards.append((folder, about, _counts(folder / "counts.npz")))
    shards.sort(key=lambda shard: int(shard[2].trials[0]))
    first, about, _ = shards[0]
    for folder, other, _ in shards[1:]:
        differs = difference(about, other, besides=("out", "shard", "logs"))
        if differs is not None:
            name, here, there = differs
            raise Mismatch(f"{name} is {there!r} in {folder}, {here!r} in {first}")
    trials = about["configuration"]["trials"]
    reached = 0
    for folder, _, played in shards:
        start, end = int(played.trials[0]), int(played.trials[-1]) + 1
        if start != reached:
            what = "is missing" if start > reached else "is there twice"
            raise Mismatch(f"trial {min(start, reached)} {what} ({folder} has {start} to {end - 1})")
        reached = end
    if reached != trials:
        raise Mismatch(f"trial {reached} is missing (the sweep has 0 to {trials - 1})")
    whole = about | {
        "configuration": about["configuration"] | {"shard": None, "out": out},
        "batch": max(other["batch"] for _, other, _ in shards),
        "start": min(other["start"] for _, other, _ in shards),
        "end": max(other["end"] for _, other, _ in shards),
    }
    sweep, played = Sweep(**whole["configuration"]), join([played for _, _, played in shards])
    result = result_of(sweep, played, (), whole)
    if out is not None:
        with output.filling(output.claim(out)) as folder:
            result.write(folder, played)
            tables.save_json(whole, folder / "manifest.json")
    return result
