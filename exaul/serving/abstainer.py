"""A learner in a user's program: pass a score, get a decision, and report feedback whenever it arrives."""

import csv
import math
import operator
import secrets
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from exaul.engine import registry
from exaul.engine.checks import (
    MOST,
    BadInput,
    Configuration,
    check_count,
    check_holds,
    check_known,
    check_legible,
    join_lines,
    quote,
    setting,
)
from exaul.engine.feedback import check_audit, check_feedback, check_reserve
from exaul.engine.logs.log import (
    Layout,
    Records,
    describe_log,
    describe_start,
    file_hash,
    load_table,
    read_log,
)
from exaul.kernels.fdr_limit import fdr_limit
from exaul.kernels.feedback import (
    EXPIRES,
    FORGETTING,
    MISSING,
    Feedback,
    FeedbackSums,
    add_abstention,
    add_answer,
    add_decision,
    close_answer,
    learned_share,
    remove_recent,
)
from exaul.kernels.game import ARMS, LOG_ARMS, Parameters, Rates, compute_costs, compute_cuts, log_grid, logit_grid
from exaul.kernels.learners.learner import Learner, Ranked, bound_risk
from exaul.kernels.learners.start import start_of
from exaul.kernels.online import OnlineDecision, Uniforms, choose, start_copy
from exaul.kernels.rates import rates_of
from exaul.kernels.uniforms import FEEDBACK, LEARNER

VERSION = 7  # of saved states
LEARNERS = "aci-rank", "exaul"  # that a program can use
OUTCOMES = "repeated", "late", "withdrawn", "withheld", "unaudited"  # of further feedback on a closed answer
# raised by ``Abstainer._resume``
UNUSABLE_STATE = ArithmeticError, AttributeError, LookupError, TypeError, ValueError
DELTA = 0.05  # ``fdr_limit`` holds with probability 1 - DELTA
FEEDBACK_WORDS = {"up": 0.0, "down": 1.0}


class AbstainerDecision(NamedTuple):
    """The decision for one answer."""

    id: str  # pass it to ``feedback`` or ``withdraw``
    answer: bool  # show the answer, or say "I don't know"
    probability: float  # probability of answering before the draw, in [0, 1]
    audit: bool = False  # find out whether the answer is right and report it


class OpenAnswer(NamedTuple):
    """A shown answer without feedback."""

    question: int  # number of its question, from 0
    answer: int  # number of the answer, from 0
    cut: int
    probability: float  # of the decision


@dataclass(frozen=True, kw_only=True)
class AbstainersConfiguration(Configuration):
    """Configuration of several Abstainers."""

    alpha: float = setting(0.1, "target FDR, in (0, 1)", "ALPHA")
    learner: str = setting("aci-rank", "learner: aci-rank, or the paper's exaul, which needs a horizon", "NAME")
    horizon: int | None = setting(None, "number of questions, which sets the rates and lambda of exaul", "T")
    flips: tuple[float, ...] = setting(
        (0.0, 0.0), "probabilities of wrong feedback: on a right answer, and on a wrong one", "P"
    )
    bias: float = setting(1.0, "how many times more often wrong answers get feedback than right ones, > 0", "X")
    missing: str = setting("skip", "how an answer without feedback counts: skip, wrong or right", "NAME")
    audit: float | None = setting(
        None,
        "probability of auditing an answer, in (0, 1]; if given, only feedback on audited answers is learned",
        "P",
    )
    expires: int = setting(EXPIRES, "number of questions after which feedback is too late", "N")
    seed: int | None = setting(None, "seed of the draws (default: 64 secret random bits)", "N")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_holds("alpha", self.alpha, 0 < self.alpha < 1, "in (0, 1), such as 0.1")
        registry.check_names("learner", (self.learner,), registry.LEARNERS)
        check_known("learner", (self.learner,), LEARNERS)
        check_count("expires", self.expires)
        if self.horizon is not None:
            check_count("horizon", self.horizon)
        elif self.learner == "exaul":
            raise BadInput("horizon: missing; exaul needs it for its rates, and for lambda, its square root")
        check_feedback(self.feedback, silent=True)
        check_audit(self.audit, self.bias, self.missing)
        check_holds(
            "seed", self.seed, self.seed is None or 0 <= self.seed < 2**64, "an integer from 0 to 2**64 - 1"
        )

    @property
    def feedback(self) -> Feedback:
        """The model of users' feedback."""
        return Feedback(bias=self.bias, flips=tuple(self.flips), missing=self.missing)

    @property
    def aim(self) -> float:
        """The error rate of feedback at which the FDR is alpha (``docs/proofs.md``, N1)."""
        return float(self.feedback.aim(self.alpha))


