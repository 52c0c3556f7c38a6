"""A learner in a user's program: pass a score, get a decision, and report feedback whenever it arrives."""

import json
import math
import secrets
import threading
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import partial
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np

from exaul.engine.checks import BadInput, check_holds, check_known, check_legible, quote
from exaul.engine.logs.log import Layout, LogLike
from exaul.kernels.fdr_limit import fdr_limit
from exaul.kernels.feedback import (
    FORGETTING,
    IMPUTED_ERRORS,
    FeedbackSums,
    add_abstention,
    add_answer,
    add_decision,
    close_answer,
    learned_share,
)
from exaul.kernels.game import RuleParams, compute_costs
from exaul.kernels.learners.aci_rank import silent_rounds
from exaul.kernels.learners.learner import rates_of_horizon
from exaul.kernels.online import OnlineDecision, Uniforms, choose, start_copy
from exaul.kernels.uniforms import FEEDBACK_STREAM, LEARNER_STREAM
from exaul.serving.configuration import LOG_FIELDS, AbstainerConfiguration, learner_of, with_fields
from exaul.serving.entries import Outcome, digest_of
from exaul.serving.start import AbstainerStart, read_start_log

STATE_VERSION = 8  # of saved states
DELTA = 0.05  # ``fdr_limit`` holds with probability 1 - DELTA
FEEDBACK_WORDS = {"up": 0.0, "down": 1.0}


class AbstainerDecision(NamedTuple):
    """The decision for one answer."""

    id: str  # pass it to ``feedback`` or ``withdraw``
    answer: bool  # show the answer, or say "I don't know"
    probability: float  # probability of answering before the draw, in [0, 1]
    audit: bool = False  # find out whether the answer is right and report it


def refuse_copy(self: object, protocol: object) -> NoReturn:
    """Raise TypeError: a copy would draw the same uniforms again."""
    raise TypeError(f"{type(self).__name__} cannot be copied or pickled; Abstainer.state() can be stored")


class OpenAnswer(NamedTuple):
    """A shown answer without feedback."""

    question: int  # number of its question, from 0
    answer: int  # number of the answer, from 0
    cut: int
    probability: float  # of the decision


