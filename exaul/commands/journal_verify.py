"""``exaul journal verify``: repeat all decisions of a journal, and compare them with the recorded ones."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any

from exaul.engine.checks import Configuration, setting


@dataclass(frozen=True, kw_only=True)
class JournalVerify(Configuration):
    """The journal to verify. Every field is a flag of ``exaul journal verify``."""

    path: str = setting(MISSING, "journal of Abstainers; it may be in use", "FILE")


CONFIGURATIONS = (JournalVerify,)


def main(given: Mapping[str, Any]) -> int:
    """Print the numbers of entries, decisions and different decisions. Return 1 if a decision differs."""
    from exaul.serving.abstainers import replayed
    from exaul.serving.journal import DECIDE

    entries, decisions, differ, keys = 0, 0, 0, set()
    for entry, same in replayed(JournalVerify(**given).path):
        keys.add(entry.key)
        entries += 1
        decisions += entry.kind == DECIDE
        differ += not same
    print(f"{entries} entries of {len(keys)} keys; {decisions} decisions")
    print(f"same decisions: {'yes' if differ == 0 else f'no, {differ} differ'}")
    return int(differ > 0)
