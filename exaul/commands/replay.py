"""``exaul replay``: play the journal of Abstainers again, and say whether the decisions are the same."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any

from exaul.engine.checks import Configuration, setting


@dataclass(frozen=True, kw_only=True)
class Replay(Configuration):
    """What to play again. Every field is a flag of ``exaul replay``."""

    path: str = setting(MISSING, "file of Abstainers, which may be in use", "FILE")


CONFIGURATIONS = (Replay,)


def main(given: Mapping[str, Any]) -> int:
    """Print how many entries and decisions there are, and how many decisions differ: status 1 if one does."""
    from exaul.serving.abstainers import DECIDE, replayed

    entries, decisions, differ, keys = 0, 0, 0, set()
    for entry, same in replayed(Replay(**given).path):
        keys.add(entry.key)
        entries += 1
        decisions += entry.kind == DECIDE
        differ += not same
    print(f"{entries} entries of {len(keys)} keys; {decisions} decisions")
    print(f"same decisions: {'yes' if differ == 0 else f'no, {differ} differ'}")
    return int(differ > 0)
