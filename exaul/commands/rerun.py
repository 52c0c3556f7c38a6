"""``exaul rerun``: run the sweep of a manifest again, to the same bits."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from exaul.commands.sweep import SummaryFlags, report
from exaul.engine.checks import setting


@dataclass(frozen=True, kw_only=True)
class Rerun(SummaryFlags):
    """The sweep to run again. Every field is a flag of ``exaul rerun``."""

    manifest: str = setting(MISSING, "manifest.json of a sweep", "DIR/manifest.json")
    out: str | None = setting(None, "folder (absent or empty) for tables, figures and manifest", "DIR")
    trust: bool = setting(False, "import the modules that the manifest names; this runs their code")


CONFIGURATIONS = (Rerun,)


def main(given: Mapping[str, Any]) -> int:
    """Run the sweep of a manifest again, and print its summary."""
    from exaul.engine.machine import cache
    from exaul.engine.run import rerun

    config = Rerun(**given)
    cache.use_compilation_cache()
    path = Path(config.manifest)
    folder = path.parent if path.name == "manifest.json" else path
    return report(rerun(str(folder), config.out, progress="bar", trust=config.trust), config.out, config.theory)
