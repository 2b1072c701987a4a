"""Telemetry: the runs of an agent as OpenTelemetry spans and metrics (O1).

    agent = Agent("openai:gpt-5", telemetry=Telemetry())

The law: it is told events and does nothing to a run. What was said is exported only when that is
asked for.
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
    """Exports what agents do, for `Agent(telemetry=…)`. One may serve many agents."""

    def __init__(
        self,
        *,
        content: bool | None = None,
        tracer_provider: "TracerProvider | None" = None,
        meter_provider: "MeterProvider | None" = None,
    ) -> None:
        """Make one; raises ConfigError without the extra `otel`.

        Args:
            content: whether to export what was said: instructions, messages, arguments, results.
                Unless told, what OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says, else no.
            tracer_provider: where spans go; the global one unless told.
            meter_provider: where metrics go; the global one unless told.
        """
        self._with_content = captures_content() if content is None else content
        self._span_writer = SpanWriter(tracer_provider, meter_provider, _windlass_version())

    def begin(self, agent: str, session: str, now: Callable[[], float]) -> "RunTrace":
        """Observe a run that is about to open. Its span is a child of the current one."""
        return RunTrace(
            self._span_writer.begin_trace(), agent, session, now, with_content=self._with_content
        )


@final
class RunTrace:
    """One run, with those that work for it."""

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

    def tell(self, event: Event) -> None:
        for op in self._run_spans.operations_for(event):
            self._writer.write_operation(op)

    def join(self, session: str, known: Callable[[], State]) -> None:
        self._states[session] = known

    def inside(self, session: str, call_id: str) -> AbstractContextManager[None]:
        return self._writer.activate_span((session, f"call:{call_id}"))

    def _find_state(self, session: str) -> State | None:
        state = self._states.get(session)
        return state() if state is not None else None


def _windlass_version() -> str:
    try:
        return version("windlass")
    except PackageNotFoundError:
        return ""
