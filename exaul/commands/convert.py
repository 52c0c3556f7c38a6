"""``exaul convert``: write the results of another tool as a log of scored answers."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from exaul.commands.flags import Command
from exaul.engine.checks import BadInput, check_holds, check_known, join_lines, setting
from exaul.engine.folder import write_table
from exaul.engine.logs import files
from exaul.llm import benchmarks
from exaul.llm.exports import join_notes, langfuse, mlflow, open_webui, phoenix
from exaul.llm.tables import Columns, read_table

EVALS = {"lm-eval": benchmarks.lm_eval, "inspect": benchmarks.inspect}  # of all files, --metric and --filter
TRACERS = {"langfuse": langfuse, "phoenix": phoenix, "mlflow": mlflow, "open-webui": open_webui}  # of one file
TABLE = "table"  # of no tool in particular
TOOLS = *EVALS, *TRACERS, TABLE
FLAG_TOOLS = {"metric": (*EVALS,), "filter": ("lm-eval",), **{field.name: (TABLE,) for field in fields(Columns)}}
FLAG_TOOLS |= dict.fromkeys(("score_name", "thumb_name", "down"), (*TRACERS,))


class Convert(Columns):
    """The results to convert. Every field is a flag of ``exaul convert``."""

    tool: str = setting(MISSING, f"tool that wrote the files, or {TABLE} for any table: {', '.join(TOOLS)}", "TOOL")
    files: tuple[str, ...] = setting(
        MISSING, "samples_*.jsonl of lm_eval --log_samples, logs of Inspect, exports with feedback, tables", "FILE"
    )
    out: str = setting("log.csv", "log to write: a new CSV file", "LOG")
    metric: str | None = setting(None, "metric or scorer that defines right answers, if there are several", "NAME")
    filter: str | None = setting(None, "filter of lm-eval whose rows are read, if there are several", "NAME")
    score_name: str = setting(
        "", f"score of {', '.join(TRACERS)} that is the confidence (default: by the logprobs of outputs)", "NAME"
    )
    thumb_name: str | None = setting(None, "their score that is the user's feedback, if there are several", "NAME")
    down: tuple[str, ...] = setting((), "values of the feedback that mean wrong, if that is not obvious", "VALUE")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_known("tool", (self.tool,), TOOLS)
        check_holds("out", self.out, Path(self.out).suffix.lower() == ".csv", "a name that ends in .csv")


def main(arguments: Mapping[str, Any]) -> int:
    """Write one row per answer: its scores and its error. If it has one score, also describe the log."""
    config = Convert(**arguments)
    for name in FLAG_TOOLS.keys() & arguments.keys():
        check_holds(name, arguments[name], config.tool in FLAG_TOOLS[name], f"absent with {config.tool}")
    if Path(config.out).exists():
        raise BadInput(f"out: {config.out} exists; it must be a new file")
    summary = list[str]()
    if config.tool == TABLE:
        rows, summary = read_table(config.files, config)
    elif config.tool in EVALS:
        rows = EVALS[config.tool](config.files, config.metric, config.filter)
    else:
        notes = (note for path in config.files for note in TRACERS[config.tool](Path(path), config.score_name))
        rows, summary = join_notes(notes, config.score_name, config.thumb_name, config.down)
    write_table(Path(config.out), files.Table(rows))
    print("\n".join([f"{len(rows)} rows: {config.out}", *map(join_lines, summary)]))
    if config.tool not in EVALS:
        from exaul.commands import inspect

        print()
        return inspect.main({"log": config.out})
    return 0


COMMANDS = {"convert": Command((Convert,), main)}
