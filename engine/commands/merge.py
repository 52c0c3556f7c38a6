"""``exaul merge``: join the shards of a sweep."""

import sys
from dataclasses import MISSING, dataclass

from exaul.engine.checks import setting
from exaul.engine.commands.sweep import report


@dataclass(frozen=True, kw_only=True)
class Merge:
    """What to join. Every field is a flag of ``exaul merge``."""

    parts: tuple[str, ...] = setting(MISSING, "folders of all shards of a sweep, in any order", "DIR")
    out: str | None = setting(None, "folder for tables, figures and manifest: absent or empty", "DIR")


CONFIGURATIONS = (Merge,)


def main(config: Merge) -> int:
    """Join the shards of a sweep: status 1 where they are not the parts of one."""
    from exaul.engine.run import Mismatch, merge

    try:
        result = merge(config.parts, config.out)
    except Mismatch as error:
        print(f"exaul: {error}", file=sys.stderr)
        return 1
    return report(result, config.out)
