"""The learner in a program of one's own: a score in, a decision out, and a thumb whenever it comes."""

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
from exaul.kernels.feedback import Feedback, fdr_limit
from exaul.kernels.game import GRIDS, ROUNDS, compute_costs
from exaul.kernels.learners.learner import Drawn, Learner, Sided
from exaul.kernels.rates import rates_of

VERSION = 3  # of saved states
DELTA = 0.05  # probability with which the FDR of all answers exceeds its limit
COUNTERS = "questions", "answers", "audited", "rated", "settled", "learned", "since"
FEEDBACK_WINDOW = 1024  # answers from which the rated share is told
FEEDBACK_WORDS = {"up": 0.0, "down": 1.0}


class AbstainerDecision(NamedTuple):
    """What to do with one answer."""

    id: str  # by which its feedback is given
    answer: bool  # show it, or say "I don't know"
    probability: float  # in [0, 1], of answering, before the draw
    audit: bool = False  # find out whether it is right: its feedback is one of those that are learned


class _OpenAnswer(NamedTuple):
    """An answer that waits for its feedback."""

    question: int  # n, from 0
    answer: int  # its number among all answers, from 0
    cut: int
    decision: tuple[Any, ...]  # the fields of a ``AbstainerDecision`` of the kernels


@dataclass(frozen=True, kw_only=True)
class AbstainerConfiguration(Configuration):
    """How to abstain.

    Raises:
        BadInput: a field is out of its range; the sentence names it.
    """

    alpha: float = setting(0.1, "target FDR, in (0, 1)", "ALPHA")
    learner: str = setting("ranked-threshold", "who decides, of those that learn from thumbs on their own answers")
    grid: str = setting("logit", "thresholds: uniform or logit", "NAME")
    arms: int = setting(1000, "thresholds H of the grid, at least 2", "H")
    horizon: int | None = setting(None, "questions that will come, where it is known", "T")
    lam: float | None = setting(
        None, "weight of the FDR against abstaining, >= 0 (default: sqrt(horizon))", "LAMBDA"
    )
    anytime: bool = setting(False, "rates for an unknown horizon, although one is given for lam")
    eta: float | None = setting(None, "learning rate by hand", "X")
    gamma: float | None = setting(None, "implicit exploration by hand", "X")
    step: str | None = setting(None, "step of threshold: a number, or X/sqrt", "X")
    drift: str | None = setting(None, "drift of threshold, likewise", "X")
    flips: tuple[float, ...] = setting(
        (0.0, 0.0), "how probable a thumb down is on a right answer, and a thumb up on a wrong one", "P"
    )
    bias: float = setting(1.0, "how many times as often wrong answers are rated as right ones, > 0", "X")
    missing: str = setting("skip", "what an answer without a thumb is taken for: skip, wrong or right", "NAME")
    reserve: bool = setting(False, "let an answer count as wrong until its thumb comes")
    audit: float | None = setting(
        None,
        "probability, in (0, 1], with which an answer is audited; then the thumbs on those alone are learned",
        "P",
    )
    expires: int = setting(100_000, "questions after which a thumb comes too late", "N")
    seed: int | None = setting(None, "of the draws; by default 64 random bits, which nobody can guess", "N")
    key: int = setting(0, "a number of one's own, so that several with one seed draw differently", "N")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_holds("alpha", self.alpha, 0 < self.alpha < 1, "in (0, 1)")
        registry.check_names("learner", (self.learner,), registry.LEARNERS)
        check_known("grid", (self.grid,), [name for name in GRIDS if name != "quantile"])  # which looks ahead
        check_count("arms", self.arms, 2)
        for name in ("horizon", "expires"):
            check_count(name, getattr(self, name))
        for name in ("lam", "gamma"):
            check_not_negative(name, getattr(self, name))
        check_positive("eta", self.eta)
        check_feedback(self.feedback, silent=True)
        check_holds("audit", self.audit, self.audit is None or 0 < self.audit <= 1, "in (0, 1]")
        if self.audit is not None and (self.bias != 1 or self.missing != "skip"):
            raise BadInput(
                "audit: given, but where all that are audited are rated bias must be 1, and missing skip"
            )
        for name in ("step", "drift"):
            check_manual_rate(name, getattr(self, name))
        check_holds(
            "seed", self.seed, self.seed is None or 0 <= self.seed < 2**64, "an integer from 0 to 2**64 - 1"
        )
        check_holds("key", self.key, 0 <= self.key < 2**32, "an integer from 0 to 2**32 - 1")

    @property
    def feedback(self) -> Feedback:
        """What is known of users' feedback."""
        return Feedback(bias=self.bias, flips=tuple(self.flips), missing=self.missing, reserve=self.reserve)

    @property
    def aim(self) -> float:
        """The share of thumbs down at which the FDR is alpha (``docs/proofs.md``, N1)."""
        return float(self.feedback.aim(self.alpha))


