"""The runs of an agent as OpenTelemetry spans and metrics.

    agent = Agent("openai:gpt-5", telemetry=Telemetry())

Invariant: telemetry receives events and cannot change a run. What was said is exported only on
request.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, final

from windlass.core.events import Event
from windlass.core.state import State
from windlass.environ import captures_content
from windlass.telemetry.run_spans import RunSpans
from windlass.telemetry.span_writer import SpanWriter, TraceWriter

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider


@final
class Telemetry:
    """Exports the runs of agents: pass it as `Agent(telemetry=…)`. Many agents may share one."""

    def __init__(
        self,
        *,
        content: bool | None = None,
        tracer_provider: "TracerProvider | None" = None,
        meter_provider: "MeterProvider | None" = None,
    ) -> None:
        """Set up the export. Raises ConfigError if the extra `otel` is not installed.

        Args:
            content: whether to export instructions, messages, arguments and results. By default the
                variable OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT decides; without it they
                are not exported.
            tracer_provider: where spans go; by default the global provider.
            meter_provider: where metrics go; by default the global provider.
        """
        self._with_content = captures_content() if content is None else content
        self._span_writer = SpanWriter(tracer_provider, meter_provider, _windlass_version())

    def current_trace(self) -> str:
        """Return the current span as a `traceparent` header; empty if there is none."""
        return self._span_writer.current_trace()

    def begin_run(self, agent: str, session: str, now: Callable[[], float]) -> "RunTrace":
        """Observe a run that is about to open. Its span is a child of the current span."""
        writer = self._span_writer.begin_trace()
        return RunTrace(writer, agent, session, now, with_content=self._with_content)


@final
class RunTrace:
    """The trace of one run and of the sub-agents that work for it."""

    def __init__(
        self,
        writer: TraceWriter,
        agent: str,
        session: str,
        now: Callable[[], float],
        *,
        with_content: bool,
    ) -> None:
        self._writer = writer
        self._states: dict[str, Callable[[], State]] = {}
        self._run_spans = RunSpans(
            agent, session, None, find_state=self._find_state, now=now, with_content=with_content
        )

    def record_event(self, event: Event) -> None:
        """Write what the event does to the spans."""
        for operation in self._run_spans.operations_for(event):
            self._writer.write_operation(operation)

    def add_session(self, session: str, read_state: Callable[[], State]) -> None:
        """Remember how to get the state of a session in this trace."""
        self._states[session] = read_state

    def enter_call(self, session: str, call_id: str) -> AbstractContextManager[None]:
        """Return a context in which the span of a call is the current one."""
        return self._writer.activate_span((session, f"call:{call_id}"))

    def _find_state(self, session: str) -> State | None:
        get_state = self._states.get(session)
        return get_state() if get_state is not None else None


def _windlass_version() -> str:
    try:
        return version("windlass")
    except PackageNotFoundError:
        return ""
