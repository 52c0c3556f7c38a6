"""What the latest decisions and feedback of one key say about its health.

All alarms are functions of the latest DECISIONS decisions and FEEDBACKS feedbacks: whoever feeds these again, in
their order, gets the same alarms. The constants are justified by measurements (``docs/measurements.md``, "Alarms of
the service").
"""

import math
from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

DECISIONS = 8192  # latest decisions that are kept
FEEDBACKS = 1024  # latest feedbacks that are kept

STAKES = 1 / 16, 1 / 8, 1 / 4, 1 / 2  # parts of the largest stake, 1 / aim
WRONG_DELTA = 1e-4
RECENT, BEFORE = 512, 4096  # latest scores, and those before them
BINS = 10
DRIFT = 0.25  # population stability index
SILENT = 1000  # questions in a row
UNRATED_DELTA = 1e-6
UNRATED = 500  # answers in a row, at least
GAPS = 2  # times the longest gap between feedbacks


class Alarms:
    """Watch one key.

    *wrong*: answers with feedback are wrong more often than the aim. Each stake s in STAKES bets against this: from
    every start j among the kept feedbacks its capital is the product of ``1 + s (error / aim - 1)`` from j on. The
    alarm is active if the sum over all starts, averaged over the stakes, is at least ``1 / WRONG_DELTA`` (an
    e-detector of the Shiryaev-Roberts type: Shin, Ramdas and Rinaldo 2024). If, given all that came before, the
    expected error of each feedback is at most the aim, the mean number of feedbacks until the first alarm is at
    least ``1 / WRONG_DELTA``. A learner breaks this condition: it holds the mean error at the aim, not each
    expected error, and exceeds it while it starts. So how often the alarm is false is measured.

    *drift*: the population stability index (PSI) of the latest RECENT scores against the BEFORE scores before them
    exceeds DRIFT. Both directions count.

    *silent*: no answer in the latest SILENT questions.

    *unrated*: no feedback in the latest n answers; before, A answers lay in k gaps between feedbacks. Active if
    ``(A / (A + n)) ** k < UNRATED_DELTA``, which is the probability of this if each answer gets feedback
    independently with the same small probability; if n exceeds GAPS times the longest of these gaps, since people
    rate in bursts; and if n is at least UNRATED. Only feedback among the kept decisions counts, so the alarm ends
    when they have too little of it.

    A call costs some 0.3 (decision, feedback) or 400 (``active``) microseconds. The caller serializes all calls.
    """

    def __init__(self, aim: float) -> None:
        """Start with nothing seen.

        Args:
            aim: the error rate of feedback that the learner aims at, in (0, 1) (``AbstainerConfiguration.aim``).
        """
        self._aim = aim
        self._scores = _Latest("f", DECISIONS)
        self._answered = _Latest("b", DECISIONS)
        self._errors = _Latest("d", FEEDBACKS)
        self._after = _Latest("q", FEEDBACKS)  # number of decisions before each feedback

    def add_decision(self, score: float, answered: bool) -> None:
        """Add the next decision; score in [0, 1]."""
        self._scores.add(score)
        self._answered.add(bool(answered))

    def add_feedback(self, error: float) -> None:
        """Add the next feedback that counts; error in [0, 1], 1 is wrong."""
        self._errors.add(error)
        self._after.add(self._scores.count)

    def active(self) -> dict[str, str]:
        """Return the active alarms by name, each with sentences that say what was seen and what to do."""
        sentences = {
            "wrong": self._wrong(),
            "drift": self._drift(),
            "silent": self._silent(),
            "unrated": self._unrated(),
        }
        return {name: sentence for name, sentence in sentences.items() if sentence is not None}

    def series(self, points: int = 60) -> dict[str, list[float]]:
        """Return means over successive parts of what is kept, oldest first, at most ``points`` numbers each.

        Returns:
            answered: share of questions answered, in [0, 1]; wrong: mean error of feedback, in [0, 1].
        """
        return {
            name: _means(window.values(), points)
            for name, window in (("answered", self._answered), ("wrong", self._errors))
        }

    def _wrong(self) -> str | None:
        errors = self._errors.values()
        capital, start = _evidence(errors, self._aim)
        if capital < 1 / WRONG_DELTA:
            return None
        since = errors[start:]
        return (
            f"{since.mean():.1%} of the last {since.size:,} answers with feedback were wrong; the aim is "
            f"{self._aim:.1%}. Check what changed (model, prompts, questions, who rates); the learner will answer "
            "less until the share is back at the aim."
        )

    def _drift(self) -> str | None:
        scores = self._scores.values()
        if scores.size < RECENT + BEFORE:
            return None
        before, recent = scores[-RECENT - BEFORE : -RECENT], scores[-RECENT:]
        index = _stability_index(before, recent)
        if index <= DRIFT:
            return None
        return (
            f"The last {RECENT:,} scores are distributed unlike the {BEFORE:,} before them: mean "
            f"{recent.mean():.3f} instead of {before.mean():.3f}, PSI {index:.2f}, which should be at most {DRIFT}."
            " Check whether the model, its prompt or the questions changed; a new model should get a new key."
        )

    def _silent(self) -> str | None:
        answered = self._answered.values()
        if answered.size < SILENT or answered[-SILENT:].any():
            return None
        scores = self._scores.values()
        return (
            f"None of the last {SILENT:,} questions was answered; their mean score is "
            f"{scores[-SILENT:].mean():.3f}. Check that scores still come from the same model and that thumbs up "
            "do not arrive as errors; else choose a larger alpha or a better score."
        )

    def _unrated(self) -> str | None:
        first = self._scores.count - self._scores.size  # number of the oldest kept decision
        after = self._after.values()
        after = after[after > first] - first  # decisions in the window before each feedback
        answers = np.cumsum(self._answered.values(), dtype=np.int64)  # up to and including each decision
        gaps = np.diff(np.unique(answers[after - 1]))  # feedbacks that came together count as one
        if not gaps.size:
            return None
        total, missing = int(gaps.sum()), int(answers[-1] - answers[after[-1] - 1])
        rare = gaps.size * math.log1p(missing / total) > -math.log(UNRATED_DELTA)
        if not rare or missing < UNRATED or missing <= GAPS * gaps.max():
            return None
        return (
            f"None of the last {missing:,} answers got feedback; before, {gaps.size / total:.1%} of the answers "
            "did. Check that the feedback of your users still arrives; without it the learner does not learn."
        )


