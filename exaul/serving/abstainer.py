"""A learner in a user's program: pass a score, get a decision, and report feedback whenever it arrives."""

import math
import secrets
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from exaul.engine import registry
from exaul.engine.checks import (
    BadInput,
    Configuration,
    check_count,
    check_holds,
    check_known,
    check_legible,
    check_manual_rate,
    check_not_negative,
    check_positive,
    quote,
    setting,
)
from exaul.engine.feedback import check_feedback, check_reserve
from exaul.engine.simulation import user_code
from exaul.kernels.fdr_limit import fdr_limit
from exaul.kernels.feedback import Feedback
from exaul.kernels.game import GRIDS, ROUNDS, compute_costs
from exaul.kernels.learners.learner import Drawn, Learner, Sided
from exaul.kernels.rates import rates_of

VERSION = 4  # of saved states
DELTA = 0.05  # ``fdr_limit`` holds with probability 1 - DELTA
COUNTERS = "questions", "answers", "audited", "rated", "withdrawn", "settled", "learned", "since"
FEEDBACK_WINDOW = 1024  # answers from which the share of rated answers is estimated
FEEDBACK_WORDS = {"up": 0.0, "down": 1.0}


class AbstainerDecision(NamedTuple):
    """The decision for one answer."""

    id: str  # pass it to ``feedback`` or ``withdraw``
    answer: bool  # show the answer, or say "I don't know"
    probability: float  # probability of answering before the draw, in [0, 1]
    audit: bool = False  # find out whether the answer is right and report it


class _OpenAnswer(NamedTuple):
    """A shown answer without feedback."""

    question: int  # number of its question, from 0
    answer: int  # number of the answer, from 0
    cut: int
    decision: tuple[Any, ...]  # fields of the kernels' ``OnlineDecision``; ``learn`` needs them


@dataclass(frozen=True, kw_only=True)
class AbstainerConfiguration(Configuration):
    """Configuration of an Abstainer."""

    alpha: float = setting(0.1, "target FDR, in (0, 1)", "ALPHA")
    learner: str = setting("ranked-threshold", "learner; it must learn from feedback on its own answers")
    grid: str = setting("logit", "thresholds: uniform or logit", "NAME")
    arms: int = setting(1000, "number H of thresholds of the grid, at least 2", "H")
    horizon: int | None = setting(None, "number of questions, if known", "T")
    lam: float | None = setting(
        None, "weight of the FDR against abstaining, >= 0 (default: sqrt(horizon))", "LAMBDA"
    )
    anytime: bool = setting(False, "use rates for an unknown horizon; a given horizon then only sets lam")
    eta: float | None = setting(None, "learning rate (default: the learner's)", "X")
    gamma: float | None = setting(None, "implicit exploration (default: the learner's)", "X")
    step: str | None = setting(None, "step of threshold: X, or X/sqrt (divided by the root of t)", "X")
    drift: str | None = setting(None, "drift of threshold: X or X/sqrt", "X")
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
    expires: int = setting(100_000, "number of questions after which feedback is too late", "N")
    seed: int | None = setting(None, "seed of the draws (default: 64 secret random bits)", "N")
    key: int = setting(0, "number that separates the draws of several Abstainers with one seed", "N")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_holds("alpha", self.alpha, 0 < self.alpha < 1, "in (0, 1)")
        registry.check_names("learner", (self.learner,), registry.LEARNERS)
        check_known("grid", (self.grid,), [name for name in GRIDS if name != "quantile"])  # quantile looks ahead
        check_count("arms", self.arms, 2)
        for name in ("horizon", "expires"):
            check_count(name, getattr(self, name))
        for name in ("lam", "gamma"):
            check_not_negative(name, getattr(self, name))
        check_positive("eta", self.eta)
        check_feedback(self.feedback, silent=True)
        check_holds("audit", self.audit, self.audit is None or 0 < self.audit <= 1, "in (0, 1]")
        if self.audit is not None and (self.bias != 1 or self.missing != "skip"):
            raise BadInput("audit: given, but all audited answers get feedback; bias must be 1, and missing skip")
        for name in ("step", "drift"):
            check_manual_rate(name, getattr(self, name))
        check_holds(
            "seed", self.seed, self.seed is None or 0 <= self.seed < 2**64, "an integer from 0 to 2**64 - 1"
        )
        check_holds("key", self.key, 0 <= self.key < 2**32, "an integer from 0 to 2**32 - 1")

    @property
    def feedback(self) -> Feedback:
        """The model of users' feedback."""
        return Feedback(bias=self.bias, flips=tuple(self.flips), missing=self.missing, reserve=self.reserve)

    @property
    def aim(self) -> float:
        """The error rate of feedback at which the FDR is alpha (``docs/proofs.md``, N1)."""
        return float(self.feedback.aim(self.alpha))