@cache  # for thousands of one configuration
def _grid(name: str, arms: int) -> NDArray[np.float64]:
    return GRIDS[name](arms, np.empty(0))


class Abstainer:
    """Decides of one answer after the other whether to show it, and learns from the thumbs that come.

    A round of the simulation is cut in two: ``decide`` and ``feedback``. Where every feedback arrives before the
    next question, it is trial ``key`` of ``run(Sweep(environment="replay", backend="online", seed=seed, ...))``,
    decision for decision. Thumbs may come late, in any order, or never: an answer without a thumb changes nothing,
    and so that silence does not push towards answering, an abstention is learned with the probability with which
    answers are rated. All methods may be called from several threads.
    """

    REMEMBERED = 1000  # ids that are closed and still known

    def __init__(self, **configuration: Any) -> None:
        """Begin.

        Args:
            configuration: fields of ``AbstainerConfiguration``.

        Raises:
            BadInput: a field is unknown or out of its range, or the learner cannot be played by feedback alone.
        """
        names = [f.name for f in fields(AbstainerConfiguration)]
        check_known("abstainer", configuration, names)
        config = AbstainerConfiguration(**configuration)
        self.config = config = replace(config, seed=new_seed()) if config.seed is None else config
        self._learner: Learner[Any] = registry.resolve("learner", config.learner, registry.LEARNERS, (Learner,))
        with user_code.user_code_errors("learner:", config.learner) if ":" in config.learner else nullcontext():
            self._begin()
            if ":" in config.learner:  # its code is compiled where it is first played
                played = self._one.start(config.arms, 0)
                words = self._draws, self._coins
                cut, decision, _ = self._one.decide(*played, self._grid, 0.5, *words, 0, self._parameters, 0.0)
                self._one.learn(*played, cut, decision, 1.0, 0, self._parameters)

    def _begin(self) -> None:
        """Everything before the first question.

        Raises:
            BadInput: the learner cannot be played by feedback alone, or needs a number that was not given.
        """
        from exaul.kernels.backends.online import compile_copy  # here: it imports the compiler

        config, learner = self.config, self._learner
        open_answer = None if learner.feedback == "hindsight" else compile_copy(learner)
        if open_answer is None:
            raise BadInput(f"learner: {config.learner} found; it must learn from thumbs on its own answers alone")
        if config.reserve:
            check_reserve(config.learner, learner)
        if isinstance(learner.rule, (Sided, Drawn)) and config.lam is None and config.horizon is None:
            raise BadInput(
                f"lam: none given; {config.learner} needs it, or a horizon, whose square root it is then"
            )
        self._one, self._grid = open_answer, _grid(config.grid, config.arms)
        hands = (getattr(config, name) for name in learner.manual_rates)
        self._rates = rates_of(learner, config.horizon, config.arms, config.anytime, *hands)
        lam = math.sqrt(config.horizon or 0) if config.lam is None else config.lam
        self._answer_cost, self._abstain_cost = map(float, compute_costs(config.aim, lam))
        assert config.seed is not None
        self._draws, self._coins = open_answer.keys(config.seed & 0xFFFFFFFF, config.seed >> 32, config.key)
        self._numbers, self._table = open_answer.start(config.arms, 0)
        self._lock = threading.Lock()
        self._open: dict[str, _OpenAnswer] = {}
        self._closed: dict[str, str] = {}  # what a further thumb is told, of the last ids
        self._rated = bytearray(2 * FEEDBACK_WINDOW)  # of the last answers, whether a thumb has come
        self._lag = 0.0  # answers between an answer and its feedback, at most, of late
        self._sums = dict.fromkeys(COUNTERS, 0)
        self._wrong = self._charged = 0.0  # sums of the thumbs, and of all that was learned of answers
        self._block = -1
        self._update_parameters()

    def decide(self, score: float, id: str | None = None) -> AbstainerDecision:
        """Decide of one answer.

        Args:
            score: its confidence, in [0, 1].
            id: by which its feedback will be given; by default a new one that nobody can guess.

        Raises:
            BadInput: the score is not in [0, 1], or the id was used before; nothing has changed.
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
            waiting = float(len(self._open)) if self.config.reserve else 0.0
            cut, decision, coin = self._one.decide(
                self._numbers, self._table, self._grid, score, self._draws, self._coins, n, own, waiting
            )
            sums["questions"] = n + 1
            answered, probability = decision[:2]
            audit = answered and self.config.audit is not None and coin < self.config.audit
            if answered:
                self._rated[sums["answers"] % (2 * FEEDBACK_WINDOW)] = 0
                if audit or self.config.audit is None:
                    self._open[id] = _OpenAnswer(n, sums["answers"], cut, decision)
                else:
                    self._close(id, "unaudited")
                sums["answers"] += 1
                sums["audited"] += audit
                sums["since"] = 0
            else:
                self._close(id, "withheld")
                if coin < self._feedback_share():
                    self._learn(cut, decision, 0.0)
            return AbstainerDecision(id, answered, probability, audit)

    def feedback(self, id: str, error: float | bool | str) -> str:
        """Learn from the feedback on an answer.

        Args:
            id: of the decision.
            error: 1, true or "down" where the answer was wrong, 0, false or "up" where it was right, or a rating
                between.

        Returns:
            ``feasible_rows``; or, and then nothing has changed, ``repeated``, ``late`` (it has expired),
            ``withdrawn``, ``withheld`` (it was not shown), ``unaudited`` or ``unknown``.

        Raises:
            BadInput: the error is none of these; nothing has changed.
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
                self._rated[open_answer.answer % (2 * FEEDBACK_WINDOW)] = 1
                self._lag = max(0.98 * self._lag, float(behind))
            sums["rated"] += 1
            self._wrong += error
            self._settle(open_answer, error)
            self._close(id, "repeated")
            return "counted"

    def withdraw(self, id: str) -> str:
        """Forget an answer that was never shown: it charges nothing.

        Args:
            id: of the decision.

        Returns:
            ``withdrawn``; or what ``feedback`` would return of an id that is not open.
        """
        with self._lock:
            if self._open.pop(id, None) is None:
                return self._closed.get(id, "unknown")
            self._close(id, "withdrawn")
            return "withdrawn"

    def figures(self) -> dict[str, float]:
        """What has happened, and what is promised.

        Returns:
            questions, answers, open (answers without a thumb so far), rated, wrong (sum of the errors of rated
            ones), fdr_rated (NaN before the first), rated_share (of recent answers), learned (rounds that were
            learned), aim, risk (sum of ``error - aim`` over the answers that were learned: rated, or taken for
            wrong or right), risk_bound, what the risk cannot exceed on any sequence (``docs/proofs.md``, M1; NaN
            where nothing is proved), and fdr_limit, what the FDR of *all* answers does not exceed with probability
            .95 where some are audited (N1; at a number of answers fixed beforehand; NaN without audits).
        """
        with self._lock:
            sums, config = self._sums, self.config
            rated, wrong = sums["rated"], self._wrong
            return {
                **{name: float(sums[name]) for name in ("questions", "answers", "rated", "learned")},
                "open": float(len(self._open)),
                "wrong": wrong,
                "fdr_rated": wrong / rated if rated else math.nan,
                "rated_share": self._feedback_share(),
                "aim": config.aim,
                "risk": self._risk(),
                "risk_bound": self._risk_bound(),
                "fdr_limit": self._fdr_limit(),
            }

    def state(self) -> dict[str, Any]:
        """Everything, as JSON: ``Abstainer.of`` goes on from it to the same bits."""
        with self._lock:
            return {
                "exaul": VERSION,
                "config": asdict(self.config),
                "numbers": self._numbers.astype("<f8").tobytes().hex(),
                "table": self._table.astype("<f8").tobytes().hex(),
                "open": [
                    [id, *open_answer[:-1], list(open_answer.decision)] for id, open_answer in self._open.items()
                ],
                "closed": list(self._closed.items()),
                "rated": self._rated.hex(),
                "lag": self._lag,
                "sums": dict(self._sums),
                "wrong": self._wrong,
                "charged": self._charged,
            }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self:
        """Go on from what ``state`` returned.

        Raises:
            BadInput: it is no such state, or one of another version.
        """
        try:
            if state["exaul"] != VERSION:
                raise BadInput(f"state: version {state['exaul']!r} found; it must be {VERSION}")
            made = cls(**state["config"])
            for name in ("numbers", "table"):
                array = np.frombuffer(bytes.fromhex(state[name]), "<f8").astype(np.float64)
                if array.shape != getattr(made, f"_{name}").shape:
                    raise BadInput(f"state: {name} has {array.size} numbers, which do not fit its config")
                setattr(made, f"_{name}", array)
            made._open = {
                id: _OpenAnswer(n, answer, cut, tuple(decision)) for id, n, answer, cut, decision in state["open"]
            }
            made._closed = dict(state["closed"])
            made._rated = bytearray.fromhex(state["rated"])
            made._lag, made._wrong = float(state["lag"]), float(state["wrong"])
            made._charged = float(state["charged"])
            made._sums = {name: int(state["sums"][name]) for name in made._sums}
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, BadInput):
                raise
            raise BadInput(
                f"state: {type(error).__name__}: {error}; it must be the state of an Abstainer"
            ) from error
        made._update_parameters()
        return made

    def _learn(self, cut: int, decision: Any, error: float) -> None:
        learned = self._sums["learned"]
        self._one.learn(self._numbers, self._table, cut, decision, error, learned, self._parameters)
        self._sums["learned"] = learned + 1
        self._update_parameters()

    def _settle(self, open_answer: _OpenAnswer, error: float) -> None:
        """Learn from an answer, whose error is known or taken for known."""
        self._learn(open_answer.cut, open_answer.decision, error)
        self._sums["settled"] += 1
        self._sums["since"] += 1
        self._charged += error

    def _expire(self) -> None:
        """Close the answers whose thumbs would come too late."""
        while self._open:
            id = next(iter(self._open))
            if self._sums["questions"] - self._open[id].question <= self.config.expires:
                return
            open_answer = self._open.pop(id)
            if self.config.missing != "skip":
                self._settle(open_answer, 1.0 if self.config.missing == "wrong" else 0.0)
            self._close(id, "late")

    def _close(self, id: str, outcome: str) -> None:
        self._closed[id] = outcome
        if len(self._closed) > self.REMEMBERED:
            del self._closed[next(iter(self._closed))]

    def _feedback_share(self) -> float:
        """The share of answers that are rated, of the last ones that are older than thumbs usually take."""
        if self.config.audit is not None:
            return self.config.audit
        if self.config.missing != "skip":
            return 1.0  # all are learned, in the end
        count, size = self._sums["answers"], 2 * FEEDBACK_WINDOW
        last = count - min(math.ceil(self._lag), FEEDBACK_WINDOW)
        first = max(0, last - FEEDBACK_WINDOW, count - size)
        if last <= first:
            return 1.0
        start, end = first % size, last % size
        recent = self._rated
        rated = recent.count(1, start, end) if start < end else recent.count(1, start) + recent.count(1, 0, end)
        return (rated + 1) / (last - first + 1)

    def _update_parameters(self) -> None:
        """The parameters of the block that is learned now."""
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
        late = max(self._sums["since"] - 1, 0) * (1 - config.aim) * (not config.reserve)
        ends = range(ROUNDS, learned + 1 + ROUNDS, ROUNDS)
        eta, gamma = np.array([self._rates(end) for end in ends]).T
        lengths = np.full(len(eta), ROUNDS)
        settled = np.array(self._sums["settled"])
        return float(bound(eta, gamma, lengths, np.array(learned + 1), settled, config.arms)) + late

    def _risk(self) -> float:
        return self._charged - self.config.aim * self._sums["settled"]

    def _fdr_limit(self) -> float:
        """What the FDR of all answers does not exceed; audits whose feedback has not come count as wrong."""
        config, sums = self.config, self._sums
        if config.audit is None or not sums["answers"]:
            return math.nan
        risk = self._risk() + (sums["audited"] - sums["settled"]) * (1 - config.aim)
        return fdr_limit(config.alpha, config.audit, config.flips, sums["answers"], risk, DELTA)


def new_seed() -> int:
    """A seed that nobody can guess."""
    return secrets.randbits(64)


def as_score(value: Any) -> float:
    """A score as a number in [0, 1].

    Raises:
        BadInput: it is none.
    """
    return _number("score", value)


def as_error(value: Any) -> float:
    """A thumb or a rating as a number in [0, 1], where 1 is wrong.

    Raises:
        BadInput: it is none.
    """
    return (
        FEEDBACK_WORDS[value]
        if isinstance(value, str) and value in FEEDBACK_WORDS
        else _number("error", value, True)
    )


def _number(name: str, value: Any, flag: bool = False) -> float:
    """A number in [0, 1].

    Raises:
        BadInput: it is none.
    """
    try:
        number = math.nan if isinstance(value, str) or (isinstance(value, bool) and not flag) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    check_holds(name, value, 0 <= number <= 1, "a number in [0, 1]")
    return number
