"""Writes spans and metrics with the OpenTelemetry API, which is loaded when a writer is made."""

import threading
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, assert_never, final

from windlass.core.errors import ConfigError
from windlass.telemetry.conventions import OtelNames
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

REMEMBERED_SESSIONS_MAX = 1_000
"""Sessions whose last trace is remembered, so that a resumed run can link to it."""


@final
class SpanWriter:
    """The tracer and the meters of one `Telemetry`. Each trace has a TraceWriter."""

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
                "telemetry needs an extra package: pip install 'windlass[otel]'"
            ) from None
        self.context = context
        self.trace = trace
        self.tracer = trace.get_tracer("windlass", version, tracer_provider)
        meter = metrics.get_meter("windlass", version, meter_provider)
        self.meters = {
            metric.name: meter.create_histogram(
                metric.name,
                metric.unit,
                metric.description,
                explicit_bucket_boundaries_advisory=metric.bounds,
            )
            for metric in OtelNames.METRICS
        }
        self._last_runs: OrderedDict[str, SpanContext] = OrderedDict()
        # Runs in several threads may share one Telemetry.
        self._mutex = threading.Lock()

    def begin_trace(self) -> "TraceWriter":
        """Return a writer for a trace that begins in the context of the caller."""
        return TraceWriter(self, self.context.get_current())

    def current_trace(self) -> str:
        """Return the current span as a `traceparent`; empty if there is none."""
        span = self.trace.get_current_span().get_span_context()
        if not span.is_valid:
            return ""
        return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"

    def context_of(self, trace: str, current: "Context") -> "Context":
        """Return the context of a recorded `traceparent`, or the current one if it is the same."""
        _, trace_id, span_id, flags = trace.split("-")
        api = self.trace
        if api.get_current_span(current).get_span_context().trace_id == int(trace_id, 16):
            return current
        parent = api.SpanContext(
            int(trace_id, 16),
            int(span_id, 16),
            is_remote=True,
            trace_flags=api.TraceFlags(int(flags, 16)),
        )
        return api.set_span_in_context(api.NonRecordingSpan(parent), current)

    def remember_run(self, session: str, span: "SpanContext") -> None:
        """Remember the span of a session's latest run."""
        with self._mutex:
            self._last_runs[session] = span
            self._last_runs.move_to_end(session)
            if len(self._last_runs) > REMEMBERED_SESSIONS_MAX:
                self._last_runs.popitem(last=False)

    def links_to_last_run(self, session: str | None) -> "list[Link]":
        """Return a link to the remembered span of a session, if there is one."""
        if session is None:
            return []
        with self._mutex:
            span = self._last_runs.get(session)
        if span is None or not span.is_valid:
            return []
        return [self.trace.Link(span)]


@final
class TraceWriter:
    """The open spans of one trace."""

    def __init__(self, writer: SpanWriter, context: "Context") -> None:
        self._writer = writer
        self._context = context
        self._spans: dict[SpanKey, Span] = {}

    def write_operation(self, operation: SpanOperation) -> None:
        """Do to the spans what the operation says."""
        match operation:
            case OpenSpan():
                self._open_span(operation)
            case CloseSpan():
                self._close_span(operation)
            case SpanEvent(key, name, at, attributes):
                if key in self._spans:
                    self._spans[key].add_event(name, attributes, to_nanoseconds(at))
            case MetricPoint(key, metric, value, attributes):
                meter = self._writer.meters[metric.name]
                meter.record(value, attributes, self._context_within(key))
            case _:
                assert_never(operation)

    def _open_span(self, operation: OpenSpan) -> None:
        kinds = self._writer.trace.SpanKind
        if operation.trace and operation.parent is None:
            self._context = self._writer.context_of(operation.trace, self._context)
        span = self._spans[operation.key] = self._writer.tracer.start_span(
            operation.name,
            self._context_within(operation.parent),
            kinds.CLIENT if operation.kind == "client" else kinds.INTERNAL,
            operation.attributes,
            self._writer.links_to_last_run(operation.resumed),
            to_nanoseconds(operation.at),
        )
        session, what = operation.key
        if what == "run":
            self._writer.remember_run(session, span.get_span_context())

    def _close_span(self, operation: CloseSpan) -> None:
        span = self._spans.pop(operation.key, None)
        if span is None:
            return
        span.set_attributes(operation.attributes)
        if operation.error:
            span.set_attribute(OtelNames.ERROR, operation.error)
            error = self._writer.trace.StatusCode.ERROR
            span.set_status(error, operation.error_message or None)
        span.end(to_nanoseconds(operation.at))

    def _context_within(self, key: SpanKey | None) -> "Context":
        if key is None or key not in self._spans:
            return self._context
        return self._writer.trace.set_span_in_context(self._spans[key], self._context)

    @contextmanager
    def activate_span(self, key: SpanKey) -> Generator[None]:
        """Make a span the current one, so that other instrumentation creates children of it."""
        span = self._spans.get(key)
        if span is None:
            yield
            return
        context = self._writer.context
        token = context.attach(self._writer.trace.set_span_in_context(span))
        try:
            yield
        finally:
            context.detach(token)


def to_nanoseconds(at: float) -> int:
    """Return a time in seconds as nanoseconds, rounded to microseconds.

    A float of the present time is not more exact than that.
    """
    return round(at * 1_000_000) * 1_000
