"""``exaul profiles``: list the built-in profiles."""

from collections.abc import Mapping
from typing import Any

from exaul.engine.data.profiles import PROFILES, load_profile

CONFIGURATIONS = ()


def main(given: Mapping[str, Any]) -> int:
    """Print the built-in profiles."""
    print(f"{'profile':<22}{'records':>9}{'error rate':>12}{'ties at 1':>11}  description")
    for name, profile in PROFILES.items():
        records = load_profile(name)
        rate, ties = records.errors.mean(), (records.scores == 1).mean()
        print(f"{name:<22}{len(records.scores):>9}{rate:>12.3f}{ties:>11.3f}  {profile.description}")
    return 0
