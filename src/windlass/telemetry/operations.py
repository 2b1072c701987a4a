"""What is to be done to spans and metrics, as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from windlass.telemetry.conventions import HistogramMetric

SpanAttributes: TypeAlias = Mapping[str, str | bool | int | float | Sequence[str]]
SpanKey = tuple[str, str]
"""Names a span within a trace: its session, and what it is there."""


def _no_attributes() -> SpanAttributes:
    return {}


@dataclass(frozen=True, slots=True)
class OpenSpan:
    """A span begins. Without a parent, it is the caller's child."""

    key: SpanKey
    parent: SpanKey | None
    name: str
    kind: Literal["internal", "client"]
    at: float
    attributes: SpanAttributes
    resumed: str | None = None
    """The session that it goes on with."""


@dataclass(frozen=True, slots=True)
class CloseSpan:
    """A span ends; `error` says of which kind its failure was."""

    key: SpanKey
    at: float
    attributes: SpanAttributes = field(default_factory=_no_attributes)
    error: str = ""
    error_message: str = ""
    """What went wrong, in words: content, so only when that is asked for."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened within a span and took no time."""

    key: SpanKey
    name: str
    at: float
    attributes: SpanAttributes


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """A point of a metric, measured in a span."""

    key: SpanKey
    metric: HistogramMetric
    value: float
    attributes: SpanAttributes


SpanOperation = OpenSpan | CloseSpan | SpanEvent | MetricPoint
