"""Metrics of a service as OpenMetrics text.

Invariant: a metric says how much and how often, never what: no prompt and no name of a session is a
label. Only costs name callers, and only to those callers and to an admin.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import msgspec

OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
SECONDS_BUCKETS = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0)
Labels = tuple[tuple[str, str], ...]


class MetricSample(msgspec.Struct, frozen=True):
    """One value of a metric."""

    value: float
    labels: Labels = ()
    suffix: str = ""


class Metric(msgspec.Struct, frozen=True):
    """A metric with all of its values now. The name of a counter has no `_total`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: tuple[MetricSample, ...]


MetricSource = Callable[[], Iterable[Metric]]


@dataclass(slots=True)
class _Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(SECONDS_BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS_BUCKETS, seconds)] += 1
        self.total += seconds


class MetricsRegistry:
    """Counts what a service does, and asks others for what they know."""

    def __init__(self) -> None:
        self._started = time.time()
        self._requests: dict[Labels, int] = {}
        self._seconds: dict[Labels, _Histogram] = {}
        self._runs: dict[Labels, int] = {}
        self._sources: list[MetricSource] = []

    def add_source(self, source: MetricSource) -> None:
        """Ask for these metrics too, at each look."""
        self._sources.append(source)

    def note_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request, and how long its reply took to begin."""
        labels = (("route", route), ("status", str(status)))
        self._requests[labels] = self._requests.get(labels, 0) + 1
        self._seconds.setdefault((("route", route),), _Histogram()).add(seconds)

    def note_start(self, agent: str) -> None:
        """Count a run that was started."""
        labels = (("agent", agent),)
        self._runs[labels] = self._runs.get(labels, 0) + 1

    def write(self, more: Iterable[Metric] = ()) -> bytes:
        """Return all metrics as text, and some more that only who asks may see."""
        metrics = [*self._own_metrics(), *more]
        for source in self._sources:
            metrics.extend(source())
        lines = [line for metric in metrics for line in _write_metric(metric)]
        return "\n".join((*lines, "# EOF", "")).encode()

    def _own_metrics(self) -> Iterator[Metric]:
        yield Metric(
            "windlass_requests",
            "counter",
            "Requests by route and status.",
            _samples(self._requests),
        )
        yield Metric(
            "windlass_request_seconds",
            "histogram",
            "Seconds until a reply began.",
            tuple(_histogram_samples(self._seconds)),
        )
        yield Metric(
            "windlass_runs_started", "counter", "Runs started by agent.", _samples(self._runs)
        )
        yield Metric(
            "windlass_start_time_seconds",
            "gauge",
            "When the service was started, in seconds since the epoch.",
            (MetricSample(self._started),),
        )


def gauge(name: str, text: str, value: float) -> Metric:
    """Return a metric with one value."""
    return Metric(name, "gauge", text, (MetricSample(value),))


def _samples(counts: dict[Labels, int]) -> tuple[MetricSample, ...]:
    return tuple(MetricSample(count, labels) for labels, count in sorted(counts.items()))


def _histogram_samples(histograms: dict[Labels, _Histogram]) -> Iterator[MetricSample]:
    for labels, histogram in sorted(histograms.items(), key=lambda pair: pair[0]):
        count = 0
        for bound, number in zip(SECONDS_BUCKETS, histogram.counts, strict=False):
            count += number
            yield MetricSample(count, (*labels, ("le", f"{bound:g}")), "_bucket")
        count += histogram.counts[-1]
        yield MetricSample(count, (*labels, ("le", "+Inf")), "_bucket")
        yield MetricSample(count, labels, "_count")
        yield MetricSample(histogram.total, labels, "_sum")


def _write_metric(metric: Metric) -> Iterator[str]:
    yield f"# TYPE {metric.name} {metric.kind}"
    yield f"# HELP {metric.name} {_escape(metric.help)}"
    for sample in metric.samples:
        suffix = sample.suffix or ("_total" if metric.kind == "counter" else "")
        labels = ",".join(f'{name}="{_escape(value)}"' for name, value in sample.labels)
        braces = f"{{{labels}}}" if labels else ""
        yield f"{metric.name}{suffix}{braces} {_number(sample.value)}"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
