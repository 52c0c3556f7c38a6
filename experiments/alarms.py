"""``alarms``: false alarms of ``exaul.serving.alarms`` in a year, and how late they find real changes.

Questions are drawn from a log or profile with replacement, so nothing changes but what a case changes. A learner
decides as an ``Abstainer`` with the same seed and key, and the alarms are polled as a monitor would.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from tqdm import tqdm

from exaul.engine import registry
from exaul.engine.checks import MOST, Configuration, check_holds, check_known, setting
from exaul.engine.executors import cancel_on_error, check_workers, result_of
from exaul.engine.logs.files import Table, frame
from exaul.engine.logs.log import Records
from exaul.engine.logs.profiles import PROFILES, load_profile
from exaul.engine.results.advice import FEASIBLE
from exaul.kernels.coverage import coverage_by_grid
from exaul.kernels.feedback import FeedbackSums
from exaul.kernels.game import GRIDS, ROUNDS, compute_costs
from exaul.kernels.learners.learner import Learner
from exaul.kernels.learners.start import start_of
from exaul.kernels.native.compile import compiled
from exaul.kernels.online.one import compile_copy
from exaul.kernels.rates import rates_of
from exaul.serving.alarms import DECISIONS, Alarms

NAMES = "wrong", "drift", "silent", "unrated"
DAY = 2740  # questions, of a million in a year
YEAR = 365 * DAY
STARTS = 50_000  # questions in which the learner starts: alarms are counted apart
BEFORE, AFTER = 150_000, 30_000  # questions before a change and after it
WARM = 60_000  # last questions before a change that the alarms see: they keep no older feedback
POLLED, POLLED_AFTER = 512, 64  # questions between polls, in a year and after a change
LEVEL = 0.95  # of the intervals
ARMS, GRID = 1000, "logit"  # as an Abstainer has by default


@dataclass(frozen=True, kw_only=True)
class AlarmYears(Configuration):
    """Configuration of the experiment; every field is a flag of ``python -m experiments alarms``.

    Raises:
        BadInput: a field is out of its range; the message names it.
    """

    trials: int = setting(
        100,
        "years of the first learner and alpha; a quarter as many of each change, a tenth of the other cases, and a "
        "twentieth of other learners and alphas",
        "N",
    )
    learners: tuple[str, ...] = setting(
        ("aci-rank",), "learners; cases are of the first, changes of the first two", "NAME"
    )
    alphas: tuple[float, ...] = setting((0.1, 0.05, 0.2), "target FDR; cases and changes are of the first", "ALPHA")
    sources: tuple[str, ...] = setting(("triviaqa-like", "nq-like"), "built-in profiles", "PROFILE")
    data: str | None = setting(
        None,
        "instead of the profiles, a year of each trace of a folder of logs, if a threshold answers at least 5% of "
        "it: first learner and alpha",
        "DIR",
    )
    feedback_rate: float = setting(0.02, "share of answers that are rated, in (0, 1]", "P")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_holds("trials", self.trials, 1 <= self.trials < MOST, f"from 1 to {MOST - 1}")
        check_known("learners", self.learners, registry.LEARNERS)
        check_known("sources", self.sources, PROFILES)
        for alpha in self.alphas:
            check_holds("alphas", alpha, 0 < alpha < 1, "in (0, 1)")
        check_holds("feedback_rate", self.feedback_rate, 0 < self.feedback_rate <= 1, "in (0, 1]")

    def times(self, part: int) -> int:
        """Return the number of trials of a case that gets one of so many parts of them."""
        return max(1, self.trials // part)


class Stream(NamedTuple):
    """Questions of one key, in order."""

    scores: NDArray[Any]  # float64 [T] in [0, 1]
    errors: NDArray[Any]  # float64 [T] what feedback would say, in [0, 1]
    raters: NDArray[Any]  # bool [T] whether an answer gets feedback, before the next question


@cache
def _compile(learner: Learner[Any]) -> tuple[Any, Callable[..., None]]:
    """Return the functions of a copy, and a loop over all questions of a stream."""
    copy = compile_copy(learner)
    assert copy is not None
    decide, learn = copy.decide, copy.learn
    learned = FeedbackSums._fields.index("learned")

    @compiled
    def simulate(state, grid, stream, keys, rates, costs, answered):  # type: ignore[no-untyped-def]
        numbers, table, sums = state
        scores, errors, raters = stream
        (eta, gamma), block = rates, 0
        for i in range(scores.size):
            if i % ROUNDS == 0:
                block = min(int(sums[learned]) // ROUNDS, eta.size - 1)
            parameters = (eta[block], gamma[block], costs[0], costs[1], costs[2])
            cut, decision, _ = decide(
                numbers, table, sums, grid, scores[i], keys[0], keys[1], parameters, False, -1.0
            )
            answered[i] = decision[0]
            if decision[0] and raters[i]:
                learn(numbers, table, sums, cut, decision, errors[i], True, parameters)

    return copy, simulate


def _first(learner: Learner[Any]) -> tuple[Any, Any]:
    """Return what one copy begins with, as of ``OnlineRule.start``."""
    state, counts = start_of(learner.rule, ARMS, [0.1])  # without a log, the target does not matter
    return [float(x[0]) for x in state], counts


def decisions(name: str, alpha: float, stream: Stream, trial: int) -> NDArray[np.bool_]:
    """Return which questions [T] an ``Abstainer`` with seed 0 and key ``trial`` answers."""
    learner = registry.resolve("learner", name, registry.LEARNERS, (Learner,))
    copy, simulate = _compile(learner)
    many = stream.scores.size
    rate = rates_of(learner, None, ARMS, False, None, None)
    pairs = [rate(ROUNDS * (block + 1)) for block in range(-(-many // ROUNDS))]
    answer_cost, abstain_cost = map(float, compute_costs(alpha, 0.0))
    answered = np.zeros(many, np.bool_)
    simulate(
        (*copy.start(ARMS, *_first(learner)), np.zeros(len(FeedbackSums._fields))),
        GRIDS[GRID](ARMS, np.empty(0)),
        tuple(stream),
        copy.keys(0, 0, trial),
        tuple(np.array(column) for column in zip(*pairs, strict=True)),
        (alpha, answer_cost, abstain_cost),
        answered,
    )
    return answered


def draw_stream(records: Records, questions: int, feedback_rate: float, rng: np.random.Generator) -> Stream:
    """Draw questions from a log or profile with replacement, and who of them would rate an answer."""
    drawn = rng.integers(0, len(records.scores), questions)
    return Stream(records.scores[drawn], records.errors[drawn], rng.random(questions) < feedback_rate)


# Cases of a year: they return what becomes of a stream. ``other`` is a stream of the other profile.


def shuffled(stream: Stream, other: Stream, rng: np.random.Generator) -> Stream:
    """Change nothing."""
    return stream


def without_feedback_at_night(stream: Stream, other: Stream, rng: np.random.Generator) -> Stream:
    """Rate nothing in the last third of each day."""
    return stream._replace(raters=stream.raters & ~_is_night(stream))


def without_feedback_on_weekends(stream: Stream, other: Stream, rng: np.random.Generator) -> Stream:
    """Rate nothing on two days of seven, on which as many questions are asked."""
    return stream._replace(raters=stream.raters & (np.arange(stream.scores.size) // DAY % 7 < 5))


def feedback_in_bursts(stream: Stream, other: Stream, rng: np.random.Generator) -> Stream:
    """Rate as many answers, but all of them at the beginning of a day."""
    time_of_day = np.arange(stream.scores.size) % DAY
    return stream._replace(raters=time_of_day < stream.raters.mean() * DAY)


def harder_at_night(stream: Stream, other: Stream, rng: np.random.Generator) -> Stream:
    """Ask questions of the other profile in the last third of each day."""
    night = _is_night(stream)
    return stream._replace(
        scores=np.where(night, other.scores, stream.scores), errors=np.where(night, other.errors, stream.errors)
    )


def _is_night(stream: Stream) -> NDArray[np.bool_]:
    return np.arange(stream.scores.size) % DAY >= DAY * 2 // 3


# Changes: they return what a stream becomes after the change.


def _more_errors(rise: float) -> Callable[[Stream, np.random.Generator], Stream]:
    def change(stream: Stream, rng: np.random.Generator) -> Stream:
        turned = rng.random(stream.errors.size) < rise / (1 - stream.errors.mean())
        return stream._replace(errors=np.where(turned, 1.0, stream.errors))

    return change


def _scores(change_score: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Callable[..., Stream]:
    return lambda stream, rng: stream._replace(scores=change_score(stream.scores))


CASES: dict[str, Callable[[Stream, Stream, np.random.Generator], Stream]] = {
    "shuffled": shuffled,
    "no feedback in 8 hours of each day": without_feedback_at_night,
    "no feedback on 2 days of 7": without_feedback_on_weekends,
    "feedback in one burst a day": feedback_in_bursts,
    "other questions in 8 hours of each day": harder_at_night,
}
CHANGES: dict[str, Callable[[Stream, np.random.Generator], Stream]] = {
    "none": lambda stream, rng: stream,
    "error rate + .1, same scores": _more_errors(0.1),
    "error rate + .2, same scores": _more_errors(0.2),
    "scores squared": _scores(np.square),
    "square roots of scores": _scores(np.sqrt),
    "scores halved": _scores(lambda scores: scores / 2),
    "all scores 0": _scores(np.zeros_like),
    "feedback stops": lambda stream, rng: stream._replace(raters=np.zeros_like(stream.raters)),
    "feedback inverted": lambda stream, rng: stream._replace(errors=1 - stream.errors),
}


class Poll(NamedTuple):
    """What a poll of the alarms saw."""

    questions: int  # since the first poll
    feedbacks: int
    active: frozenset[str]


def poll(alpha: float, stream: Stream, answered: NDArray[np.bool_], since: int, every: int) -> Iterator[Poll]:
    """Feed a stream to the alarms, and yield a poll after every so many questions from ``since`` on."""
    alarms, feedbacks = Alarms(alpha), 0
    rows = zip(*(column.tolist() for column in stream), answered.tolist(), strict=True)
    for t, (score, error, rater, shown) in enumerate(rows, 1 - since):
        alarms.add_decision(score, shown)
        if shown and rater:
            alarms.add_feedback(error)
            feedbacks += t > 0
        if t > 0 and t % every == 0:
            yield Poll(t, feedbacks, frozenset(alarms.active()))


def episodes(polls: Sequence[Poll], name: str) -> list[int]:
    """Return when an alarm began to be active; a pause of less than DECISIONS questions does not end it."""
    active = [seen.questions for seen in polls if name in seen.active]
    return [t for before, t in zip([-DECISIONS, *active], active, strict=False) if t - before >= DECISIONS]


class Cell(NamedTuple):
    """What is simulated and counted together."""

    case: str
    records: Records
    other: Records
    learner: str
    alpha: float
    trials: int


def count_false(cell: Cell, feedback_rate: float) -> list[dict[str, Any]]:
    """Return one row for each alarm: how often it rang in a year, while the learner starts and later."""
    began: dict[str, list[int]] = {name: [] for name in NAMES}
    for trial in range(cell.trials):
        rng = np.random.default_rng([trial, 0])
        stream, other = (draw_stream(records, YEAR, feedback_rate, rng) for records in (cell.records, cell.other))
        stream = CASES[cell.case](stream, other, rng)
        polls = list(poll(cell.alpha, stream, decisions(cell.learner, cell.alpha, stream, trial), 0, POLLED))
        for name in NAMES:
            began[name] += episodes(polls, name)
    rows = []
    for name in NAMES:
        for phase, many in (
            (f"first {STARTS:,}", sum(t <= STARTS for t in began[name])),
            ("later", sum(t > STARTS for t in began[name])),
        ):
            low, high = _poisson(many)
            rates = {"rate": many / cell.trials, "low": low / cell.trials, "high": high / cell.trials}
            rows.append(_describe(cell) | {"phase": phase, "alarm": name, "rang": many} | rates)
    return rows


def measure_delays(cell: Cell, feedback_rate: float) -> list[dict[str, Any]]:
    """Return one row for each alarm: in how many trials it rang after the change, and how late."""
    delays: dict[str, list[tuple[int, int]]] = {name: [] for name in NAMES}
    for trial in range(cell.trials):
        rng = np.random.default_rng([trial, 1])
        stream = draw_stream(cell.records, BEFORE + AFTER, feedback_rate, rng)
        later = CHANGES[cell.case](Stream(*(column[BEFORE:] for column in stream)), rng)
        stream = Stream(*(np.concatenate([a[:BEFORE], b]) for a, b in zip(stream, later, strict=True)))
        answered = decisions(cell.learner, cell.alpha, stream, trial)
        kept = Stream(*(column[BEFORE - WARM :] for column in stream))
        waiting = set(NAMES)
        for seen in poll(cell.alpha, kept, answered[BEFORE - WARM :], WARM, POLLED_AFTER):
            for name in waiting & seen.active:
                delays[name].append((seen.questions, seen.feedbacks))
            waiting -= seen.active
    rows = []
    for name in NAMES:
        many = len(delays[name])
        low, high = stats.binomtest(many, cell.trials).proportion_ci(LEVEL)
        late = np.full((cell.trials, 2), np.inf)  # a trial in which it did not ring counts as infinitely late
        late[:many] = np.array(delays[name]).reshape(many, 2)
        quantiles = np.quantile(late, [0.5, 0.9], axis=0, method="higher")
        delay = dict(zip(("questions_q50", "questions_q90"), quantiles[:, 0], strict=True))
        delay |= dict(zip(("feedbacks_q50", "feedbacks_q90"), quantiles[:, 1], strict=True))
        rates = {"rate": many / cell.trials, "low": float(low), "high": float(high)}
        rows.append(_describe(cell) | {"phase": "change", "alarm": name, "rang": many} | rates | delay)
    return rows


def _describe(cell: Cell) -> dict[str, Any]:
    return {
        "case": cell.case,
        "source": cell.records.name,
        "coverage": _coverage(cell.records, cell.alpha),
        "learner": cell.learner,
        "alpha": cell.alpha,
        "trials": cell.trials,
    }


def _coverage(records: Records, alpha: float) -> float:
    return float(coverage_by_grid(ARMS, records.scores, records.errors, alpha)[GRID])


def _poisson(many: int) -> tuple[float, float]:
    """Return the exact interval of the mean of a Poisson count (Garwood 1936)."""
    tail = (1 - LEVEL) / 2
    low = float(stats.chi2.ppf(tail, 2 * many)) / 2 if many else 0.0
    return low, float(stats.chi2.ppf(1 - tail, 2 * many + 2)) / 2


def cells(config: AlarmYears) -> Iterator[tuple[Callable[..., list[dict[str, Any]]], tuple[Any, ...]]]:
    """Yield the calls that measure each cell: a function and its arguments."""
    learner, alpha, rate = config.learners[0], config.alphas[0], config.feedback_rate
    if config.data is not None:
        from experiments.beyond import traces  # imported here: it imports all that experiments with sweeps need

        for trace in traces(config.data):
            if _coverage(trace, alpha) >= FEASIBLE:
                yield count_false, (Cell("shuffled", trace, trace, learner, alpha, 1), rate)
        return
    sources = [load_profile(name) for name in config.sources]
    for records, other in zip(sources, [*sources[1:], sources[0]], strict=True):
        for case in CASES:
            cell = Cell(case, records, other, learner, alpha, config.times(1 if case == "shuffled" else 10))
            yield count_false, (cell, rate)
        for name in config.learners:
            for target in config.alphas:
                if (name, target) != (learner, alpha):
                    cell = Cell("shuffled", records, other, name, target, config.times(20))
                    yield count_false, (cell, rate)
        for name in config.learners[:2]:
            for change in CHANGES:
                yield measure_delays, (Cell(change, records, other, name, alpha, config.times(4)), rate)


def run(config: AlarmYears, executor: Executor | None = None) -> Table:
    """Return one row for each case or change, source, learner, alpha and alarm.

    Columns: ``coverage``, the share that the best fixed threshold answers with an FDR of at most alpha; ``rang``,
    the number of alarms in ``trials`` years (cases; phase: while the learner starts, or later) or of trials in
    which the alarm rang after the change; ``rate``, per year or per trial, with its exact interval (``low``,
    ``high``; 95%, Poisson or Clopper-Pearson); and the delay after the change, in questions and in feedbacks:
    median and 90% quantile, infinite if the alarm rang in too few trials.

    Raises:
        BadInput: the folder has no usable log, or the workers are forked.
        BatchFailed: a worker failed.
    """
    check_workers(executor)
    calls = list(cells(config))
    bar = tqdm(total=len(calls), unit=" cells", disable=None)
    rows: list[dict[str, Any]] = []
    sent = [] if executor is None else [executor.submit(measure, *arguments) for measure, arguments in calls]
    with bar, cancel_on_error(sent):
        for index, (measure, arguments) in enumerate(calls):
            measured = result_of(sent[index], arguments[0].case) if sent else measure(*arguments)
            rows += measured
            bar.update()
    return frame(rows)
