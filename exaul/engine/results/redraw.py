"""Draw the figures of a folder of results from its tables and its manifest."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exaul.engine import settings
from exaul.engine.checks import BadInput, join_lines, resume_advice
from exaul.engine.logs import files
from exaul.engine.logs.files import Table
from exaul.engine.results import folder
from exaul.engine.results.manifest import KINDS, TRACES_KINDS, read_manifest


def draw(tabled: Mapping[str, Table], segments: int = 1) -> dict[str, Any]:
    """Return the figures of a folder by name, from its tables by name; ``segments`` as in ``figures.draw``."""
    from exaul.engine.results import figures  # imports matplotlib

    if "traces" in tabled:
        return {"traces": figures.traces_figure(tabled["traces"])}
    drawn = figures.draw(tabled["trials"], tabled["curves"], segments)
    return drawn | ({"asked": figures.asked_figure(tabled["asked"])} if "asked" in tabled else {})


def redraw(path: Path) -> None:
    """Draw all figures of a finished sweep; of a sweep over traces, first those of each trace.

    Raises:
        BadInput: a folder has no finished sweep, its tables cannot be drawn, or it is in use or cannot be written.
    """
    over_traces = holds_traces(path)
    manifest = read_manifest(path, TRACES_KINDS if over_traces else KINDS)
    if manifest["end"] is None:
        raise BadInput(f"{path}: not finished; {resume_advice(str(path))}")
    if over_traces:
        for inner in sorted(path.glob(f"*/{folder.MANIFEST}")):
            redraw(inner.parent)
    asked = ["asked"] if (path / "asked.csv").exists() else []
    names = ["traces"] if over_traces else ["trials", "curves", *asked]
    tabled = {name: files.load(path / f"{name}.csv") for name in names}
    try:
        drawn = draw(tabled, manifest.get("segments", 1))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # a table that someone has edited
        reason = join_lines(f"{type(error).__name__}: {error}")
        raise BadInput(f"{path}: its tables cannot be drawn ({reason})") from error
    with folder.lock(path), folder.fill_atomically(path) as partial:
        folder.write_files(partial, {}, drawn)


def holds_traces(path: Path) -> bool:
    """Return whether a folder holds a sweep over traces; BadInput if it has no manifest."""
    manifest = settings.load_json(path / folder.MANIFEST)
    return isinstance(manifest, dict) and "traces" in manifest
