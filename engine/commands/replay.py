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
    from exaul.engine.abstainer import Abstainer
    from exaul.engine.abstainers import DECIDE, play, reading

    entries, decisions, differ, playing = 0, 0, 0, {}
    with reading(Replay(**given).path) as (config, keys, journal):
        for entry in journal:
            if entry.key not in playing:
                playing[entry.key] = Abstainer(**config | {"key": keys[entry.key]})
            entries += 1
            decisions += entry.kind == DECIDE
            differ += not play(playing[entry.key], entry)
    print(f"{entries} entries of {len(playing)} keys; {decisions} decisions")
    print(f"same decisions: {'yes' if differ == 0 else f'no, {differ} differ'}")
    return int(differ > 0)
