"""What is to be done to spans and metrics, as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from windlass.telemetry.conventions import Metric

Attributes: TypeAlias = Mapping[str, str | bool | int | float | Sequence[str]]
Key = tuple[str, str]
"""Names a span within a trace: its session, and what it is there."""


def _none() -> Attributes:
    return {}


@dataclass(frozen=True, slots=True)
class Open:
    """A span begins. Without a parent, it is the caller's child."""

    key: Key
    parent: Key | None
    name: str
    kind: Literal["internal", "client"]
    at: float
    attributes: Attributes
    resumed: str | None = None
    """The session that it goes on with."""


@dataclass(frozen=True, slots=True)
class Close:
    """A span ends; `error` says of which kind its failure was."""

    key: Key
    at: float
    attributes: Attributes = field(default_factory=_none)
    error: str = ""
    words: str = ""
    """What went wrong, in words: content, so only when that is asked for."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened within a span and took no time."""

    key: Key
    name: str
    at: float
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class Measure:
    """A point of a metric, measured in a span."""

    key: Key
    metric: Metric
    value: float
    attributes: Attributes


Op = Open | Close | Mark | Measure
