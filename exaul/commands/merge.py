"""``exaul merge``: join the shards of a sweep."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any

from exaul.commands.sweep import SummaryFlags, report
from exaul.commands.terminal import refuse
from exaul.engine.checks import setting


@dataclass(frozen=True, kw_only=True)
class Merge(SummaryFlags):
    """The shards to join. Every field is a flag of ``exaul merge``."""

    parts: tuple[str, ...] = setting(MISSING, "folders of all shards of a sweep, in any order", "DIR")
    out: str | None = setting(None, "folder (absent or empty) for tables, figures and manifest", "DIR")


CONFIGURATIONS = (Merge,)


def main(given: Mapping[str, Any]) -> int:
    """Join the shards of a sweep, and print its summary. Return 1 if they do not belong to one sweep."""
    from exaul.engine.run import Mismatch, merge

    config = Merge(**given)
    try:
        result = merge(config.parts, config.out)
    except Mismatch as error:
        return refuse("exaul", str(error), 1)
    return report(result, config.out, config.theory)
