"""``exaul journal``: check a journal, export it as a log for sweeps, or begin a key anew."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from exaul.commands.flags import Command, fields_given
from exaul.commands.terminal import show
from exaul.engine.checks import BadInput, Configuration, as_typed, check_holds, quote, setting
from exaul.engine.logs.log import Layout
from exaul.llm.scores import column_of


class JournalVerify(Configuration):
    """The journal to verify. Every field is a flag of ``exaul journal verify``."""

    path: str = setting(MISSING, "journal: the file of --state; it may be in use", "FILE")


class JournalExport(JournalVerify):
    """The journal to export. Every field is a flag of ``exaul journal export``."""

    out: str = setting("log.csv", "log to write: a new CSV file", "LOG")


class JournalStart(Layout):
    """The key to begin anew. Every field is a flag of ``exaul journal start``."""

    path: str = setting(MISSING, "journal: the file of --state, which nobody may be using", "FILE")
    key: str | None = setting(None, "the key to begin anew (required); '' is that of a service without keys", "KEY")
    warm_start: str | None = setting(
        None, "what to start from (required): a log, key:KEY (the rated answers of a key), or none", "LOG"
    )
    alpha: float | None = setting(None, "target FDR from now on (default: as before)", "ALPHA")
    abandon_audits: bool = setting(False, "let audited answers without a verdict count as wrong for ever")


def verify(arguments: Mapping[str, Any]) -> int:
    """Repeat all decisions of a journal, and print how many differ. Return 1 if anything does."""
    from exaul.serving.entries import DECIDE, SNAPSHOT
    from exaul.serving.replay import replayed

    counts, keys, differing = Counter[str](), set(), dict[str, list[int]](decisions=[], snapshots=[])
    for entry, agrees in replayed(JournalVerify(**arguments).path):
        keys.add(entry.key)
        counts[entry.kind] += 1
        differing["snapshots" if entry.kind == SNAPSHOT else "decisions"] += [] if agrees else [entry.seq]
    lines = [f"{counts.total():,} entries of {len(keys)} key{'s' * (len(keys) != 1)}; {counts[DECIDE]:,} decisions"]
    for noun, numbers in differing.items():
        verdict = f"no, {len(numbers)} differ, first at entry {min(numbers)}" if numbers else "yes"
        lines.append(f"same {noun}: {verdict}")
    show("\n".join(lines))
    return int(any(differing.values()))


def export(arguments: Mapping[str, Any]) -> int:
    """Write one row for each answer with feedback: its key, score and error, in the order of the questions."""
    from exaul.engine.folder import write_table
    from exaul.engine.logs import files
    from exaul.serving.journal import read_journal

    config = JournalExport(**arguments)
    check_holds("out", config.out, not Path(config.out).exists(), "a new file")
    with read_journal(config.path) as journal:
        answers = journal.answers()
    rows = [{"key": x.key, "score": x.score, "error": x.error} for x in answers if x.error is not None]
    if not rows:
        raise BadInput(f"{config.path}: no answer has feedback; at least one is needed")
    write_table(Path(config.out), files.Table(rows))
    is_gated = any(answer.answered == 0 for answer in answers)  # in shadow mode none is withheld
    warning = (
        "withheld answers have no feedback, so do not start a learner from this file: it would answer too much; "
        f"{as_typed('journal', 'start')} with --warm-start key:KEY starts from the answers of a key"
    )
    show(f"{len(rows):,} answers with feedback, of {len(answers):,} decisions: {config.out}", warning * is_gated)
    return 0


def start(arguments: Mapping[str, Any]) -> int:
    """Begin a key anew: what it has learned is forgotten, and its figures go on."""
    from exaul.serving.abstainers import Abstainers

    config = JournalStart(**arguments)
    config.check_used(config.warm_start)
    check_holds("path", config.path, Path(config.path).exists(), "that of a file that exists")
    with Abstainers(config.path, **fields_given(Layout, arguments)) as abstainers:
        keys = abstainers.all_keys()
        if config.key is None or config.key not in keys:
            fault = "missing" if config.key is None else f"{quote(config.key)} found"
            known = f"it must be one of the keys {quote(keys)}" if keys else "the file has no decisions: delete it"
            raise BadInput(f"key: {fault}; {known}")
        if config.warm_start is None:  # a flag that was forgotten must not erase what a key has learned
            raise BadInput("warm_start: missing; LOG or key:KEY to start from, or none to forget everything")
        source = None if config.warm_start == "none" else config.warm_start
        started = abstainers.begin(config.key, config.alpha, source, config.abandon_audits)
        cold = f"without a log at alpha = {abstainers.figures(config.key)['alpha']:g}"
        column, earlier = config.score, abstainers.noted("score")
    is_other = earlier is not None and column.startswith("score_") and column != column_of(earlier)
    warning = f"the scores of this log are {column}, and those of the gateway so far {earlier}: start it with a "
    warning += "--score of the log's kind, or far too much or too little is withheld"
    show(f"key {quote(config.key)} begins anew: {started or cold}", warning * is_other)
    return 0


COMMANDS = {
    "journal verify": Command((JournalVerify,), verify),
    "journal export": Command((JournalExport,), export),
    "journal start": Command((JournalStart,), start),
}
