"""``exaul figures``: draw the figures of a finished sweep from its tables."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from exaul.engine.checks import Configuration, setting


@dataclass(frozen=True, kw_only=True)
class Figures(Configuration):
    """The sweep to draw. Every field is a flag of ``exaul figures``."""

    folder: str = setting(MISSING, "folder of a finished sweep; if it is over traces, each of them is drawn", "DIR")


CONFIGURATIONS = (Figures,)


def main(given: Mapping[str, Any]) -> int:
    """Draw all figures of a sweep again."""
    from exaul.engine.results.redraw import redraw

    config = Figures(**given)
    redraw(Path(config.folder))
    print(f"figures: {config.folder}")
    return 0
