"""``exaul rerun``: play the sweep of a manifest again, to the same bits."""

from dataclasses import MISSING, dataclass
from pathlib import Path

from exaul.engine.checks import setting
from exaul.engine.commands.sweep import report


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """What to run again. Every field is a flag of ``exaul rerun``."""

    manifest: str = setting(MISSING, "manifest.json of a sweep", "DIR/manifest.json")
    out: str | None = setting(None, "folder for tables, figures and manifest: absent or empty", "DIR")


CONFIGURATIONS = (Rerun,)


def main(config: Rerun) -> int:
    """Play the sweep of a manifest again."""
    from exaul.engine.machine import cache
    from exaul.engine.run import rerun

    cache.use()
    path = Path(config.manifest)
    folder = path.parent if path.name == "manifest.json" else path
    return report(rerun(str(folder), config.out, progress="bar"), config.out)