@cache  # thousands of Abstainers share one configuration
def _grid(name: str, arms: int) -> NDArray[np.float64]:
    return GRIDS[name](arms, np.empty(0))


class Abstainer:
    """Decide which answers to show, and learn from feedback on shown answers.

    Feedback may arrive late, in any order, or never. If it always arrives before the next question, the decisions
    are those of trial ``key`` of ``run(Sweep(environment="replay", backend="online", seed=seed, ...))``. By default
    an answer without feedback changes nothing, and an abstention is learned with the probability with which answers
    get feedback; otherwise missing feedback would push the learner towards answering. All methods are thread-safe.
    """

    REMEMBERED = 1000  # latest closed ids whose outcome is kept in memory

    def __init__(self, **configuration: Any) -> None:
        """Create an Abstainer with the given fields of ``AbstainerConfiguration``.

        Raises:
            BadInput: a field is unknown or out of its range, or the learner needs more than feedback.
        """
        names = [f.name for f in fields(AbstainerConfiguration)]
        check_known("abstainer", configuration, names)
        config = AbstainerConfiguration(**configuration)
        self.config = config = replace(config, seed=new_seed()) if config.seed is None else config
        self._learner: Learner[Any] = registry.resolve("learner", config.learner, registry.LEARNERS, (Learner,))
        with user_code.user_code_errors("learner:", config.learner) if ":" in config.learner else nullcontext():
            self._begin()
            if ":" in config.learner:
                # A user's code is compiled when it is first called. Call it on a scratch state now, so that its
                # errors are reported here and not at the first question.
                scratch = self._compiled.start(config.arms, 0)
                words = self._decision_key, self._feedback_key
                cut, decision, _ = self._compiled.decide(
                    *scratch, self._grid, 0.5, *words, 0, self._parameters, 0.0
                )
                self._compiled.learn(*scratch, cut, decision, 1.0, 0, self._parameters)

    def _begin(self) -> None:
        """Check the learner, compile it, and set the initial state."""
        from exaul.kernels.backends.online import compile_copy  # imported here: it imports the compiler

        config, learner = self.config, self._learner
        compiled = None if learner.feedback == "hindsight" else compile_copy(learner)
        if compiled is None:
            raise BadInput(f"learner: {config.learner} found; it must learn from feedback on its own answers only")
        if config.reserve:
            check_reserve(config.learner, learner)
        if isinstance(learner.rule, (Sided, Drawn)) and config.lam is None and config.horizon is None:
            raise BadInput(
                f"lam: missing; {config.learner} needs lam, or a horizon (lam then defaults to its square root)"
            )
        self._compiled, self._grid = compiled, _grid(config.grid, config.arms)
        manual = (getattr(config, name) for name in learner.manual_rates)
        self._rates = rates_of(learner, config.horizon, config.arms, config.anytime, *manual)
        lam = math.sqrt(config.horizon or 0) if config.lam is None else config.lam
        self._answer_cost, self._abstain_cost = map(float, compute_costs(config.aim, lam))
        assert config.seed is not None
        # two streams of uniforms: one draws decisions, the other draws audits and learned abstentions
        self._decision_key, self._feedback_key = compiled.keys(
            config.seed & 0xFFFFFFFF, config.seed >> 32, config.key
        )
        self._numbers, self._table = compiled.start(config.arms, 0)
        self._lock = threading.Lock()
        self._open: dict[str, _OpenAnswer] = {}
        self._closed: dict[str, str] = {}  # outcome of further feedback, by id; oldest first
        self._has_feedback = bytearray(2 * FEEDBACK_WINDOW)  # ring buffer by answer: 1 if it has feedback
        self._lag = 0.0  # recent maximum of the number of answers between an answer and its feedback
        self._sums = dict.fromkeys(COUNTERS, 0)
        self._wrong = self._charged = 0.0  # sums of errors: in feedback, and as learned
        self._block = -1
        self._update_parameters()

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
            elif not isinstance(id, str) or check_legible("id", id) in self._open or id in self._closed:
                raise BadInput(f"id: {quote(id)} found; it must be a text that was not used before")
            self._expire()
            sums, own = self._sums, self._parameters
            n = sums["questions"]
            waiting = float(len(self._open)) if self.config.reserve else 0.0  # open answers count as wrong
            cut, decision, coin = self._compiled.decide(
                self._numbers,
                self._table,
                self._grid,
                score,
                self._decision_key,
                self._feedback_key,
                n,
                own,
                waiting,
            )
            sums["questions"] = n + 1
            answered, probability = decision[:2]
            audit = answered and self.config.audit is not None and coin < self.config.audit
            if answered:
                self._has_feedback[sums["answers"] % (2 * FEEDBACK_WINDOW)] = 0
                if audit or self.config.audit is None:
                    self._open[id] = _OpenAnswer(n, sums["answers"], cut, decision)
                else:
                    self._close(id, "unaudited")
                sums["answers"] += 1
                sums["audited"] += audit
                sums["since"] = 0
            else:
                self._close(id, "withheld")
                # Only a share of the answers is learned. Learning abstentions with the same probability keeps the
                # balance between both; learning all of them would push towards answering.
                if coin < self._feedback_share():
                    self._learn(cut, decision, 0.0)
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
            BadInput: the error is not in [0, 1]; the state is unchanged.
        """
        error = as_error(error)
        with self._lock:
            self._expire()
            open_answer = self._open.pop(id, None)
            if open_answer is None:
                return self._closed.get(id, "unknown")
            sums = self._sums
            behind = sums["answers"] - 1 - open_answer.answer
            if behind < 2 * FEEDBACK_WINDOW:
                self._has_feedback[open_answer.answer % (2 * FEEDBACK_WINDOW)] = 1
                # a maximum that decays, so that one late answer is forgotten after some hundred others
                self._lag = max(0.98 * self._lag, float(behind))
            sums["rated"] += 1
            self._wrong += error
            self._settle(open_answer, error)
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
        """
        with self._lock:
            outcome = "open" if self._open.pop(id, None) else self._closed.get(id, "unknown")
            if outcome in ("withdrawn", "withheld"):
                return outcome
            self._sums["withdrawn"] += 1
            if outcome == "unknown":
                return outcome
            self._close(id, "withdrawn")
            return "withdrawn"

    def figures(self) -> dict[str, float]:
        """Return counts, risk and bounds.

        Returns:
            questions; answers, including withdrawn ones; withdrawn (answers, as counted by ``withdraw``); open
            (answers without feedback so far); observed (answers with feedback); wrong (sum of their errors);
            fdr_observed (wrong / observed, or NaN); observed_share (share of recent answers with feedback); learned
            (number of learned rounds); aim; feedback_risk (sum of ``error - aim`` over learned answers, including
            expired ones that count as wrong or right); feedback_risk_bound (bound of that risk on any sequence,
            ``docs/proofs.md``, M1; NaN if nothing is proved); fdr_limit (bound of the FDR of all answers that were
            not withdrawn, F1; with probability .95 it holds at all times at once; NaN without audits or answers).
        """
        with self._lock:
            sums, config = self._sums, self.config
            observed, wrong = sums["rated"], self._wrong
            return {
                **{name: float(sums[name]) for name in ("questions", "answers", "withdrawn")},
                "observed": float(observed),
                "learned": float(sums["learned"]),
                "open": float(len(self._open)),
                "wrong": wrong,
                "fdr_observed": wrong / observed if observed else math.nan,
                "observed_share": self._feedback_share(),
                "aim": config.aim,
                "feedback_risk": self._risk(),
                "feedback_risk_bound": self._risk_bound(),
                "fdr_limit": self._fdr_limit(),
            }

    def state(self) -> dict[str, Any]:
        """Return the state for JSON. ``Abstainer.of`` continues from it with the same bits."""
        with self._lock:  # floats are stored as little-endian bytes, which are exact on every machine
            return {
                "exaul": VERSION,
                "config": asdict(self.config),
                "numbers": self._numbers.astype("<f8").tobytes().hex(),
                "table": self._table.astype("<f8").tobytes().hex(),
                "open": [
                    [id, *open_answer[:-1], list(open_answer.decision)] for id, open_answer in self._open.items()
                ],
                "closed": list(self._closed.items()),
                "rated": self._has_feedback.hex(),
                "lag": self._lag,
                "sums": dict(self._sums),
                "wrong": self._wrong,
                "charged": self._charged,
            }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self:
        """Continue from a state that ``state`` returned.

        Raises:
            BadInput: it is not such a state, or has another version.
        """
        try:
            if state["exaul"] != VERSION:
                raise BadInput(f"state: version {state['exaul']!r} found; it must be {VERSION}")
            made = cls(**state["config"])
            for name in ("numbers", "table"):
                array = np.frombuffer(bytes.fromhex(state[name]), "<f8").astype(np.float64)
                if array.shape != getattr(made, f"_{name}").shape:
                    raise BadInput(f"state: {name} has {array.size} numbers; it must fit the configuration")
                setattr(made, f"_{name}", array)
            made._open = {
                id: _OpenAnswer(n, answer, cut, tuple(decision)) for id, n, answer, cut, decision in state["open"]
            }
            made._closed = dict(state["closed"])
            made._has_feedback = bytearray.fromhex(state["rated"])
            made._lag, made._wrong = float(state["lag"]), float(state["wrong"])
            made._charged = float(state["charged"])
            made._sums = {name: int(state["sums"][name]) for name in made._sums}
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, BadInput):  # which is a ValueError
                raise
            raise BadInput(
                f"state: {type(error).__name__}: {error}; it must be the state of an Abstainer"
            ) from error
        made._update_parameters()
        return made

    def _learn(self, cut: int, decision: Any, error: float) -> None:
        learned = self._sums["learned"]
        self._compiled.learn(self._numbers, self._table, cut, decision, error, learned, self._parameters)
        self._sums["learned"] = learned + 1
        self._update_parameters()

    def _settle(self, open_answer: _OpenAnswer, error: float) -> None:
        self._learn(open_answer.cut, open_answer.decision, error)
        self._sums["settled"] += 1
        self._sums["since"] += 1
        self._charged += error

    def _expire(self) -> None:
        """Close the answers that are open for more than ``expires`` questions."""
        while self._open:  # in the order of questions, as dictionaries keep it
            id = next(iter(self._open))
            if self._sums["questions"] - self._open[id].question <= self.config.expires:
                return
            open_answer = self._open.pop(id)
            if self.config.missing != "skip":
                self._settle(open_answer, 1.0 if self.config.missing == "wrong" else 0.0)
            self._close(id, "late")

    def _close(self, id: str, outcome: str) -> None:
        self._closed.pop(id, None)  # so that it becomes the latest
        self._closed[id] = outcome
        if len(self._closed) > self.REMEMBERED:
            del self._closed[next(iter(self._closed))]

    def _feedback_share(self) -> float:
        """Estimate the share of answers that get feedback.

        It counts up to FEEDBACK_WINDOW answers that are older than the recent lag, since younger ones may get it.
        """
        if self.config.audit is not None:
            return self.config.audit
        if self.config.missing != "skip":
            return 1.0  # every answer is learned when it expires
        count, size = self._sums["answers"], 2 * FEEDBACK_WINDOW
        last = count - min(math.ceil(self._lag), FEEDBACK_WINDOW)
        first = max(0, last - FEEDBACK_WINDOW, count - size)
        if last <= first:
            return 1.0
        start, end = first % size, last % size
        recent = self._has_feedback
        # the window may wrap around the end of the ring buffer
        observed = recent.count(1, start, end) if start < end else recent.count(1, start) + recent.count(1, 0, end)
        return (observed + 1) / (last - first + 1)  # never 0: otherwise abstentions might never be learned again

    def _update_parameters(self) -> None:
        """Compute the parameters at the beginning of a block; rates are constant within it."""
        block = self._sums["learned"] // ROUNDS
        if block != self._block:
            self._block = block
            rates = self._rates(ROUNDS * (block + 1))
            own = self._answer_cost, self._abstain_cost
            self._parameters = *rates, self.config.aim, *own

    def _risk_bound(self) -> float:
        learned, config, bound = self._sums["learned"], self.config, self._learner.risk_bound
        if bound is None:
            return math.nan
        # M1: since its last answer the learner could not react to what it learned (``since`` answers). Each of them
        # but one adds at most 1 - aim. A reserve has accounted for them.
        late = max(self._sums["since"] - 1, 0) * (1 - config.aim) * (not config.reserve)
        ends = range(ROUNDS, learned + 1 + ROUNDS, ROUNDS)
        eta, gamma = np.array([self._rates(end) for end in ends]).T
        lengths = np.full(len(eta), ROUNDS)
        settled = np.array(self._sums["settled"])
        return float(bound(eta, gamma, lengths, np.array(learned + 1), settled, config.arms)) + late

    def _risk(self) -> float:
        return self._charged - self.config.aim * self._sums["settled"]

    def _fdr_limit(self) -> float:
        """Return the limit of the FDR of all answers (F1). Audits without feedback count as wrong."""
        sums = self._sums
        found = self._wrong + sums["audited"] - sums["rated"]
        return limit_of(self.config, found, sums["answers"], sums["withdrawn"])


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
    try:
        number = math.nan if isinstance(value, str) or (isinstance(value, bool) and not flag) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    check_holds(name, value, 0 <= number <= 1, "a number in [0, 1]")
    return number