class _Latest:
    """The latest numbers, at most ``most``; memory grows as they come."""

    def __init__(self, typecode: str, most: int) -> None:
        self._numbers: array[Any] = array(typecode)
        self._most, self.count = most, 0  # count of all numbers ever added

    def add(self, number: float) -> None:
        if self.count < self._most:
            self._numbers.append(number)
        else:
            self._numbers[self.count % self._most] = number
        self.count += 1

    @property
    def size(self) -> int:
        """Return how many numbers are kept."""
        return len(self._numbers)

    def values(self) -> NDArray[Any]:
        """Return a copy of the kept numbers, oldest first."""
        return np.roll(np.array(self._numbers), -self.count) if self.count > self._most else np.array(self._numbers)


def _evidence(errors: NDArray[np.float64], aim: float) -> tuple[float, int]:
    """Return the value of the e-detector after ``errors`` [n], and the start from which most was won."""
    if not errors.size:
        return 0.0, 0
    stakes = np.array(STAKES)[:, None]
    # logarithms of the capital from each start to the end, [stakes, starts]
    won = np.log1p(stakes * (errors / aim - 1))[:, ::-1].cumsum(axis=1)[:, ::-1]
    capital = np.exp(np.minimum(won, 500.0)).sum(axis=1).mean()  # far above every limit, and still finite
    return float(capital), int(won.argmax() % errors.size)


def _stability_index(before: NDArray[np.floating], recent: NDArray[np.floating]) -> float:
    """Return the population stability index of two samples, over bins between the deciles of the first.

    A value that is a decile has a bin of its own, since scores may have few levels. Half a count is added to each
    bin, so that none is empty.
    """
    edges = np.unique(np.sort(before)[np.arange(1, BINS) * before.size // BINS])
    shares = []
    for sample in (before, recent):
        ordered = np.sort(sample)
        below = [np.searchsorted(ordered, edges, side) for side in ("left", "right")]  # each edge, up to each edge
        counts = np.diff(np.stack(below, axis=1).ravel(), prepend=0, append=sample.size) + 0.5
        shares.append(counts / counts.sum())
    old, new = shares
    return float(((new - old) * np.log(new / old)).sum())


def _means(values: NDArray[Any], points: int) -> list[float]:
    parts = np.array_split(values, min(points, values.size)) if values.size else []
    return [float(part.mean()) for part in parts]
