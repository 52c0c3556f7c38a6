"""A learner in a user's program: pass a score, get a decision, and report feedback whenever it arrives."""

import math
import operator
import secrets
import threading
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
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
    check_not_negative,
    check_positive,
    quote,
    setting,
)
from exaul.engine.feedback import check_audit, check_feedback, check_reserve
from exaul.engine.logs.log import Layout, Records, describe_log, describe_start, read_log
from exaul.kernels.fdr_limit import fdr_limit
from exaul.kernels.feedback import EXPIRES, FORGETTING, MISSING, Feedback, FeedbackSums, learned_share
from exaul.kernels.game import (
    ARMS,
    GRIDS,
    LOG_ARMS,
    LOG_GRID,
    ROUNDS,
    Rates,
    compute_costs,
    compute_cuts,
    log_grid,
)
from exaul.kernels.learners.learner import Drawn, Learner, Sided, bound_risk
from exaul.kernels.learners.start import fitted_share, start_of
from exaul.kernels.rates import rates_of

VERSION = 6  # of saved states
QUESTIONS, LEARNED = (FeedbackSums._fields.index(name) for name in ("questions", "learned"))
OUTCOMES = "repeated", "late", "withdrawn", "withheld", "unaudited"  # of further feedback on a closed answer
UNUSABLE_STATE = ArithmeticError, AttributeError, KeyError, TypeError, ValueError  # raised by ``Abstainer._resume``
UNKNOWN = -1.0  # the share of answers that are learned, unless answers are audited
DELTA = 0.05  # ``fdr_limit`` holds with probability 1 - DELTA
FEEDBACK_WORDS = {"up": 0.0, "down": 1.0}


class AbstainerDecision(NamedTuple):
    """The decision for one answer."""

    id: str  # pass it to ``feedback`` or ``withdraw``
    answer: bool  # show the answer, or say "I don't know"
    probability: float  # probability of answering before the draw, in [0, 1]
    audit: bool = False  # find out whether the answer is right and report it


class _Start(NamedTuple):
    """What an Abstainer begins with."""

    grid: NDArray[np.float64]  # [H]
    numbers: Any  # of a ``Ranked`` rule, before the first question; () for other rules
    counts: Any  # [H] likewise
    log: dict[str, Any] | None  # as of ``describe_log``


