"""``exaul convert``: write the results of another tool as a log of scored answers."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from exaul.engine import registry
from exaul.engine.checks import BadInput, Configuration, check_holds, check_known, check_legible, quote, setting

_READERS = "exaul.llm.readers"
TOOLS = {"lm-eval": f"{_READERS}:lm_eval", "inspect": f"{_READERS}:inspect"}


@dataclass(frozen=True, kw_only=True)
class Convert(Configuration):
    """The results to convert. Every field is a flag of ``exaul convert``."""

    tool: str = setting(MISSING, f"tool that wrote the results: {' or '.join(TOOLS)}", "TOOL")
    files: tuple[str, ...] = setting(MISSING, "samples_*.jsonl of lm_eval --log_samples, or Inspect's logs", "FILE")
    out: str = setting("log.csv", "log to write: a new CSV file", "LOG")
    metric: str | None = setting(None, "metric or scorer that defines right answers, if there are several", "NAME")
    filter: str | None = setting(None, "filter of lm-eval whose rows are read, if there are several", "NAME")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_known("tool", (self.tool,), TOOLS)
        check_holds("out", self.out, Path(self.out).suffix.lower() == ".csv", "a name that ends in .csv")


CONFIGURATIONS = (Convert,)


def main(given: Mapping[str, Any]) -> int:
    """Write one row per question: its scores and its error."""
    config = Convert(**given)
    from exaul.engine.data import tables
    from exaul.engine.results.folder import write_beside

    if Path(config.out).exists():
        raise BadInput(f"out: {config.out} exists; it must be a new file")
    rows = registry.load_object(TOOLS[config.tool])(config.files, config.metric, config.filter)
    for (id, group), number in Counter((row["id"], row["group"]) for row in rows).items():
        check_legible("files: an id", id)
        if number > 1:
            raise BadInput(f"files: the id {quote(id)} occurs twice in {quote(group)}; is a file given twice?")
    write_beside(Path(config.out), lambda path: tables.save(tables.frame(rows), path))
    print(f"{len(rows)} rows: {config.out}")
    return 0
