"""``exaul convert``: write the results of another tool as a log of scored answers."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from exaul.commands.flags import Command
from exaul.engine import registry
from exaul.engine.checks import (
    BadInput,
    Configuration,
    check_holds,
    check_known,
    check_legible,
    join_lines,
    quote,
    setting,
)

Row = dict[str, Any]
_READERS = "exaul.llm.readers"
RESULTS = {  # of benchmarks: a function of all files, --metric and --filter, which returns the rows of a log
    "lm-eval": f"{_READERS}.lm_eval:lm_eval",
    "inspect": f"{_READERS}.inspect:inspect",
}
FEEDBACK = {  # of users: a function of one file and --score-name, which yields scores and feedback
    "langfuse": f"{_READERS}.langfuse:langfuse",
    "phoenix": f"{_READERS}.phoenix:phoenix",
    "mlflow": f"{_READERS}.mlflow:mlflow",
    "open-webui": f"{_READERS}.open_webui:open_webui",
}
TOOLS = RESULTS | FEEDBACK
FLAGS = {"metric": RESULTS, "filter": RESULTS, "score_name": FEEDBACK, "thumb_name": FEEDBACK, "down": FEEDBACK}


@dataclass(frozen=True, kw_only=True)
class Convert(Configuration):
    """The results to convert. Every field is a flag of ``exaul convert``."""

    tool: str = setting(MISSING, f"tool that wrote the files: {', '.join(TOOLS)}", "TOOL")
    files: tuple[str, ...] = setting(
        MISSING, "samples_*.jsonl of lm_eval --log_samples, Inspect's logs, or exports with users' feedback", "FILE"
    )
    out: str = setting("log.csv", "log to write: a new CSV file", "LOG")
    metric: str | None = setting(None, "metric or scorer that defines right answers, if there are several", "NAME")
    filter: str | None = setting(None, "filter of lm-eval whose rows are read, if there are several", "NAME")
    score_name: str | None = setting(
        None, f"score of {', '.join(FEEDBACK)} that is the confidence (default: by the logprobs of outputs)", "NAME"
    )
    thumb_name: str | None = setting(None, "their score that is the user's feedback, if there are several", "NAME")
    down: tuple[str, ...] = setting((), "values of the feedback that mean wrong, if that is not obvious", "VALUE")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_known("tool", (self.tool,), TOOLS)
        check_holds("out", self.out, Path(self.out).suffix.lower() == ".csv", "a name that ends in .csv")
        for name, tools in FLAGS.items():
            value = getattr(self, name)
            check_holds(name, value, self.tool in tools or value in (None, ()), f"absent with {self.tool}")


def main(given: Mapping[str, Any]) -> int:
    """Write one row per question: its scores and its error. After users' feedback, also describe the log."""
    config = Convert(**given)
    from exaul.engine.folder import write_beside
    from exaul.engine.logs import files

    if Path(config.out).exists():
        raise BadInput(f"out: {config.out} exists; it must be a new file")
    rows, summary = _results(config) if config.tool in RESULTS else _feedback(config)
    write_beside(Path(config.out), lambda path: files.save(files.frame(rows), path))
    print("\n".join([f"{len(rows)} rows: {config.out}", *map(join_lines, summary)]))
    if config.tool in FEEDBACK:
        from exaul.commands import inspect

        print()
        return inspect.main({"log": config.out})
    return 0


def _results(config: Convert) -> tuple[list[Row], list[str]]:
    rows = registry.load_object(TOOLS[config.tool])(config.files, config.metric, config.filter)
    for (id, group), number in Counter((row["id"], row["group"]) for row in rows).items():
        check_legible("files: an id", id)
        if number > 1:
            raise BadInput(f"files: the id {quote(id)} occurs twice in {quote(group)}; is a file given twice?")
    return rows, []


def _feedback(config: Convert) -> tuple[list[Row], list[str]]:
    from exaul.llm.readers.joining import join_notes

    read = registry.load_object(TOOLS[config.tool])
    notes = (note for path in config.files for note in read(Path(path), config.score_name))
    return join_notes(notes, config.score_name, config.thumb_name, config.down)


COMMANDS = {"convert": Command((Convert,), main)}
