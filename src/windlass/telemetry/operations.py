"""What is done to spans and metrics, as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from windlass.telemetry.conventions import HistogramMetric

SpanAttributes: TypeAlias = Mapping[str, str | bool | int | float | Sequence[str]]
SpanKey = tuple[str, str]
"""Identifies a span within a trace: its session, and what it is there (`run`, `call:<id>`, …)."""


def _no_attributes() -> SpanAttributes:
    return {}


@dataclass(frozen=True, slots=True)
class OpenSpan:
    """A span begins. Without a parent, it is a child of the caller's current span."""

    key: SpanKey
    parent: SpanKey | None
    name: str
    kind: Literal["internal", "client"]
    at: float
    """Seconds since the epoch, here and below."""
    attributes: SpanAttributes
    resumed: str | None = None
    """The session whose earlier trace this span continues; it gets a link to it."""
    trace: str = ""
    """The trace that the span belongs to, as in a `traceparent` header; empty: the current one."""


@dataclass(frozen=True, slots=True)
class CloseSpan:
    """A span ends."""

    key: SpanKey
    at: float
    attributes: SpanAttributes = field(default_factory=_no_attributes)
    error: str = ""
    """The kind of failure; empty if it went well."""
    error_message: str = ""
    """What went wrong, in words. It may contain what was said, so it is empty unless requested."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened within a span at one moment."""

    key: SpanKey
    name: str
    at: float
    attributes: SpanAttributes


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """A value of a metric, measured in a span."""

    key: SpanKey
    metric: HistogramMetric
    value: float
    attributes: SpanAttributes


SpanOperation = OpenSpan | CloseSpan | SpanEvent | MetricPoint
