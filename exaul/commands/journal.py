"""``exaul journal``: check a journal of Abstainers, or export it as a log for sweeps."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from exaul.commands.flags import Command
from exaul.commands.terminal import terminal_width
from exaul.engine.checks import BadInput, Configuration, quote, setting
from exaul.engine.results.text_table import wrap


@dataclass(frozen=True, kw_only=True)
class JournalVerify(Configuration):
    """The journal to verify. Every field is a flag of ``exaul journal verify``."""

    path: str = setting(MISSING, "journal of Abstainers; it may be in use", "FILE")
    trust: bool = setting(False, "import the module that the journal names; this runs its code")


@dataclass(frozen=True, kw_only=True)
class JournalExport(Configuration):
    """The journal to export. Every field is a flag of ``exaul journal export``."""

    path: str = setting(MISSING, "journal of Abstainers; it may be in use", "FILE")
    out: str = setting(MISSING, "log to write: a new CSV file", "LOG")


def verify(given: Mapping[str, Any]) -> int:
    """Repeat all decisions of a journal, and print how many differ. Return 1 if anything does."""
    from exaul.serving.abstainers import replayed
    from exaul.serving.journal import DECIDE

    config = JournalVerify(**given)
    entries, decisions, keys = 0, 0, set()
    differ: list[int] = []
    states: list[int] = []
    for entry, same, same_state in replayed(config.path, config.trust):
        keys.add(entry.key)
        entries += 1
        decisions += entry.kind == DECIDE
        differ += [] if same else [entry.seq]
        states += [entry.seq] if same_state is False else []
    lines = [f"{entries} entries of {len(keys)} keys; {decisions} decisions"]
    for what, numbers in (("decisions", differ), ("saved states", states)):
        verdict = f"no, {len(numbers)} differ, first at entry {min(numbers)}" if numbers else "yes"
        lines.append(f"same {what}: {verdict}")
    print(wrap("\n".join(lines), terminal_width()))
    return int(bool(differ or states))


def export(given: Mapping[str, Any]) -> int:
    """Write one row for each rated answer: its key, score and error, in the order of the questions."""
    from exaul.engine.folder import temporary_path
    from exaul.engine.logs import files
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
    files.save(files.frame(observed), part)
    part.replace(config.out)
    print(f"{len(observed)} rated answers of {len(rows)}: {config.out}")
    return 0


COMMANDS = {
    "journal verify": Command((JournalVerify,), verify),
    "journal export": Command((JournalExport,), export),
}
