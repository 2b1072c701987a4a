"""The trace of a run is recorded when it starts, and a resumed run continues it."""

import asyncio

import pytest

from collector import SpanCollector
from windlass import Agent, ConfigError, RunStarted, tool
from windlass.journals.memory import MemoryJournal
from windlass.telemetry import Telemetry
from windlass.testing import ScriptedModel, call

pytestmark = pytest.mark.contract("O1")
GIVEN = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


@tool(effect="read")
async def look() -> str:
    """Look at something for a while."""
    await asyncio.sleep(1)
    return "seen"


def make_agent(journal: MemoryJournal, collector: SpanCollector, *script: object) -> Agent[str]:
    telemetry = Telemetry(tracer_provider=collector.tracers, meter_provider=collector.meters)
    model = ScriptedModel(list(script))  # pyright: ignore[reportArgumentType]
    return Agent(model, tools=[look], journal=journal, telemetry=telemetry)


async def kill_everything() -> None:
    await asyncio.sleep(0.5)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.1)


async def test_a_resumed_run_continues_the_trace_of_its_start(collector: SpanCollector) -> None:
    """O1: in another process too, because the journal holds the trace."""
    journal = MemoryJournal()
    mine = collector.tracers.get_tracer("mine")
    with mine.start_as_current_span("request") as request:
        await make_agent(journal, collector, call("look")).start("Go.", session="s")
    await kill_everything()
    place = request.get_span_context()
    started = next(fact for fact in await journal.read("s") if isinstance(fact, RunStarted))
    assert started.trace.startswith(f"00-{place.trace_id:032x}-{place.span_id:016x}-")
    with mine.start_as_current_span("another request"):
        await make_agent(journal, collector, "Done.").resume("s")
    run = collector.only_span("invoke_agent")
    assert run.context is not None
    assert run.parent is not None
    assert (run.context.trace_id, run.parent.span_id) == (place.trace_id, place.span_id)


async def test_a_trace_can_be_given(collector: SpanCollector) -> None:
    """O1: for a service that got it in a header, with no OpenTelemetry of its own."""
    journal = MemoryJournal()
    agent = make_agent(journal, collector, "Done.")
    await agent.run("Go.", session="s", trace=GIVEN)
    run = collector.only_span("invoke_agent")
    assert run.context is not None
    assert f"{run.context.trace_id:032x}" == GIVEN.split("-")[1]
    with pytest.raises(ConfigError, match="traceparent"):
        await agent.run("Go.", trace="nonsense")
