"""``exaul live``: a dialogue between two models, in which a learner decides which answers are shown."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exaul.commands.flags import Command
from exaul.commands.terminal import INCOMPLETE_STATUS
from exaul.llm.folder import describe_usage
from exaul.llm.live import TABLE_FOLDERS, TRANSCRIPT, Live, LiveJob


def main(arguments: Mapping[str, Any]) -> int:
    """Run a dialogue, and print its summary. Return 3 if it stopped before the last round."""
    job = LiveJob(Live(**arguments))
    if job.config.dry_run:
        print(job.config.describe_calls(job.config.horizon, "rounds, one after the other", 2))
        return 0
    job.run()
    print(summary(job))
    return 0 if len(job.rounds) == job.config.horizon else INCOMPLETE_STATUS


def summary(job: LiveJob) -> str:
    """Return the most important numbers of a dialogue as text."""
    config, rounds, folder = job.config, job.rounds, Path(job.config.out)
    lines = [f"{len(rounds):,} of {config.horizon:,} rounds"]
    if job.manifest["stopped"]:
        lines[0] += f": {job.manifest['stopped']}; repeat the command to continue"
    if rounds:
        statistics, all_wrong = rounds[-1]["learner"], sum(line["error"] for line in rounds)
        withheld_wrong = all_wrong - statistics["wrong"]
        withheld_right = len(rounds) - statistics["answers"] - withheld_wrong
        fdr = "-" if statistics["fdr"] is None else f"{statistics['fdr']:.4f}"
        lines += [
            f"wrong: {all_wrong / len(rounds):.1%} of all answers; "
            f"FDR of those that were shown: {fdr} (target {config.alpha:g})",
            f"shown: {statistics['answers'] / len(rounds):.1%}; withheld although right: "
            f"{withheld_right / len(rounds):.1%}",
            *describe_usage(job.manifest),
        ]
    lines.append(f"transcript: {folder / TRANSCRIPT}")
    if (folder / TABLE_FOLDERS[config.replay]).exists():
        lines.append(f"tables and figures: {folder / TABLE_FOLDERS[config.replay]}")
    return "\n".join(lines)


COMMANDS = {"live": Command((Live,), main)}
