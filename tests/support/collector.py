"""The far end of telemetry: spans and points in memory, or over a wire to a loopback server."""

import gzip
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.context import Context
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, StatusCode
from typing_extensions import override


class SpanOrder(SpanProcessor):
    """Remembers in which order spans began: on virtual time many begin at one moment."""

    def __init__(self) -> None:
        self.begun: dict[int, int] = {}

    @override
    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.begun[span.get_span_context().span_id] = len(self.begun)


class SpanCollector:
    """Keeps what the SDK exports."""

    def __init__(self) -> None:
        self._order = SpanOrder()
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(self._order)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)

    @property
    def spans(self) -> list[ReadableSpan]:
        """All spans that have ended, in the order in which they began."""
        ended = self._exporter.get_finished_spans()
        begun = self._order.begun
        return sorted(ended, key=lambda one: begun[span_place(one).span_id])

    @property
    def started_count(self) -> int:
        """How many spans have begun."""
        return len(self._order.begun)

    def spans_named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def only_span(self, name: str) -> ReadableSpan:
        (span,) = self.spans_named(name)
        return span

    def child_names(self) -> dict[str, list[str]]:
        """The names of each span's children, by its name; those without a parent under ""."""
        found: dict[str, list[str]] = {}
        names = {span_place(one).span_id: one.name for one in self.spans}
        for span in self.spans:
            parent = "" if span.parent is None else names.get(span.parent.span_id, "elsewhere")
            found.setdefault(parent, []).append(span.name)
        return found

    def metric_points(self, metric: str) -> list[HistogramDataPoint]:
        data = self._reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for one in scope.metrics
            if one.name == metric
            for point in one.data.data_points
            if isinstance(point, HistogramDataPoint)
        ]


def span_place(span: ReadableSpan) -> SpanContext:
    """Where it is in which trace."""
    context = span.get_span_context()
    assert context is not None
    return context


def is_below(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return span.parent is not None and span.parent.span_id == span_place(parent).span_id


def attributes_of(span: ReadableSpan) -> Mapping[str, Any]:
    """The attributes of a span."""
    return dict(span.attributes or {})


def error_type_of(span: ReadableSpan) -> str | None:
    """The kind of its failure; None for a span that did not fail."""
    error = attributes_of(span).get("error.type")
    assert (span.status.status_code is StatusCode.ERROR) == (error is not None)
    return error


class OtlpServer:
    """Takes OTLP over HTTP, and keeps the bytes beside what they say."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.bodies: list[bytes] = []
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []

    def take_request(self, path: str, body: bytes) -> None:
        self.bodies.append(body)
        if path == "/v1/traces":
            self.traces.append(ExportTraceServiceRequest.FromString(body))
        else:
            assert path == "/v1/metrics"
            self.metrics.append(ExportMetricsServiceRequest.FromString(body))

    @property
    def span_names(self) -> list[str]:
        return [
            span.name
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def metric_names(self) -> set[str]:
        return {
            metric.name
            for request in self.metrics
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@contextmanager
def otlp_server() -> Iterator[OtlpServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            taken.take_request(self.path, body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        @override
        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        taken = OtlpServer(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield taken
        finally:
            server.shutdown()
            thread.join()
