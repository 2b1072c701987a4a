"""Writes spans and metrics by the OpenTelemetry API, which is loaded when a pen is made."""

import threading
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, assert_never, final

from windlass.core.errors import ConfigError
from windlass.telemetry.conventions import Words
from windlass.telemetry.operations import Close, Key, Mark, Measure, Op, Open

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Link, Span, SpanContext, TracerProvider

NANO = 1_000_000_000
REMEMBERED_MAX = 1_000
"""Sessions whose last trace is remembered, so that a run that goes on can point to it."""


@final
class Pen:
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
                one.name, one.unit, one.told, explicit_bucket_boundaries_advisory=one.bounds
            )
            for one in Words.METRICS
        }
        self._last: OrderedDict[str, SpanContext] = OrderedDict()
        self._lock = threading.Lock()

    def page(self) -> "Page":
        """For a trace that begins in the context of whoever asks for it."""
        return Page(self, self.context.get_current())

    def remember(self, session: str, span: "SpanContext") -> None:
        with self._lock:
            self._last[session] = span
            self._last.move_to_end(session)
            if len(self._last) > REMEMBERED_MAX:
                self._last.popitem(last=False)

    def links(self, session: str | None) -> "list[Link]":
        with self._lock:
            before = self._last.get(session) if session is not None else None
        return [self.trace.Link(before)] if before is not None and before.is_valid else []


@final
class Page:
    """The spans of one trace that are open."""

    def __init__(self, pen: Pen, context: "Context") -> None:
        self._pen = pen
        self._context = context
        self._spans: dict[Key, Span] = {}

    def write(self, op: Op) -> None:
        match op:
            case Open():
                self._open(op)
            case Close(key, at, attributes, error, words):
                span = self._spans.pop(key, None)
                if span is None:
                    return
                span.set_attributes({**attributes, **({Words.ERROR: error} if error else {})})
                if error:
                    span.set_status(self._pen.trace.StatusCode.ERROR, words or None)
                span.end(nanoseconds(at))
            case Mark(key, name, at, attributes):
                if key in self._spans:
                    self._spans[key].add_event(name, attributes, nanoseconds(at))
            case Measure(key, metric, value, attributes):
                self._pen.meters[metric.name].record(value, attributes, self._within(key))
            case _:
                assert_never(op)

    def _open(self, op: Open) -> None:
        pen = self._pen
        kinds = pen.trace.SpanKind
        span = self._spans[op.key] = pen.tracer.start_span(
            op.name,
            self._within(op.parent),
            kinds.CLIENT if op.kind == "client" else kinds.INTERNAL,
            op.attributes,
            pen.links(op.resumed),
            nanoseconds(op.at),
        )
        session, what = op.key
        if what == "run":
            pen.remember(session, span.get_span_context())

    def _within(self, key: Key | None) -> "Context":
        span = self._spans.get(key) if key is not None else None
        return (
            self._context
            if span is None
            else self._pen.trace.set_span_in_context(span, self._context)
        )

    @contextmanager
    def inside(self, key: Key) -> Generator[None]:
        """Make a span the current one, for whatever else is instrumented."""
        span, context = self._spans.get(key), self._pen.context
        if span is None:
            yield
            return
        token = context.attach(self._pen.trace.set_span_in_context(span))
        try:
            yield
        finally:
            context.detach(token)


def nanoseconds(at: float) -> int:
    # Microseconds are all that a float of the epoch has.
    return round(at * 1_000_000) * (NANO // 1_000_000)