@dataclass(frozen=True, kw_only=True)
class AbstainerConfiguration(AbstainersConfiguration):
    """Configuration of an Abstainer."""

    reserve: bool = setting(False, "count an answer as wrong until its feedback arrives")
    key: int = setting(0, "number that separates the draws of several Abstainers with one seed", "N")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reserve:
            check_reserve(self.learner, learner_of(self.learner))
        check_holds("key", self.key, 0 <= self.key < 2**32, "an integer from 0 to 2**32 - 1")

    @property
    def feedback(self) -> Feedback:
        """The model of users' feedback."""
        return super().feedback._replace(reserve=self.reserve)


def learner_of(name: str) -> Learner[Any]:
    """Return the learner of a name in LEARNERS."""
    return registry.resolve("learner", name, registry.LEARNERS, (Learner,))


class AbstainerStart(NamedTuple):
    """What an Abstainer begins with."""

    grid: NDArray[np.float64]  # [H]
    numbers: list[float]  # of its ``OnlineCopy`` before the first question
    table: list[float]  # [H] likewise
    log: dict[str, Any] | None = None  # as of ``describe_log``; None without a log

    def as_json(self) -> dict[str, Any]:
        """Return it for JSON, which keeps the bits of floats."""
        return self._asdict() | {"grid": self.grid.tolist()}

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Self:
        """Return what ``as_json`` returned. Raise BadInput, or another of UNUSABLE_STATE, if it cannot have."""
        grid, log = np.array(saved["grid"], np.float64), saved["log"]
        ordered = 2 <= len(grid) <= MOST and grid[0] == 0 and grid[-1] == 1 and bool((np.diff(grid) >= 0).all())
        check_holds("state: grid", saved["grid"][:3], ordered, "thresholds from 0 to 1")
        known = log is None or (
            isinstance(log["name"], str) and isinstance(log["records"], int) and 0 <= log["error_rate"] <= 1
        )
        check_holds("state: log", log, known, "as of a log")
        numbers, table = (_as_floats(f"start {name}", saved[name]) for name in ("numbers", "table"))
        return cls(grid, numbers, table, None if log is None else dict(log))


@cache  # thousands of Abstainers share it
def _grid() -> NDArray[np.float64]:
    return logit_grid(ARMS, np.empty(0))


def start_after(
    config: AbstainersConfiguration, log: Records | None, scores: NDArray[np.float64] | None = None
) -> AbstainerStart:
    """Return what a learner begins with: after a log of the past, or with nothing known.

    ``scores`` [M], the latest last, are those of all past answers, if the log is a sample of them.
    """
    if log is None:
        grid, cuts, past, described = _grid(), None, None, None
    else:
        grid, described = log_grid(LOG_ARMS, log.scores if scores is None else scores), describe_log(log)
        cuts = compute_cuts(grid, log.scores), log.errors
        past = None if scores is None else compute_cuts(grid, scores)
    rule = learner_of(config.learner).rule
    numbers, counts = start_of(rule, len(grid), [config.alpha], cuts, past)
    known = counts.tolist() if isinstance(rule, Ranked) else [0.0] * len(grid)
    return AbstainerStart(grid, [float(each[0]) for each in numbers], known, described)