def _first_of(start: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return numbers and counts of the first cell of ``start_of``."""
    numbers, counts = start
    return type(numbers)(*(float(x[0]) for x in numbers)) if numbers else (), counts


class _OpenAnswer(NamedTuple):
    """A shown answer without feedback."""

    question: int  # number of its question, from 0
    answer: int  # number of the answer, from 0
    cut: int
    probability: float  # this, arm and weight as of ``OnlineDecision``
    arm: int
    weight: float


@dataclass(frozen=True, kw_only=True)
class AbstainersConfiguration(Configuration):
    """Configuration of several Abstainers."""

    alpha: float = setting(0.1, "target FDR, in (0, 1)", "ALPHA")
    learner: str = setting("aci-rank", "learner; it must learn from feedback on its own answers")
    grid: str = setting("logit", "thresholds: uniform or logit", "NAME")
    arms: int = setting(ARMS, "number H of thresholds of the grid, at least 2", "H")
    horizon: int | None = setting(None, "number of questions, if known", "T")
    lam: float | None = setting(
        None, "weight of the FDR against abstaining, >= 0 (default: sqrt(horizon))", "LAMBDA"
    )
    anytime: bool = setting(False, "use rates for an unknown horizon; a given horizon then only sets lam")
    eta: float | None = setting(None, "learning rate (default: the learner's)", "X")
    gamma: float | None = setting(None, "implicit exploration (default: the learner's)", "X")
    flips: tuple[float, ...] = setting(
        (0.0, 0.0), "probabilities of wrong feedback: on a right answer, and on a wrong one", "P"
    )
    bias: float = setting(1.0, "how many times more often wrong answers get feedback than right ones, > 0", "X")
    missing: str = setting("skip", "how an answer without feedback counts: skip, wrong or right", "NAME")
    reserve: bool = setting(False, "count an answer as wrong until its feedback arrives")
    audit: float | None = setting(
        None,
        "probability of auditing an answer, in (0, 1]; if given, only feedback on audited answers is learned",
        "P",
    )
    expires: int = setting(EXPIRES, "number of questions after which feedback is too late", "N")
    step: float | None = setting(None, "step of aci-rank, in (0, 1] (default: 0.025)", "X")
    seed: int | None = setting(None, "seed of the draws (default: 64 secret random bits)", "N")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_holds("alpha", self.alpha, 0 < self.alpha < 1, "in (0, 1)")
        registry.check_names("learner", (self.learner,), registry.LEARNERS)
        check_known("grid", (self.grid,), self.known_grids())
        check_count("arms", self.arms, 2)
        for name in ("horizon", "expires"):
            check_count(name, getattr(self, name))
        for name in ("lam", "gamma"):
            check_not_negative(name, getattr(self, name))
        check_positive("eta", self.eta)
        check_holds("step", self.step, self.step is None or 0 < self.step <= 1, "in (0, 1]")
        check_feedback(self.feedback, silent=True)
        check_audit(self.audit, self.bias, self.missing)
        check_holds(
            "seed", self.seed, self.seed is None or 0 <= self.seed < 2**64, "an integer from 0 to 2**64 - 1"
        )

    @classmethod
    def known_grids(cls) -> tuple[str, ...]:
        """The names of the grids; one of quantiles of the records would look ahead."""
        return tuple(name for name in GRIDS if name != "quantile")

    @property
    def feedback(self) -> Feedback:
        """The model of users' feedback."""
        return Feedback(bias=self.bias, flips=tuple(self.flips), missing=self.missing, reserve=self.reserve)

    @property
    def aim(self) -> float:
        """The error rate of feedback at which the FDR is alpha (``docs/proofs.md``, N1)."""
        return float(self.feedback.aim(self.alpha))


@dataclass(frozen=True, kw_only=True)
class AbstainerConfiguration(AbstainersConfiguration):
    """Configuration of an Abstainer."""

    key: int = setting(0, "number that separates the draws of several Abstainers with one seed", "N")

    @classmethod
    def known_grids(cls) -> tuple[str, ...]:
        """The names of the grids, with that of a log to start from."""
        return (*super().known_grids(), LOG_GRID)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_holds("key", self.key, 0 <= self.key < 2**32, "an integer from 0 to 2**32 - 1")


@cache  # thousands of Abstainers share one configuration
def _grid(name: str, arms: int) -> NDArray[np.float64]:
    return GRIDS[name](arms, np.empty(0))


class Abstainer:
    """Decide which answers to show, and learn from feedback on shown answers.

    Feedback may arrive late, in any order, or never. If it always arrives before the next question, the decisions
    are those of trial ``key`` of ``run(Sweep(environment="replay", seed=seed, ...))``, up to rounding. By default
    an answer without feedback changes nothing, and an abstention has the weight of the share of answers that get
    feedback; otherwise missing feedback would push the learner towards answering. All methods are thread-safe.
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
                grid, unless ``grid`` names another, and what ``aci-rank`` answers first.
            score: column of the scores of a file or DataFrame.
            error: its column of errors, where 1 is wrong; ``correct`` is the opposite. By default whichever of
                ``error`` and ``correct`` exists.
            correct: see ``error``.
            drop_missing: leave out rows with an empty score or label.
            configuration: fields of ``AbstainerConfiguration``.

        Raises:
            BadInput: a field is unknown or out of range, the learner needs more than feedback, or the log cannot be
                read.
        """
        names = [f.name for f in fields(AbstainerConfiguration)]
        check_known("abstainer", configuration, names)
        log, layout = None, Layout(score=score, error=error, correct=correct, drop_missing=drop_missing)
        if warm_start is None and layout != Layout():
            raise BadInput("score, error, correct, drop_missing: given without warm_start, whose columns they name")
        if warm_start is not None:
            log = read_log(warm_start, layout)
            configuration = {"grid": LOG_GRID, "arms": LOG_ARMS} | configuration
        config = AbstainerConfiguration(**configuration)
        if config.grid == LOG_GRID and log is None:
            raise BadInput("grid: log found; it has the scores of a log, which warm_start names")
        self._set_up(config, log)

    def _set_up(self, config: AbstainerConfiguration, log: Records | None, saved: _Start | None = None) -> None:
        self.config = config = replace(config, seed=new_seed()) if config.seed is None else config
        self._learner: Learner[Any] = registry.resolve("learner", config.learner, registry.LEARNERS, (Learner,))
        with registry.user_code_errors("learner:", config.learner) if ":" in config.learner else nullcontext():
            self._start = self._start_from(log) if saved is None else saved
            self._begin()
            if ":" in config.learner:
                self.compile()  # errors of a user's code are reported here, not at the first question

    def _start_from(self, log: Records | None) -> _Start:
        """Return the grid, and what the learner begins with."""
        config, rule = self.config, self._learner.rule
        if log is None:
            grid = _grid(config.grid, config.arms)
            return _Start(grid, *_first_of(start_of(rule, len(grid), [config.alpha])), None)
        grid = log_grid(config.arms, log.scores) if config.grid == LOG_GRID else _grid(config.grid, config.arms)
        first = _first_of(start_of(rule, len(grid), [config.alpha], (compute_cuts(grid, log.scores), log.errors)))
        return _Start(grid, *first, describe_log(log))

    @property
    def started(self) -> str:
        """What the learner found in the log from which it started, in one line; empty without a log."""
        log, numbers = self._start.log, self._start.numbers
        if log is None:
            return ""
        share = fitted_share(self._learner.rule, numbers)
        if share is None:
            return f"{self.config.learner} takes its thresholds from {log['name']}, {log['records']:,} rows"
        return describe_start(log, self.config.learner, self.config.alpha, share)

    def compile(self) -> None:
        """Compile what decisions and feedback need, which happens at the first call otherwise."""
        scratch = self._first_arrays()
        words = self._decision_key, self._feedback_key
        known = np.zeros_like(self._sums)
        cut, decision, _ = self._compiled.decide(
            *scratch, known, self._grid, 0.5, *words, self._parameters, False, UNKNOWN
        )
        self._compiled.learn(*scratch, known, cut, decision, 1.0, True, self._parameters)

    def _first_arrays(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return self._compiled.start(len(self._grid), self._start.numbers, self._start.counts)

    def _begin(self) -> None:
        """Check the learner, compile it, and set the initial state."""
        from exaul.kernels.online.one import compile_copy  # imported here: it imports the compiler

        config, learner = self.config, self._learner
        compiled = compile_copy(learner)
        if compiled is None:
            raise BadInput(f"learner: {config.learner} found; it must learn from feedback on its own answers only")
        if config.reserve:
            check_reserve(config.learner, learner)
        if isinstance(learner.rule, (Sided, Drawn)) and config.lam is None and config.horizon is None:
            raise BadInput(
                f"lam: missing; {config.learner} needs lam, or a horizon (lam then defaults to its square root)"
            )
        self._compiled, self._grid = compiled, self._start.grid
        eta = config.step if learner.rate == "step" else config.eta
        self._rates = rates_of(learner, config.horizon, len(self._grid), config.anytime, eta, config.gamma)
        lam = math.sqrt(config.horizon or 0) if config.lam is None else config.lam
        self._answer_cost, self._abstain_cost = map(float, compute_costs(config.aim, lam))
        assert config.seed is not None
        # two streams of uniforms: one draws decisions, the other audits
        self._decision_key, self._feedback_key = compiled.keys(
            config.seed & 0xFFFFFFFF, config.seed >> 32, config.key
        )
        self._numbers, self._table = self._first_arrays()
        self._lock = threading.Lock()
        self._open: dict[str, _OpenAnswer] = {}
        self._closed: dict[str, str] = {}  # outcome of further feedback, by id; oldest first
        self._sums = np.zeros(len(FeedbackSums._fields))  # a ``FeedbackSums``
        self._answers = self._audited = self._withdrawn = 0
        self._set_rates(0)

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
            n = int(self._sums[QUESTIONS])
            if n % ROUNDS == 0:
                self._set_rates(int(self._sums[LEARNED]) // ROUNDS)
            cut, decision, coin = self._compiled.decide(
                self._numbers,
                self._table,
                self._sums,
                self._grid,
                score,
                self._decision_key,
                self._feedback_key,
                self._parameters,
                self.config.reserve,
                UNKNOWN if self.config.audit is None else self.config.audit,
            )
            answered, probability = decision[:2]
            audit = answered and self.config.audit is not None and coin < self.config.audit
            if not answered:
                self._close(id, "withheld")
            else:
                if audit or self.config.audit is None:
                    self._open[id] = _OpenAnswer(n, self._answers, cut, *decision[1:4])
                else:
                    self._compiled.close(self._sums, 0.0)
                    self._close(id, "unaudited")
                self._answers += 1
                self._audited += audit
            return AbstainerDecision(id, answered, probability, audit)

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
                self._compiled.close(self._sums, FORGETTING ** (self._answers - 1 - open_answer.answer))
            self._close(id, "withdrawn")
            return "withdrawn"

    def figures(self) -> dict[str, float]:
        """Return counts, risk and bounds.

        Returns:
            questions; answers, including withdrawn ones; withdrawn (answers, as counted by ``withdraw``); open
            (answers without feedback so far); observed (answers with feedback); wrong (sum of their errors);
            fdr_observed (wrong / observed, or NaN); learned_share (share of recent answers that were learned);
            learned (number of learned rounds); aim; feedback_risk (sum of ``error - aim`` over learned answers,
            including expired ones that count as wrong or right); feedback_risk_bound (bound of that risk on any
            sequence, ``docs/proofs.md``, M1; NaN if nothing is proved); fdr_limit (bound of the FDR of all answers
            that were not withdrawn, F1; with probability .95 it holds at all times at once; NaN without audits or
            answers).
        """
        with self._lock:
            sums = FeedbackSums(*map(float, self._sums))
            observed, wrong = sums.observed, sums.observed_errors
            return {
                "questions": sums.questions,
                "answers": float(self._answers),
                "withdrawn": float(self._withdrawn),
                "observed": observed,
                "learned": sums.learned,
                "open": sums.open,
                "wrong": wrong,
                "fdr_observed": wrong / observed if observed else math.nan,
                "learned_share": float(learned_share(np.where, sums))
                if self.config.audit is None
                else self.config.audit,
                "aim": self.config.aim,
                "feedback_risk": self._risk(sums),
                "feedback_risk_bound": self._risk_bound(sums),
                "fdr_limit": self._fdr_limit(sums),
            }

    def state(self) -> dict[str, Any]:
        """Return the state for JSON. ``Abstainer.of`` continues from it with the same bits."""
        with self._lock:
            return {
                "exaul": VERSION,
                "config": asdict(self.config),
                "start": self._saved_start(),
                **self.summary(),
                "open": [[id, *open_answer] for id, open_answer in self._open.items()],
                "closed": list(self._closed.items()),
            }

    def _saved_start(self) -> dict[str, Any] | None:
        """Return the start from a log, for JSON; None without one, where the configuration is enough."""
        grid, numbers, _, log = self._start
        return None if log is None else {"grid": _as_hex(grid), "numbers": _as_hex(np.array(numbers)), "log": log}

    def summary(self) -> dict[str, Any]:
        """Return the part of the state whose size does not grow with the number of open answers."""
        self._expire()
        return {  # floats are stored as little-endian bytes, which are exact on every machine
            "numbers": _as_hex(self._numbers),
            "table": _as_hex(self._table),
            "sums": FeedbackSums(*self._sums.tolist())._asdict(),
            "answers": self._answers,
            "audited": self._audited,
            "withdrawn": self._withdrawn,
            "block": self._block,
        }

    @classmethod
    def of(cls, state: Mapping[str, Any], trust: bool = False) -> Self:
        """Continue from a state that ``state`` returned.

        Args:
            state: the state, perhaps as read from JSON.
            trust: import the module that it names, if its learner is ``module:name``; this runs the module's code.

        Raises:
            BadInput: it is not such a state, has another version, or is out of range of its configuration.
        """
        try:
            if state["exaul"] != VERSION:
                other = "; exaul 0.1 reads it" if state["exaul"] == VERSION - 1 else ""
                raise BadInput(f"state: version {quote(state['exaul'])} found; it must be {VERSION}{other}")
            config = saved_configuration("state", state["config"])
            check_trusted("state", config["learner"], trust, "trust=True")
            # before memory is allocated for the arms
            size = config["arms"] if state["start"] is None else len(state["start"]["grid"]) // 16
            check_holds("state: table", "another size", len(state["table"]) == 16 * size, "that of the arms")
            made = cls.__new__(cls)
            made._set_up(AbstainerConfiguration(**config), None, made._restored_start(config, state["start"]))
            made._resume(state, state["open"], state["closed"])
        except UNUSABLE_STATE as error:
            if isinstance(error, BadInput):  # which is a ValueError
                raise
            raise BadInput(
                f"state: {type(error).__name__}: {error}; it must be the state of an Abstainer"
            ) from error
        return made

    @staticmethod
    def _restored_start(config: Mapping[str, Any], saved: Mapping[str, Any] | None) -> _Start | None:
        """Return the start of a saved state; None without a log."""
        if saved is None:
            check_holds(
                "state: grid", config["grid"], config["grid"] != LOG_GRID, "that of a log, which is missing"
            )
            return None
        grid, numbers = _from_hex(saved["grid"]), _from_hex(saved["numbers"])
        ordered = len(grid) >= 2 and grid[0] == 0 and grid[-1] == 1 and bool((np.diff(grid) >= 0).all())
        check_holds("state: grid", saved["grid"][:20], ordered, "thresholds from 0 to 1")
        rule = registry.resolve("learner", config["learner"], registry.LEARNERS, (Learner,)).rule
        first, counts = start_of(rule, len(grid), [config["alpha"]])
        fits = numbers.shape == (len(first),) and bool(np.isfinite(numbers).all())
        check_holds("state: start", saved["numbers"][:20], fits, "finite numbers that fit the learner")
        log = saved["log"]
        known = isinstance(log["name"], str) and isinstance(log["records"], int) and 0 <= log["error_rate"] <= 1
        check_holds("state: log", log, known, "as of a log")
        return _Start(grid, type(first)(*numbers.tolist()) if first else (), counts, dict(log))

    def _resume(self, state: Mapping[str, Any], open_answers: Iterable[Any], closed: Iterable[Any]) -> None:
        """Continue from the parts of a state. All are checked against the configuration: compiled code does not.

        Raises:
            BadInput: a number is out of range.
            Others of UNUSABLE_STATE: a part is missing or has another type.
        """
        arms = len(self._grid)
        for name in ("numbers", "table"):
            array = _from_hex(state[name])
            fits = array.shape == getattr(self, f"_{name}").shape and bool(np.isfinite(array).all())
            check_holds(f"state: {name}", state[name][:20], fits, "finite numbers that fit the configuration")
            setattr(self, f"_{name}", array)
        sums = FeedbackSums(**{name: float(value) for name, value in state["sums"].items()})
        answers, audited, withdrawn = (operator.index(state[name]) for name in ("answers", "audited", "withdrawn"))
        self._open, next_question, next_answer = {}, 0, 0
        for id, *numbers in open_answers:
            question, answer, cut, probability, arm, weight = numbers
            holds = (
                next_question <= operator.index(question) < sums.questions
                and next_answer <= operator.index(answer) < answers
                and 0 <= operator.index(cut) < arms
                and 0 <= operator.index(arm) < arms
                and 0 < probability <= 1
                and 0 < weight <= 1
                and id not in self._open
            )
            check_holds("state: open", [id, *numbers], holds, "an answer that waits for feedback")
            self._open[as_text("id", id)] = _OpenAnswer(
                question, answer, cut, float(probability), arm, float(weight)
            )
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
        self._sums = np.array(sums)
        self._answers, self._audited, self._withdrawn = answers, audited, withdrawn
        learned = int(sums.learned) // ROUNDS
        block = operator.index(state.get("block", learned))  # states of 0.2 lack it
        check_holds("state: block", block, 0 <= block <= learned, "at most the rounds learned, by 256")
        self._set_rates(block)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be copied or pickled."""
        refuse_copy(self)

    def _learn(self, open_answer: _OpenAnswer, error: float, observed: bool) -> None:
        _, _, cut, probability, arm, weight = open_answer
        decision = True, probability, arm, weight
        self._compiled.learn(
            self._numbers, self._table, self._sums, cut, decision, error, observed, self._parameters
        )

    def _expire(self) -> None:
        """Close the answers that are open for more than ``expires`` questions.

        All that depends on open answers begins with it. So a replay need not know of late feedback, which is in no
        journal.
        """
        while self._open:  # in the order of questions, as dictionaries keep it
            id = next(iter(self._open))
            if self._sums[QUESTIONS] - self._open[id].question <= self.config.expires:
                return
            open_answer = self._open.pop(id)
            if self.config.missing == "skip":
                self._compiled.close(self._sums, 0.0)
            else:
                self._learn(open_answer, MISSING[self.config.missing], False)
            self._close(id, "late")

    def _close(self, id: str, outcome: str) -> None:
        self._closed.pop(id, None)  # so that it becomes the latest
        self._closed[id] = outcome
        if len(self._closed) > self.REMEMBERED:
            del self._closed[next(iter(self._closed))]

    def _set_rates(self, block: int) -> None:
        """Set the rates of the next 256 questions; ``block`` is the rounds learned so far, by 256."""
        self._block = block
        rates = self._rates(ROUNDS * (block + 1))
        self._parameters = *rates, self.config.aim, self._answer_cost, self._abstain_cost

    def _risk_bound(self, sums: FeedbackSums) -> float:
        config = self.config
        if self._learner.risk_bound is None:
            return math.nan
        # M1: since its last answer the learner could not react to what it learned (``since`` answers). Each of them
        # but one adds at most 1 - aim. A reserve has accounted for them.
        late = max(sums.since - 1, 0) * (1 - config.aim) * (not config.reserve)
        ends = range(ROUNDS, int(sums.learned) + 1 + ROUNDS, ROUNDS)
        eta, gamma = np.array([self._rates(end) for end in ends]).T
        lengths = np.full(len(eta), ROUNDS)
        settled = np.array(sums.settled)
        rounds, first = np.array(sums.learned + 1), self._start.numbers
        bound = bound_risk(
            self._learner, Rates(eta, gamma), lengths, rounds, settled, len(self._grid), config.aim, first
        )
        return float(bound) + late

    def _risk(self, sums: FeedbackSums) -> float:
        return float(sums.learned_errors - self.config.aim * sums.settled)

    def _fdr_limit(self, sums: FeedbackSums) -> float:
        """Return the limit of the FDR of all answers (F1). Audits without feedback count as wrong."""
        wrong = sums.observed_errors + self._audited - sums.observed
        return limit_of(self.config, wrong, self._answers, self._withdrawn)


def _as_hex(numbers: NDArray[np.float64]) -> str:
    return numbers.astype("<f8").tobytes().hex()


def _from_hex(text: str) -> NDArray[np.float64]:
    return np.frombuffer(bytes.fromhex(text), "<f8").astype(np.float64)


def limit_of(config: AbstainerConfiguration, found: float, answers: int, withdrawn: int) -> float:
    """Return ``fdr_limit`` of a configuration; NaN without audits or answers.

    Args:
        config: has the probability of an audit, and the flips.
        found: audited answers that were found wrong, or whose result is not known.
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


def check_trusted(what: str, learner: str, trusted: bool, how: str) -> None:
    """Raise BadInput if a file or state names a module of the user's, unless the caller allows its code to run."""
    if ":" in learner and not trusted:
        raise BadInput(f"{what}: names {learner}, whose code would run; {how} allows it")


def refuse_copy(self: object) -> NoReturn:
    """Raise TypeError: a copy would share the learner's arrays, and draw the same uniforms again."""
    raise TypeError(f"{type(self).__name__} cannot be copied or pickled; Abstainer.state() can be stored")


def as_text(name: str, value: Any) -> str:
    """Return a key or an id. Raise BadInput unless it is a text of valid Unicode, without null characters."""
    check_holds(name, value, isinstance(value, str), "a text")
    return check_legible(name, value)


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
    check_holds(name, value, 0 <= number <= 1, "a number in [0, 1]")
    return number
