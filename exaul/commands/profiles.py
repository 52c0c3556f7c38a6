"""``exaul profiles``: list the built-in profiles."""

from collections.abc import Mapping
from typing import Any

from exaul.commands.terminal import terminal_width
from exaul.engine.data.profiles import PROFILES, load_profile
from exaul.engine.results.text_table import TextColumn, format_table, wrap

CONFIGURATIONS = ()


def main(given: Mapping[str, Any]) -> int:
    """Print the built-in profiles."""
    records = {name: load_profile(name) for name in PROFILES}
    columns = [
        TextColumn("profile", list(records), 1, is_name=True),
        TextColumn("records", [f"{len(x.scores)}" for x in records.values()]),
        TextColumn("error rate", [f"{x.errors.mean():.3f}" for x in records.values()], 1),
        TextColumn("ties at 1", [f"{(x.scores == 1).mean():.3f}" for x in records.values()]),
    ]
    width = terminal_width()
    descriptions = "\n".join(f"{name}: {profile.description}" for name, profile in PROFILES.items())
    print(f"{format_table(columns, width)}\n\n{wrap(descriptions, width)}")
    return 0
