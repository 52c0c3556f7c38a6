"""``exaul journal export``: write the rated answers of a journal of Abstainers as a log for sweeps."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from exaul.engine.checks import BadInput, Configuration, quote, setting


@dataclass(frozen=True, kw_only=True)
class JournalExport(Configuration):
    """The journal to export. Every field is a flag of ``exaul journal export``."""

    path: str = setting(MISSING, "journal of Abstainers; it may be in use", "FILE")
    out: str = setting(MISSING, "log to write: a new CSV file", "LOG")


CONFIGURATIONS = (JournalExport,)


def main(given: Mapping[str, Any]) -> int:
    """Write one row for each rated answer: its key, score and error, in the order of the questions."""
    from exaul.engine.data import tables
    from exaul.engine.results.folder import temporary_path
    from exaul.serving.journal import FEEDBACK, read_journal

    config = JournalExport(**given)
    if Path(config.out).exists():
        raise BadInput(f"out: {config.out} exists; it must be a new file")
    rows: dict[str, dict[str, Any]] = {}
    with read_journal(config.path) as journal:
        for entry in journal.entries():
            if entry.kind == FEEDBACK and entry.id not in rows:
                raise BadInput(
                    f"{config.path}: entry {entry.seq}: {quote(entry.id)} has feedback but was not shown"
                )
            if entry.kind == FEEDBACK:
                rows[entry.id]["error"] = entry.error
            elif entry.answered:
                rows[entry.id] = {"key": entry.key, "score": entry.score}
    observed = [row for row in rows.values() if "error" in row]
    if not observed:
        raise BadInput(f"{config.path}: no answer has feedback; at least one is needed")
    part = temporary_path(Path(config.out))
    tables.save(tables.frame(observed), part)
    part.replace(config.out)
    print(f"{len(observed)} rated answers of {len(rows)}: {config.out}")
    return 0