class Abstainer:
    """Decide which answers to show, and learn from feedback on shown answers.

    Call ``decide`` with the score of an answer, show the answer if ``decision.answer``, and report with
    ``feedback(decision.id, ...)`` whether it was right. The learner aims at an FDR, the share of wrong answers
    among those shown, of ``alpha``. All methods are thread-safe.

    Feedback may arrive late, in any order, or never. By default an answer without feedback changes nothing, and an
    abstention has the weight of the share of answers that get feedback; otherwise missing feedback would push the
    learner towards answering. If feedback always arrives before the next question, the decisions are those of trial
    ``key`` of ``run(Sweep(environment="replay", grid="logit", seed=seed, ...))``, up to rounding.
    """

    REMEMBERED = 1000  # latest closed ids whose outcome is kept in memory
    __reduce_ex__ = refuse_copy

    def __init__(
        self,
        *,
        warm_start: "LogLike | None" = None,
        score: str = "score",
        error: str | None = None,
        correct: str | None = None,
        drop_missing: bool = False,
        **configuration: Any,
    ) -> None:
        """Create an Abstainer from fields of ``AbstainerConfiguration`` and, if there is one, a log of the past.

        Args:
            warm_start: the log of scored answers to start from: a file (``PATH`` or ``PATH:COL=VALUE,...``, as in
                ``exaul sweep --logs``), a DataFrame, what ``load_log`` returned, or (scores [N], errors [N]), each
                in [0, 1]. It sets the thresholds, and the first share of ``aci-rank``.
            score: column of the scores of a file or DataFrame.
            error: column of the errors.
            correct: column where 1 is right, in place of ``error``.
            drop_missing: leave out rows with an empty score or label.
            configuration: ``alpha``, the target FDR (by default .1); ``audit``, the probability of auditing an
                answer (none: all feedback is learned); ``flips``, the probabilities of wrong feedback on a right
                answer and on a wrong one; and others of ``AbstainerConfiguration``.

        Raises:
            BadInput: a field is out of its range, or the log cannot be read.
        """
        check_known("abstainer", configuration, [*LOG_FIELDS, *(f.name for f in fields(AbstainerConfiguration))])
        config = AbstainerConfiguration(**configuration)
        layout = Layout(score=score, error=error, correct=correct, drop_missing=drop_missing)
        layout.check_used(warm_start)
        log = None if warm_start is None else read_start_log(warm_start, layout)
        self._begin(config, AbstainerStart.after(config, log))

    __signature__ = with_fields(__init__, AbstainerConfiguration)

    def __repr__(self) -> str:
        """Return the learner, the target and counts; not the seed, which is secret."""
        config, progress = self.config, f"{self._answers:,} of {self._sums.questions:,.0f} questions answered"
        return f"<Abstainer: {config.learner}, alpha = {config.alpha:g}, {progress}>"

    def _begin(self, config: AbstainerConfiguration, start: AbstainerStart) -> None:
        """Set the initial state."""
        self.config = config = config.with_seed()
        assert config.seed is not None
        self._learner, self._start = learner_of(config.learner), start
        self._expected_share = start.expected_share(config)
        arms = len(start.grid)
        self._rates = rates_of_horizon(self._learner, config.horizon or 1, arms, False, None, None)
        eta, gamma = (float(rate[0]) for rate in self._rates)
        answer_cost, abstain_cost = map(float, compute_costs(config.aim, math.sqrt(config.horizon or 0)))
        self._params = RuleParams(eta, gamma, config.aim, answer_cost, abstain_cost)
        self._draws = Uniforms(config.seed, LEARNER_STREAM, config.key)
        self._coins = Uniforms(config.seed, FEEDBACK_STREAM, config.key)  # of audits
        self._copy = start_copy(self._learner.rule, start.numbers, start.table)
        self._lock = threading.Lock()
        self._open: dict[str, OpenAnswer] = {}
        self._closed: dict[str, Outcome] = {}  # outcome of further feedback, by id; oldest first
        self._sums = FeedbackSums(*[0.0] * len(FeedbackSums._fields))
        self._answers = self._audited = self._withdrawn = 0

    @property
    def started(self) -> str:
        """What the learner found in the log from which it started, in one line; empty without a log."""
        return self._start.describe(self.config)

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
            id: identifies the answer later; random by default, so that only its recipients can give feedback.

        Raises:
            BadInput: the score is not in [0, 1], or the id was used before; the state is unchanged.
        """
        score = as_score(score)
        with self._lock:
            if id is None:
                id = secrets.token_hex(16)
            is_new = as_text("id", id) not in self._open and id not in self._closed
            check_holds("id", id, is_new, "a text that was not used before")
            self._expire()
            n, cut, rate, sums = int(self._sums.questions), self.cut_of(score), self.config.audit, self._sums
            decision = self._copy.decide(cut, partial(self._draws.at, n), self._params, self._waiting)
            sums, audit = add_decision(choose, sums, decision.answer), False
            if decision.answer:
                audit = rate is not None and self._coins.at(n) < rate
                if audit or rate is None:
                    self._open[id] = OpenAnswer(n, self._answers, cut, decision.P)
                else:
                    sums = close_answer(choose, sums, True)
                    self._close(id, "unaudited")
                self._answers += 1
                self._audited += audit
            else:  # an abstention is learned at once
                weight = learned_share(choose, sums) if rate is None else rate
                self._copy.learn(cut, decision, 0.0, self._params._replace(weight=weight))
                sums = add_abstention(choose, sums, True, weight)
                self._close(id, "withheld")
            self._sums = sums
            return AbstainerDecision(id, decision.answer, decision.P, audit)

    def feedback(self, id: str, error: float | bool | str) -> Outcome:
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

    def withdraw(self, id: str) -> Outcome:
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
            outcome = None if open_answer else self._closed.get(id, "unknown")
            if outcome in ("withdrawn", "withheld"):
                return outcome
            self._withdrawn += 1
            if outcome == "unknown":
                return outcome
            if open_answer:
                sums, age = close_answer(choose, self._sums, True), self._answers - 1 - open_answer.answer
                self._sums = sums._replace(recent_answers=sums.recent_answers - FORGETTING**age)
            self._close(id, "withdrawn")
            return "withdrawn"

    def figures(self) -> dict[str, float]:
        """Return counts, risk and bounds.

        Returns:
            questions; answers, including withdrawn ones; audited (answers); withdrawn (answers, as counted by
            ``withdraw``); open (answers whose feedback is awaited); observed (answers with feedback); wrong (sum of
            their errors); fdr_observed (wrong / observed, or NaN); learned_share (share of recent answers that were
            learned); expected_share (answered, by the log of the start; NaN without one); threshold (least score
            that is shown now, by ``exaul`` with probability of at least 1/2; NaN: none is); silent (number of
            questions that are withheld until ``aci-rank`` shows the highest scores again, if no feedback comes and
            no answer expires meanwhile; 0 if it shows some now; NaN for ``exaul``, and while answers that a reserve
            counts as wrong withhold all scores); learned (rounds: answers, and abstentions by their weight); alpha;
            aim; feedback_risk (sum of ``error - aim`` over learned answers, including expired ones that count as
            wrong or right); feedback_risk_bound (bound of that risk on any sequence, ``docs/proofs.md``, M1; NaN if
            nothing is proved); fdr_limit (bound of the FDR of all answers that were not withdrawn, F1; with
            probability .95 it holds at all times at once; NaN without audits or answers).
        """
        with self._lock:
            self._expire()
            sums = self._sums
            observed, wrong, threshold = sums.observed, sums.observed_errors, self._threshold()
            weight = learned_share(choose, sums) if self.config.audit is None else self.config.audit
            figures = {
                "questions": int(sums.questions),
                "answers": self._answers,
                "audited": self._audited,
                "withdrawn": self._withdrawn,
                "observed": int(observed),
                "learned": round(sums.learned, 9),  # a sum of weights
                "open": int(sums.open),
                "wrong": wrong,
                "fdr_observed": wrong / observed if observed else math.nan,
                "learned_share": weight,
                "expected_share": self._expected_share,
                "threshold": threshold,
                "silent": self._silent(threshold, weight),
                "alpha": self.config.alpha,
                "aim": self.config.aim,
                "feedback_risk": float(sums.learned_errors - self.config.aim * sums.settled),
                "feedback_risk_bound": self._risk_bound(sums),
            }
            return figures | {"fdr_limit": limit_of(self.config, figures)}

    def state(self) -> dict[str, Any]:
        """Return the state for JSON. ``Abstainer.of`` continues from it with the same bits."""
        with self._lock:
            state = {
                "exaul": STATE_VERSION,
                "config": asdict(self.config),
                "start": self._start.as_json(),
                **self.summary(),
                "open": [[id, *open_answer] for id, open_answer in self._open.items()],
                "closed": list(self._closed.items()),
            }
        return state | {"digest": _digest_of_state(state)}

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
            BadInput: the state is of another kind or version, or was changed.
        """
        is_state = isinstance(state, Mapping) and "exaul" in state
        check_holds("state", state, is_state, "the state of an Abstainer")
        if state["exaul"] != STATE_VERSION:
            hint = "; exaul 0.2 reads it" if state["exaul"] == 6 else ""
            raise BadInput(f"state: version {quote(state['exaul'])} found; it must be {STATE_VERSION}{hint}")
        try:
            is_same = state["digest"] == _digest_of_state(state)
        except (LookupError, TypeError, ValueError, RecursionError):  # it is not JSON
            is_same = False
        if not is_same:
            raise BadInput("state: it was changed; it must be as Abstainer.state() returned it")
        config, abstainer = AbstainerConfiguration.of("state", state["config"]), cls.__new__(cls)
        abstainer._begin(config, AbstainerStart.of(config, state["start"]))
        abstainer._resume(state)
        return abstainer

    def _resume(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that was checked by a digest."""
        self._copy = start_copy(self._learner.rule, state["numbers"], state["table"])
        self._sums = FeedbackSums(**{name: float(value) for name, value in state["sums"].items()})
        self._answers, self._audited, self._withdrawn = (state[n] for n in ("answers", "audited", "withdrawn"))
        self._open = {id: OpenAnswer(*values) for id, *values in state["open"]}
        self._closed = dict(state["closed"])

    def _learn(self, open_answer: OpenAnswer, error: float, observed: bool) -> None:
        self._copy.learn(open_answer.cut, OnlineDecision(True, open_answer.probability), error, self._params)
        self._sums = add_answer(choose, close_answer(choose, self._sums, True), True, observed, error)

    def _expire(self) -> None:
        """Close the answers that are open for more than ``expires`` questions.

        Every method that depends on open answers calls this first. So a replay needs no late feedback, which is in
        no journal.
        """
        while self._open:  # in the order of questions, as dictionaries keep it
            id = next(iter(self._open))
            if self._sums.questions - self._open[id].question <= self.config.expires:
                return
            open_answer = self._open.pop(id)
            if self.config.missing == "skip":
                self._sums = close_answer(choose, self._sums, True)
            else:
                self._learn(open_answer, IMPUTED_ERRORS[self.config.missing], False)
            self._close(id, "late")

    def _close(self, id: str, outcome: Outcome) -> None:
        self._closed.pop(id, None)  # so that it becomes the latest
        self._closed[id] = outcome
        if len(self._closed) > self.REMEMBERED:
            del self._closed[next(iter(self._closed))]

    @property
    def _waiting(self) -> float:
        return self._sums.open if self.config.reserve else 0.0

    def _threshold(self) -> float:
        """Return the least score that is shown with probability of at least 1/2; NaN: none is. Nothing changes."""
        grid, params, waiting = self._start.grid, self._params, self._waiting
        # the probability does not fall with the cut
        cut = bisect_left(range(len(grid)), 0.5, 1, key=lambda cut: self._copy.chances(cut, params, waiting)[0])
        return float(grid[cut - 1]) if cut < len(grid) else math.nan

    def _silent(self, threshold: float, weight: float) -> float:
        """Return the figure ``silent``, where abstentions have a weight."""
        if self.config.learner != "aci-rank" or (math.isnan(threshold) and self._waiting):
            return math.nan
        return 0 if threshold >= 0 else silent_rounds(self._copy.numbers[0], self._params.eta, weight)

    def _risk_bound(self, sums: FeedbackSums) -> float:
        config = self.config
        if self._learner.risk_bound is None:
            return math.nan
        # M1: since its last answer the learner could not react to what it learned (``since`` answers). Each of them
        # but one adds at most 1 - aim. A reserve has accounted for them.
        late_risk = max(sums.since - 1, 0) * (1 - config.aim) * (not config.reserve)
        rounds, settled = np.array(sums.learned + 1), np.array(sums.settled)
        state = type(self._learner.rule.start)(*self._start.numbers)
        bound = self._learner.risk_bound(self._rates.eta, rounds, settled, config.aim, state)
        return float(bound) + late_risk


def _digest_of_state(state: Mapping[str, Any]) -> str:
    """Return the digest of a state, the same for any ``digest`` in it, any order of fields, and 1 or 1.0."""
    text = json.dumps({name: value for name, value in state.items() if name != "digest"})
    return digest_of(json.dumps(json.loads(text, parse_int=float), sort_keys=True))


def limit_of(config: AbstainerConfiguration, figures: Mapping[str, float]) -> float:
    """Return ``fdr_limit`` of the counts in ``Abstainer.figures``; NaN without audits or answers."""
    if config.audit is None:
        return math.nan
    answers, unproven = figures["answers"], figures["wrong"] + figures["audited"] - figures["observed"]
    return fdr_limit(unproven, answers, answers - figures["withdrawn"], config.audit, config.flips, DELTA)


def as_text(name: str, value: Any) -> str:
    """Return a key or an id. Raise BadInput unless it is a text of valid Unicode, without null characters."""
    check_holds(name, value, isinstance(value, str), "a text")
    return check_legible(name, str.__str__(value))  # the plain text of a subclass, such as NumPy's


def as_score(value: Any) -> float:
    """Return a score as a number. Raise BadInput if it is not one in [0, 1]."""
    return _as_share("score", value, "")


def as_error(value: Any) -> float:
    """Return feedback as a number, where 1 is wrong. Raise BadInput unless it is as in ``Abstainer.feedback``."""
    value = FEEDBACK_WORDS.get(value, value) if isinstance(value, str) else value
    return _as_share("error", value, "up, down, true (wrong), false (right) or ")


def _as_share(name: str, value: Any, words: str) -> float:
    """Return a value as a number in [0, 1]. Booleans count only with ``words``; texts never do."""
    number = value
    if type(value) is not float:
        try:
            is_flag = isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool")
            number = math.nan if is_flag and not words else float(value.__float__())  # texts have no __float__
        except (AttributeError, ArithmeticError, RuntimeError, TypeError, ValueError):
            number = math.nan
    check_holds(name, value, 0 <= number <= 1, f"{words}a number in [0, 1]")
    return number + 0.0  # SQLite has no -0.0
