"""Built-in profiles: records for users without a log."""

import csv
from collections.abc import Callable
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exaul.engine.logs.log import Records

PROFILE_RECORDS = 100_000  # records of a profile (chosen)


class Profile(NamedTuple):
    """A built-in source of records."""

    description: str
    draw: Callable[[np.random.Generator], tuple[NDArray[Any], NDArray[Any]]]


def load_profile(name: str) -> Records:
    """Return the 100,000 records of a built-in profile, the same on every call."""
    # the seed is the bytes of the name, so a new profile does not change the others
    scores, errors = PROFILES[name].draw(np.random.default_rng(list(name.encode())))
    return Records(name, scores, errors.astype(np.float64), 0, None)


def _beta(error_rate: float, right: tuple[float, float], wrong: tuple[float, float]) -> Profile:
    def draw(rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
        errors = rng.random(PROFILE_RECORDS) < error_rate
        return np.where(errors, rng.beta(*wrong, PROFILE_RECORDS), rng.beta(*right, PROFILE_RECORDS)), errors

    return Profile(f"synthetic: error rate {error_rate:.2f}, right answers Beta{right}, wrong Beta{wrong}", draw)


def _levels(rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    errors = rng.random(PROFILE_RECORDS) < 0.30
    return rng.binomial(5, np.where(errors, 0.60, 0.92)) / 5, errors


def _binned(name: str, model_and_task: str) -> Profile:
    def draw(rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
        with (resources.files(__package__) / "profiles.csv").open() as stream:
            bins = [row for row in csv.DictReader(stream) if row["profile"] == name]
        lower, upper, right, wrong = (
            np.array([float(row[k]) for row in bins]) for k in ("lower", "upper", "right", "wrong")
        )
        # draw a cell of the histogram (right bins, then wrong ones), then a score uniformly within its bin
        counts = np.concatenate([right, wrong])
        cell = rng.choice(len(counts), PROFILE_RECORDS, p=counts / counts.sum())
        bin_index = cell % len(bins)
        scores = lower[bin_index] + (upper - lower)[bin_index] * rng.random(PROFILE_RECORDS)
        return scores, cell >= len(bins)

    return Profile(f"scores redrawn from binned counts of real records: {model_and_task}", draw)


PROFILES: dict[str, Profile] = {
    "triviaqa-like": _beta(0.15, (8, 1), (3, 2)),
    "nq-like": _beta(0.35, (4, 1), (2, 2)),
    "consistency-like": Profile("synthetic: error rate 0.30, six levels of self-consistency, 0 to 1", _levels),
    "triviaqa-likelihood": _binned("triviaqa-likelihood", "open-domain TriviaQA, likelihood"),
    "nq-likelihood": _binned("nq-likelihood", "open-domain NQ, likelihood"),
    "mmlu-probability": _binned("mmlu-probability", "MMLU, answer probability"),
    "hellaswag-probability": _binned("hellaswag-probability", "HellaSwag, answer probability"),
}