def read_start_log(log: Any, columns: Layout) -> Records:
    """Return the records of a log to start from, as ``read_log``; a CSV needs no pandas."""
    try:
        return read_log(log, columns)
    except ModuleNotFoundError as error:
        if error.name == "pandas":
            return _load_csv(Path(log), columns)
        raise


def _load_csv(path: Path, columns: Layout) -> Records:
    """Return the records of a CSV where pandas is not installed, as in a small service."""
    if path.suffix.lower() != ".csv":
        raise BadInput(f"{path}: it must be a file .csv; others need pandas, which is not installed")
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            rows = [row for row in csv.reader(stream, strict=True) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise BadInput(f"{path}: unreadable ({join_lines(str(error))})") from error
    header = rows.pop(0) if rows else []
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise BadInput(f"{path}, row {number}: {len(row)} cells found; the header has {len(header)}")
    cells = {name: [row[i] for row in rows] for i, name in enumerate(header)}
    return load_table(str(path), cells, columns)._replace(name=path.stem, sha256=file_hash(path))


class Abstainer:
    """Decide which answers to show, and learn from feedback on shown answers.

    Feedback may arrive late, in any order, or never. If it always arrives before the next question, the decisions
    are those of trial ``key`` of ``run(Sweep(environment="replay", grid="logit", seed=seed, ...))``, up to
    rounding. By default an answer without feedback changes nothing, and an abstention has the weight of the share
    of answers that get feedback; otherwise missing feedback would push the learner towards answering. All methods
    are thread-safe.
    """

    REMEMBERED = 1000  # latest closed ids whose outcome is kept in memory

    def __init__(
        self,
        *,
        warm_start: Any = None,
        score: str = "score",
        error: str | None = None,
        correct: str | None = None,
        drop_missing: bool = False,
        **configuration: Any,
    ) -> None:
        """Create an Abstainer with the given fields of ``AbstainerConfiguration``, perhaps from a log of the past.

        Args:
            warm_start: the log of scored answers to start from: a file (``PATH`` or ``PATH:COL=VALUE,...``, as of
                ``exaul sweep --logs``), a DataFrame, or scores [N] and errors [N], each in [0, 1]. It sets the
                thresholds, and what ``aci-rank`` answers first.
            score: column of the scores of a file or DataFrame.
            error: column of its errors.
            correct: column of the opposite of errors.
            drop_missing: leave out rows with an empty score or label.
            configuration: see above.

        Raises:
            BadInput: a field is out of its range, or the log cannot be read.
        """
        check_known("abstainer", configuration, [f.name for f in fields(AbstainerConfiguration)])
        config = AbstainerConfiguration(**configuration)
        log, layout = None, Layout(score=score, error=error, correct=correct, drop_missing=drop_missing)
        if warm_start is not None:
            log = read_start_log(warm_start, layout)
        elif layout != Layout():
            raise BadInput("score, error, correct, drop_missing: given without warm_start, whose columns they name")
        self._begin(config, start_after(config, log))

    def _begin(self, config: AbstainerConfiguration, start: AbstainerStart) -> None:
        """Set the initial state."""
        self.config = config = replace(config, seed=new_seed()) if config.seed is None else config
        assert config.seed is not None
        self._learner, self._start = learner_of(config.learner), start
        arms = len(start.grid)
        eta, gamma = rates_of(self._learner, config.horizon, arms, False, None, None)(1)
        self._rates = Rates(np.array([eta]), np.array([gamma]))
        answer_cost, abstain_cost = map(float, compute_costs(config.aim, math.sqrt(config.horizon or 0)))
        self._parameters = Parameters(eta, gamma, config.aim, answer_cost, abstain_cost)
        # two streams of uniforms: one draws decisions, the other audits
        self._draws, self._coins = (Uniforms(config.seed, stream, config.key) for stream in (LEARNER, FEEDBACK))
        self._copy = start_copy(self._learner.rule, start.numbers, start.table)
        self._lock = threading.Lock()
        self._open: dict[str, OpenAnswer] = {}
        self._closed: dict[str, str] = {}  # outcome of further feedback, by id; oldest first
        self._sums = FeedbackSums(*[0.0] * len(FeedbackSums._fields))
        self._answers = self._audited = self._withdrawn = 0

    @property
    def started(self) -> str:
        """What the learner found in the log from which it started, in one line; empty without a log."""
        log, numbers = self._start.log, self._start.numbers
        if log is None:
            return ""
        if not numbers:
            return f"{self.config.learner} takes its thresholds from {log['name']}, {log['records']:,} rows"
        return describe_start(log, self.config.learner, self.config.alpha, numbers[0])

    def cut_of(self, score: float) -> int:
        """Return the number of thresholds that answer a score (``compute_cuts``).

        A score of exactly 1 gets H - 1, because Lemma 1 needs an arm that always abstains.
        """
        grid = self._start.grid
        return min(int(grid.searchsorted(score, side="right")), len(grid) - 1)

    def decide(self, score: float, id: str | None = None) -> AbstainerDecision:
        """Decide whether to show an answer.

        Args:
            score: confidence in the answer, in [0, 1].
            id: identifies the answer later. The default is random, so that only recipients of it can give feedback.

        Raises:
            BadInput: the score is not in [0, 1], or the id was used before; the state is unchanged.
        """
        score = as_score(score)
        with self._lock:
            if id is None:
                id = secrets.token_hex(16)
            elif as_text("id", id) in self._open or id in self._closed:
                raise BadInput(f"id: {quote(id)} found; it must be a text that was not used before")
            self._expire()
            n, cut, rate, sums = int(self._sums.questions), self.cut_of(score), self.config.audit, self._sums
            waiting = sums.open if self.config.reserve else 0.0
            decision = self._copy.decide(cut, partial(self._draws.at, n), self._parameters, waiting)
            sums, audit = add_decision(choose, sums, decision.answered), False
            if decision.answered:
                audit = rate is not None and self._coins.at(n) < rate
                if audit or rate is None:
                    self._open[id] = OpenAnswer(n, self._answers, cut, decision.probability)
                else:
                    sums = close_answer(choose, sums, True)
                    self._close(id, "unaudited")
                self._answers += 1
                self._audited += audit
            else:  # an abstention is learned at once
                weight = learned_share(choose, sums) if rate is None else rate
                self._copy.learn(cut, decision, 0.0, self._parameters._replace(weight=weight))
                sums = add_abstention(choose, sums, True, weight)
                self._close(id, "withheld")
            self._sums = sums
            return AbstainerDecision(id, decision.answered, decision.probability, audit)

    def feedback(self, id: str, error: float | bool | str) -> str:
        """Learn from the feedback on an answer.

        Args:
            id: id of the decision.
            error: 1, true or "down" if the answer is wrong; 0, false or "up" if it is right; or a number between.

        Returns:
            ``counted``; or, with the state unchanged, ``repeated`` (only the first counts), ``late`` (expired),
            ``withdrawn``, ``withheld`` (not shown), ``unaudited`` or ``unknown``.

        Raises:
            BadInput: the error is not in [0, 1], or the id is not a text; the state is unchanged.
        """
        error, id = as_error(error), as_text("id", id)
        with self._lock:
            self._expire()
            open_answer = self._open.pop(id, None)
            if open_answer is None:
                return self._closed.get(id, "unknown")
            self._learn(open_answer, error, True)
            self._close(id, "repeated")
            return "counted"

    def withdraw(self, id: str) -> str:
        """Record that an answer was not shown after all.

        Nothing more is learned from it, but what was learned stays. ``fdr_limit`` bounds the FDR of the other
        answers. If the answer was audited and has no feedback yet, that limit counts it as wrong for ever.

        Returns:
            ``withdrawn``; ``withheld``, with the state unchanged; or ``unknown``: the id was never given, or is not
            among the REMEMBERED latest closed ones. Each call with an unknown id counts as the withdrawal of an
            answer, so that ``fdr_limit`` holds in both cases.

        Raises:
            BadInput: the id is not a text; the state is unchanged.
        """
        as_text("id", id)
        with self._lock:
            self._expire()
            open_answer = self._open.pop(id, None)
            outcome = "open" if open_answer else self._closed.get(id, "unknown")
            if outcome in ("withdrawn", "withheld"):
                return outcome
            self._withdrawn += 1
            if outcome == "unknown":
                return outcome
            if open_answer:
                later = self._answers - 1 - open_answer.answer
                self._sums = remove_recent(close_answer(choose, self._sums, True), FORGETTING**later)
            self._close(id, "withdrawn")
            return "withdrawn"

    def figures(self) -> dict[str, float]:
        """Return counts, risk and bounds.

        Returns:
            questions; answers, including withdrawn ones; audited (answers); withdrawn (answers, as counted by
            ``withdraw``); open (answers without feedback so far); observed (answers with feedback); wrong (sum of
            their errors); fdr_observed (wrong / observed, or NaN); learned_share (share of recent answers that were
            learned); learned (number of learned rounds); alpha; aim; feedback_risk (sum of ``error - aim`` over
            learned answers, including expired ones that count as wrong or right); feedback_risk_bound (bound of
            that risk on any sequence, ``docs/proofs.md``, M1; NaN if nothing is proved); fdr_limit (bound of the
            FDR of all answers that were not withdrawn, F1; with probability .95 it holds at all times at once; NaN
            without audits or answers).
        """
        with self._lock:
            sums = self._sums
            observed, wrong = sums.observed, sums.observed_errors
            return {
                "questions": sums.questions,
                "answers": float(self._answers),
                "audited": float(self._audited),
                "withdrawn": float(self._withdrawn),
                "observed": observed,
                "learned": sums.learned,
                "open": sums.open,
                "wrong": wrong,
                "fdr_observed": wrong / observed if observed else math.nan,
                "learned_share": learned_share(choose, sums) if self.config.audit is None else self.config.audit,
                "alpha": self.config.alpha,
                "aim": self.config.aim,
                "feedback_risk": self._risk(sums),
                "feedback_risk_bound": self._risk_bound(sums),
                "fdr_limit": limit_of(
                    self.config, wrong + self._audited - observed, self._answers, self._withdrawn
                ),
            }

    def state(self) -> dict[str, Any]:
        """Return the state for JSON. ``Abstainer.of`` continues from it with the same bits."""
        with self._lock:
            return {
                "exaul": VERSION,
                "config": asdict(self.config),
                "start": None if self._start.log is None else self._start.as_json(),
                **self.summary(),
                "open": [[id, *open_answer] for id, open_answer in self._open.items()],
                "closed": list(self._closed.items()),
            }

    def summary(self) -> dict[str, Any]:
        """Return the part of the state whose size does not grow with the number of open answers."""
        self._expire()
        return {
            "numbers": self._copy.numbers,
            "table": self._copy.table,
            "sums": self._sums._asdict(),
            "answers": self._answers,
            "audited": self._audited,
            "withdrawn": self._withdrawn,
        }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self:
        """Continue from a state that ``state`` returned, perhaps as read from JSON.

        Raises:
            BadInput: it is not such a state, has another version, or is out of range of its configuration.
        """
        try:
            if state["exaul"] != VERSION:
                other = "; exaul 0.2 reads it" if state["exaul"] == 6 else ""
                raise BadInput(f"state: version {quote(state['exaul'])} found; it must be {VERSION}{other}")
            config = AbstainerConfiguration(**saved_configuration("state", state["config"]))
            made = cls.__new__(cls)
            start = state["start"]
            made._begin(config, start_after(config, None) if start is None else AbstainerStart.of(start))
            made._resume(state, state["open"], state["closed"])
        except UNUSABLE_STATE as error:
            if isinstance(error, BadInput):  # which is a ValueError
                raise
            raise BadInput(
                f"state: {type(error).__name__}: {error}; it must be the state of an Abstainer"
            ) from error
        return made

    def _resume(self, state: Mapping[str, Any], open_answers: Iterable[Any], closed: Iterable[Any]) -> None:
        """Continue from the parts of a state, each of which is checked against the configuration.

        Raises:
            BadInput: a number is out of range.
            Others of UNUSABLE_STATE: a part is missing or has another type.
        """
        numbers, table = _as_floats("numbers", state["numbers"]), _as_floats("table", state["table"])
        ranked = isinstance(self._learner.rule, Ranked)
        fits = len(numbers) == len(self._copy.numbers) and len(table) == len(self._start.grid)
        # counts: a copy divides by their sum, and by the increment
        fits = fits and (not ranked or (min(table) >= 0 < sum(table) < math.inf and numbers[-1] > 0))
        check_holds("state: numbers, table", numbers, fits, "those of the configuration")
        self._copy = start_copy(self._learner.rule, numbers, table)
        sums = FeedbackSums(**{name: float(value) for name, value in state["sums"].items()})
        answers, audited, withdrawn = (operator.index(state[name]) for name in ("answers", "audited", "withdrawn"))
        self._open, next_question, next_answer = {}, 0, 0
        for id, *numbers in open_answers:
            question, answer, cut, probability = numbers
            holds = (
                next_question <= operator.index(question) < sums.questions
                and next_answer <= operator.index(answer) < answers
                and 0 <= operator.index(cut) < len(table)
                and 0 < probability <= 1
                and id not in self._open
            )
            check_holds("state: open", [id, *numbers], holds, "an answer that waits for feedback")
            self._open[as_text("id", id)] = OpenAnswer(question, answer, cut, float(probability))
            next_question, next_answer = question + 1, answer + 1
        self._closed = {as_text("id", id): outcome for id, outcome in closed}
        check_known("state: closed", self._closed.values(), OUTCOMES)
        few = len(self._closed) <= self.REMEMBERED and not self._closed.keys() & self._open
        check_holds("state: closed", len(self._closed), few, f"at most {self.REMEMBERED} answers that are not open")
        counts = sums.questions, sums.settled, sums.observed, sums.open, sums.since
        holds = (
            all(count.is_integer() for count in counts)
            and MOST > sums.questions >= sums.learned >= sums.settled >= sums.observed >= sums.observed_errors >= 0
            and sums.settled >= sums.learned_errors >= 0
            and sums.settled >= sums.since >= 0
            and sums.questions >= answers >= sums.settled + len(self._open)
            and sums.open == len(self._open)
            and -0.5 < sums.recent_answers <= answers  # withdrawn answers are subtracted, up to rounding
            and 0 <= sums.recent_learned <= sums.settled
            and answers >= audited >= 0
            and MOST > withdrawn >= 0
        )
        check_holds("state: sums", [*sums, answers, audited, withdrawn], holds, "counts that can occur together")
        self._sums, self._answers, self._audited, self._withdrawn = sums, answers, audited, withdrawn

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be copied or pickled."""
        refuse_copy(self)

    def _learn(self, open_answer: OpenAnswer, error: float, observed: bool) -> None:
        self._copy.learn(open_answer.cut, OnlineDecision(True, open_answer.probability), error, self._parameters)
        self._sums = add_answer(choose, close_answer(choose, self._sums, True), True, observed, error)

    def _expire(self) -> None:
        """Close the answers that are open for more than ``expires`` questions.

        All that depends on open answers begins with it. So a replay need not know of late feedback, which is in no
        journal.
        """
        while self._open:  # in the order of questions, as dictionaries keep it
            id = next(iter(self._open))
            if self._sums.questions - self._open[id].question <= self.config.expires:
                return
            open_answer = self._open.pop(id)
            if self.config.missing == "skip":
                self._sums = close_answer(choose, self._sums, True)
            else:
                self._learn(open_answer, MISSING[self.config.missing], False)
            self._close(id, "late")

    def _close(self, id: str, outcome: str) -> None:
        self._closed.pop(id, None)  # so that it becomes the latest
        self._closed[id] = outcome
        if len(self._closed) > self.REMEMBERED:
            del self._closed[next(iter(self._closed))]

    def _risk_bound(self, sums: FeedbackSums) -> float:
        config = self.config
        if self._learner.risk_bound is None:
            return math.nan
        # M1: since its last answer the learner could not react to what it learned (``since`` answers). Each of them
        # but one adds at most 1 - aim. A reserve has accounted for them.
        late = max(sums.since - 1, 0) * (1 - config.aim) * (not config.reserve)
        rounds, settled = np.array(sums.learned + 1), np.array(sums.settled)
        first = type(self._learner.rule.start)(*self._start.numbers)
        bound = bound_risk(
            self._learner, self._rates, None, rounds, settled, len(self._start.grid), config.aim, first
        )
        return float(bound) + late

    def _risk(self, sums: FeedbackSums) -> float:
        return float(sums.learned_errors - self.config.aim * sums.settled)


def _as_floats(name: str, values: Any) -> list[float]:
    """Return finite numbers from JSON."""
    numbers = [float(value) for value in values]
    check_holds(f"state: {name}", numbers[:3], all(map(math.isfinite, numbers)), "finite numbers")
    return numbers


def limit_of(config: AbstainerConfiguration, found: float, answers: float, withdrawn: float) -> float:
    """Return ``fdr_limit`` of a configuration; NaN without audits or answers.

    Args:
        config: has the probability of an audit, and the flips.
        found: audited answers that were found wrong, or whose result is not known, which count as wrong.
        answers: all answers, including withdrawn ones.
        withdrawn: answers that were withdrawn.
    """
    if config.audit is None:
        return math.nan
    return fdr_limit(found, answers, answers - withdrawn, config.audit, tuple(config.flips), DELTA)


def saved_configuration(what: str, saved: object) -> dict[str, Any]:
    """Return the fields of a configuration that was saved in ``what``. Raise BadInput unless all are in range."""
    names = [f.name for f in fields(AbstainerConfiguration)]
    if not isinstance(saved, dict) or sorted(saved) != sorted(names) or saved["seed"] is None:
        raise BadInput(f"{what}: the configuration is incomplete; it must have {', '.join(names)}")
    try:
        return asdict(AbstainerConfiguration(**saved))
    except BadInput as error:
        raise BadInput(f"{what}: {error}") from error


def refuse_copy(self: object) -> NoReturn:
    """Raise TypeError: a copy would draw the same uniforms again."""
    raise TypeError(f"{type(self).__name__} cannot be copied or pickled; Abstainer.state() can be stored")


def as_text(name: str, value: Any) -> str:
    """Return a key or an id. Raise BadInput unless it is a text of valid Unicode, without null characters."""
    check_holds(name, value, isinstance(value, str), "a text")
    return check_legible(name, str.__str__(value))  # of subclasses, as NumPy's, the plain text


def new_seed() -> int:
    """Return a secret random seed."""
    return secrets.randbits(64)


def as_score(value: Any) -> float:
    """Return a score as a number. Raise BadInput if it is not one in [0, 1]."""
    return _number("score", value)


def as_error(value: Any) -> float:
    """Return feedback as a number, where 1 is wrong. Raise BadInput unless it is as in ``Abstainer.feedback``."""
    return (
        FEEDBACK_WORDS[value]
        if isinstance(value, str) and value in FEEDBACK_WORDS
        else _number("error", value, True)
    )


def _number(name: str, value: Any, flag: bool = False) -> float:
    """Return a value as a number in [0, 1]. Booleans count as numbers only if ``flag``; texts never do."""
    number = value
    if type(value) is not float:
        try:
            is_flag = isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool")
            number = math.nan if is_flag and not flag else float(value.__float__())  # which texts do not have
        except (AttributeError, ArithmeticError, RuntimeError, TypeError, ValueError):
            number = math.nan
    words = "up, down, true (wrong), false (right) or " if flag else ""
    check_holds(name, value, 0 <= number <= 1, f"{words}a number in [0, 1]")
    return number + 0.0  # SQLite has no -0.0
