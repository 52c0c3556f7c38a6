"""``exaul journal verify``: repeat all decisions of a journal, and compare them with the recorded ones."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any

from exaul.commands.terminal import terminal_width
from exaul.engine.checks import Configuration, setting
from exaul.engine.results.text_table import wrap


@dataclass(frozen=True, kw_only=True)
class JournalVerify(Configuration):
    """The journal to verify. Every field is a flag of ``exaul journal verify``."""

    path: str = setting(MISSING, "journal of Abstainers; it may be in use", "FILE")
    trust: bool = setting(False, "import the module that the journal names; this runs its code")


CONFIGURATIONS = (JournalVerify,)


def main(given: Mapping[str, Any]) -> int:
    """Print the numbers of entries and decisions, and what differs from a replay. Return 1 if anything does."""
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
