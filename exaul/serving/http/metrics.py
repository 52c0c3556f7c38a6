"""Metrics in the text format of Prometheus.

Counters have no label for keys: a key that moved between its own label and ``other`` would make them fall. Figures
of keys are gauges, of the busiest keys only: a key is any text of any client, and each value of a label is a time
series.
"""

import asyncio
import math
import time
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from exaul.serving.journal import DECIDE, FEEDBACK, WITHDRAW
from exaul.serving.service import ON_ERROR, Service

BUSIEST = 50  # keys with a label of their own
OTHER = "other"  # label of the sum over the other keys; a key of this name has no label of its own
SCRAPE_EVERY = 1.0  # seconds between reads of the keys; scrapes in between repeat the last one
BUCKETS = 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5  # seconds
EVENTS = {  # kind of event: name, description, label and its values
    DECIDE: ("decisions", "Decisions; a repeated request is not counted", "decision", ("answered", "withheld")),
    FEEDBACK: (
        "feedback",
        "Feedback by outcome; repeated with another error is changed",
        "outcome",
        ("counted", "repeated", "changed", "late", "withheld", "withdrawn", "unaudited", "unknown"),
    ),
    WITHDRAW: (
        "withdrawals",
        "Withdrawals by outcome",
        "outcome",
        ("withdrawn", "repeated", "withheld", "unknown"),
    ),
}
SUMS = {  # figures that are also summed over the other keys: name and description
    "answers": ("answers", "Answers, including withdrawn ones"),
    "withdrawn": ("withdrawn_answers", "Answers that were withdrawn"),
    "observed": ("observed_answers", "Answers with feedback"),
    "wrong": ("wrong_answers", "Sum of the errors of answers with feedback"),
}
FIGURES = SUMS | {
    "open": ("open_answers", "Answers that wait for feedback"),
    "learned_share": ("learned_ratio", "Share of recent answers that were learned, from 0 to 1"),
    "fdr_observed": ("fdr_observed_ratio", "Share of wrong answers among those with feedback, from 0 to 1"),
    "feedback_risk": ("feedback_risk", "Sum of error - aim over learned answers, in wrong answers"),
    "feedback_risk_bound": ("feedback_risk_bound", "Bound of the feedback risk, in wrong answers"),
    "fdr_limit": ("fdr_limit_ratio", "Bound of the FDR of all answers that were not withdrawn, from 0 to 1"),
}


class ServiceMetrics:
    """Metrics of one application, in a registry of its own: a process can have several applications."""

    def __init__(self, service: Service) -> None:
        """Count the events of a service from now on."""
        self._service = service
        self._registry = CollectorRegistry()
        self.decide_seconds = Histogram(
            "exaul_decide_seconds",
            "Seconds of a decision, with its waiting time and the journal",
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._failures = Counter(
            "exaul_journal_failures",
            "Requests that could not use the journal, by reply",
            ["reply"],
            registry=self._registry,
        )
        self._undecided = Counter(
            "exaul_undecided_replies",
            "Replies that the gateway passed on without a decision, by reason",
            ["reason"],
            registry=self._registry,
        )
        for reply in ON_ERROR:
            self._failures.labels(reply)
        self._families: list[Metric] = []  # of keys
        self._read, self._reading = -math.inf, asyncio.Lock()
        self._registry.register(self)

    def count_failure(self, reply: str) -> None:
        """Count a request that could not use the journal; the reply is ``refuse``, ``abstain`` or ``answer``."""
        self._failures.labels(reply).inc()

    def count_undecided(self, reason: str) -> None:
        """Count a reply that the gateway passed on without a decision. Reasons are few and ours, not a client's."""
        self._undecided.labels(reason).inc()

    async def text(self, call: Any) -> bytes:
        """Return all metrics. ``call`` is that of the application.

        If the journal cannot be used, those of keys are missing.
        """
        async with self._reading:
            if time.monotonic() - self._read >= SCRAPE_EVERY:
                try:
                    self._families = await self._read_keys(call)
                except OSError:
                    self._families = []
                self._read = time.monotonic()
            return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that are computed when they are asked for, as the registry demands."""
        for kind, (name, description, label, values) in EVENTS.items():
            family = CounterMetricFamily(f"exaul_{name}", description, labels=[label])
            for value in values:
                family.add_metric([value], self._service.outcomes[kind, value])
            yield family
        yield from self._families

    async def _read_keys(self, call: Any) -> list[Metric]:
        service, keys = self._service, dict[str, dict[str, Any]]()
        busiest = await call(service.busiest_keys, BUSIEST)
        for key in busiest:
            if key != OTHER:
                keys[key] = await call(service.figures, key)  # one by one: decisions go in between
        totals = (await call(service.totals))._asdict()
        families: list[Metric] = []
        for figure, (name, description) in FIGURES.items():
            family = GaugeMetricFamily(f"exaul_key_{name}", description, labels=["key"])
            for key, figures in keys.items():
                if math.isfinite(figures[figure]):  # else it is not defined
                    family.add_metric([key], figures[figure])
            if figure in SUMS:
                # the totals are the latest, so the difference is not negative except by rounding
                rest = totals[figure] - sum(figures[figure] for figures in keys.values())
                family.add_metric([OTHER], max(0.0, rest))
            families.append(family)
        limit = GaugeMetricFamily("exaul_fdr_limit_ratio", "Bound of the FDR of all keys together, from 0 to 1")
        value = await call(service.fdr_limit)
        if math.isfinite(value):
            limit.add_metric([], value)
        return [*families, limit]


def add_metrics(application: FastAPI) -> None:
    """Add ``/metrics`` to an application."""
    state = application.state

    content = {"text/plain": {"schema": {"type": "string"}}}

    @application.get("/metrics", dependencies=[state.require("read")], responses={200: {"content": content}})
    async def show_metrics() -> Response:
        """Return metrics for Prometheus."""
        return Response(await state.metrics.text(state.call), media_type=CONTENT_TYPE_LATEST)
