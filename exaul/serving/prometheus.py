"""Metrics of a service in the text format of Prometheus.

Counters begin at 0 when the process starts. Each value of a label is a time series, and a key may be any text of a
client, so only the first keys of a file have a label of their own.
"""

import math
from collections.abc import Iterable, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

ON_ERROR = "refuse", "abstain", "answer"  # what a client gets if the file cannot be used
MOST_KEYS = 100  # keys with a label of their own: those that were used first
OTHER = "other"  # label of all other keys, of feedback on unknown ids, and of a key of this name
SECONDS = 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120
SCORES = 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 0.9999, 1


class ServiceMetrics:
    """Metrics of one service, in a registry of its own: a process can have several services."""

    def __init__(self, keys: Iterable[str]) -> None:
        """Start the counters of ``keys``, in the order of first use, at 0."""
        self._registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self._registry), partial(Gauge, registry=self._registry)
        histogram = partial(Histogram, registry=self._registry)
        seconds = partial(histogram, buckets=SECONDS)
        self._questions = counter("exaul_questions", "Questions that were decided", ["key"])
        self._answers = counter("exaul_answers", "Questions whose answer was shown", ["key"])
        self._feedback = counter("exaul_feedback", "Feedback by outcome", ["key", "outcome"])
        self._wrong = counter("exaul_wrong", "Sum of the errors of counted feedback", ["key"])
        self._scores = histogram("exaul_score", "Scores of the questions, in [0, 1]", ["key"], buckets=SCORES)
        self._limit = gauge("exaul_fdr_limit_ratio", "Bound of the FDR over all keys, from audits")
        self.audits_open = gauge("exaul_audits_open", "Audited answers without a verdict, which count as wrong")
        self._figures = {  # by name in ``Abstainer.figures``
            "alpha": gauge("exaul_key_alpha_ratio", "Target of the FDR of a key", ["key"]),
            "aim": gauge("exaul_key_aim_ratio", "Share of wrong among feedback at which the FDR is alpha", ["key"]),
            "fdr_limit": gauge("exaul_key_fdr_limit_ratio", "Bound of the FDR of a key, from audits", ["key"]),
            "expected_share": gauge("exaul_key_expected_ratio", "Share answered, by the log of its start", ["key"]),
            "threshold": gauge("exaul_key_threshold", "Least score that the learner of a key shows now", ["key"]),
            "audited": gauge("exaul_key_audits", "Audited answers of a key", ["key"]),
        }
        self.free_bytes = gauge("exaul_free_bytes", "Bytes that are free on the disk of the journal")
        self.decide_seconds = seconds("exaul_decide_seconds", "Seconds of a decision, with waiting and the journal")
        upstream_text = "Seconds of calls to the gateway's models, for an answer or a score"
        self.upstream_seconds = seconds("exaul_upstream_seconds", upstream_text, ["call"])
        self.upstream_failures = counter("exaul_upstream_failures", "Such calls that failed", ["call", "status"])
        self.failures = counter("exaul_journal_failures", "Requests that failed at the journal", ["reply"])
        for reply in ON_ERROR:
            self.failures.labels(reply)
        for call in ("answer", "score"):
            self.upstream_seconds.labels(call)
            for status in (502, 503, 504):
                self.upstream_failures.labels(call, status)
        # of the gateway, whose keys and reasons no client can make up
        self.undecided = counter("exaul_undecided_replies", "Replies without a decision", ["key", "reason"])
        self.keys = dict[str, None]()  # with a label of their own, in order
        for key in keys:
            self._label_of(key)
        self.set_figures({}, math.nan)

    def count_undecided(self, key: str, reason: str) -> None:
        """Count a reply of the gateway without a decision, with the label that a decision of its key would have."""
        has_own = key in self.keys or len(self.keys) < MOST_KEYS
        self.undecided.labels(key if has_own else OTHER, reason).inc()

    def count_decision(self, key: str, score: float, answer: bool) -> None:
        """Count a new decision; score in [0, 1]."""
        label = self._label_of(key)
        self._questions.labels(label).inc()
        self._answers.labels(label).inc(answer)
        self._scores.labels(label).observe(score)

    def count_feedback(self, key: str | None, outcome: str, error: float) -> None:
        """Count feedback with an error in [0, 1]; the key is None if the id is unknown."""
        label = OTHER if key is None else self._label_of(key)
        self._feedback.labels(label, outcome).inc()
        if outcome == "counted":
            self._wrong.labels(label).inc(error)

    def set_figures(self, figures: Mapping[str, Mapping[str, float]], limit: float) -> None:
        """Set the gauges of keys, since each last began, and the bound over all keys; NaN: no bound."""
        for name, gauge in self._figures.items():
            gauge.clear()
            for key, key_figures in figures.items():
                gauge.labels(key).set(key_figures.get(f"{name}_since_start", key_figures[name]))
        self._limit.set(limit)

    def text(self) -> bytes:
        """Return all metrics."""
        return generate_latest(self._registry)

    def _label_of(self, key: str) -> str:
        if key not in self.keys:
            if len(self.keys) >= MOST_KEYS:
                return OTHER
            self.keys[key] = None
            for metric in (self._questions, self._answers, self._wrong):  # 0, so that the first increase is seen
                metric.labels(key)
            self._feedback.labels(key, "counted")
        return key
