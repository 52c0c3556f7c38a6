"""``exaul live``: a dialogue between two models, in which a learner decides which answers are shown."""

from collections.abc import Mapping
from typing import Any

from exaul.commands.flags import Command
from exaul.llm.folder import describe_usage
from exaul.llm.live import RESULTS, Dialogue, Live, LiveJob

STOPPED = 3  # exit status if the dialogue ended before the last round


def main(given: Mapping[str, Any]) -> int:
    """Run a dialogue, and print its summary. Return 3 if it stopped before the last round."""
    config = Live(**given)
    job = LiveJob.begin(config)
    if config.dry_run:
        print(job.describe())
        return 0
    dialogue = job.run(progress=config.progress)
    print(summary(config, dialogue))
    return 0 if len(dialogue.rounds) == config.horizon else STOPPED


def summary(config: Live, dialogue: Dialogue) -> str:
    """Return the most important numbers of a dialogue as text."""
    rounds = dialogue.rounds
    shown = [r for r in rounds if r.answered]
    lines = [f"{len(rounds):,} of {config.horizon:,} rounds"]
    if dialogue.manifest["stopped"]:
        lines[0] += f": {dialogue.manifest['stopped']}; repeat the command to continue"
    if rounds:
        withheld = [r for r in rounds if not r.answered]
        wrong = sum(r.error for r in rounds) / len(rounds)
        fdr = f"{sum(r.error for r in shown) / len(shown):.4f}" if shown else "-"
        lines += [
            f"wrong: {wrong:.1%} of all answers; FDR of those that were shown: {fdr} (target {config.alpha:g})",
            f"shown: {len(shown) / len(rounds):.1%}; withheld although right: "
            f"{sum(1 - r.error for r in withheld) / len(rounds):.1%}",
            describe_usage(dialogue.manifest["usage"]),
        ]
        lines += [f"  {reason}: {number:,}" for reason, number in dialogue.manifest["left out"].items()]
    lines.append(f"transcript: {dialogue.folder / 'transcript.jsonl'}")
    results = dialogue.folder / RESULTS[config.replay]
    if results.exists():
        lines.append(f"tables and figures: {results}")
    return "\n".join(lines)


COMMANDS = {"live": Command((Live,), main)}
