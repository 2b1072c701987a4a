"""Writes spans and metrics by the OpenTelemetry API, which is loaded when a pen is made."""

import threading
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, assert_never, final

from windlass.core.errors import ConfigError
from windlass.telemetry.conventions import TelemetryNames
from windlass.telemetry.operations import (
    CloseSpan,
    MetricPoint,
    OpenSpan,
    SpanEvent,
    SpanKey,
    SpanOperation,
)

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Link, Span, SpanContext, TracerProvider

NANOS_PER_S = 1_000_000_000
REMEMBERED_SESSIONS_MAX = 1_000
"""Sessions whose last trace is remembered, so that a run that goes on can point to it."""


@final
class SpanWriter:
    """One for a telemetry; each trace has a page of its own."""

    def __init__(
        self,
        tracer_provider: "TracerProvider | None",
        meter_provider: "MeterProvider | None",
        version: str,
    ) -> None:
        try:
            from opentelemetry import context, metrics, trace  # noqa: PLC0415 - of the extra
        except ImportError:
            raise ConfigError(
                "telemetry needs a package that is not installed: pip install 'windlass[otel]'"
            ) from None
        self.context, self.trace = context, trace
        self.tracer = trace.get_tracer("windlass", version, tracer_provider)
        meter = metrics.get_meter("windlass", version, meter_provider)
        self.meters = {
            one.name: meter.create_histogram(
                one.name, one.unit, one.description, explicit_bucket_boundaries_advisory=one.bounds
            )
            for one in TelemetryNames.METRICS
        }
        self._last: OrderedDict[str, SpanContext] = OrderedDict()
        self._lock = threading.Lock()

    def begin_trace(self) -> "TraceWriter":
        """For a trace that begins in the context of whoever asks for it."""
        return TraceWriter(self, self.context.get_current())

    def remember_run(self, session: str, span: "SpanContext") -> None:
        with self._lock:
            self._last[session] = span
            self._last.move_to_end(session)
            if len(self._last) > REMEMBERED_SESSIONS_MAX:
                self._last.popitem(last=False)

    def links_to_last_run(self, session: str | None) -> "list[Link]":
        with self._lock:
            before = self._last.get(session) if session is not None else None
        return [self.trace.Link(before)] if before is not None and before.is_valid else []


@final
class TraceWriter:
    """The spans of one trace that are open."""

    def __init__(self, writer: SpanWriter, context: "Context") -> None:
        self._writer = writer
        self._context = context
        self._spans: dict[SpanKey, Span] = {}

    def write_operation(self, op: SpanOperation) -> None:
        match op:
            case OpenSpan():
                self._open_span(op)
            case CloseSpan(key, at, attributes, error, words):
                span = self._spans.pop(key, None)
                if span is None:
                    return
                span.set_attributes(
                    {**attributes, **({TelemetryNames.ERROR: error} if error else {})}
                )
                if error:
                    span.set_status(self._writer.trace.StatusCode.ERROR, words or None)
                span.end(to_nanoseconds(at))
            case SpanEvent(key, name, at, attributes):
                if key in self._spans:
                    self._spans[key].add_event(name, attributes, to_nanoseconds(at))
            case MetricPoint(key, metric, value, attributes):
                self._writer.meters[metric.name].record(
                    value, attributes, self._context_within(key)
                )
            case _:
                assert_never(op)

    def _open_span(self, op: OpenSpan) -> None:
        pen = self._writer
        kinds = pen.trace.SpanKind
        span = self._spans[op.key] = pen.tracer.start_span(
            op.name,
            self._context_within(op.parent),
            kinds.CLIENT if op.kind == "client" else kinds.INTERNAL,
            op.attributes,
            pen.links_to_last_run(op.resumed),
            to_nanoseconds(op.at),
        )
        session, what = op.key
        if what == "run":
            pen.remember_run(session, span.get_span_context())

    def _context_within(self, key: SpanKey | None) -> "Context":
        span = self._spans.get(key) if key is not None else None
        return (
            self._context
            if span is None
            else self._writer.trace.set_span_in_context(span, self._context)
        )

    @contextmanager
    def activate_span(self, key: SpanKey) -> Generator[None]:
        """Make a span the current one, for whatever else is instrumented."""
        span, context = self._spans.get(key), self._writer.context
        if span is None:
            yield
            return
        token = context.attach(self._writer.trace.set_span_in_context(span))
        try:
            yield
        finally:
            context.detach(token)


def to_nanoseconds(at: float) -> int:
    # Microseconds are all that a float of the epoch has.
    return round(at * 1_000_000) * (NANOS_PER_S // 1_000_000)
