"""Where spans hang: below the caller's, above what tools do, and never in another run (O1)."""

import asyncio
import time

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from collector import SpanCollector, attributes_of, error_type_of, is_below, span_place
from windlass import Agent, ModelInfo, ToolResults, tool
from windlass.ports import Watcher
from windlass.telemetry import Telemetry
from windlass.testing import ScriptedModel, VirtualClock, call, pause, say

pytestmark = pytest.mark.contract("O1")


def telemetry(collector: SpanCollector) -> Telemetry:
    return Telemetry(tracer_provider=collector.tracers, meter_provider=collector.meters)


async def test_the_callers_span_is_the_parent(
    collector: SpanCollector, clock: VirtualClock
) -> None:
    mine = collector.tracers.get_tracer("mine")
    for way in ("run", "stream"):
        agent = Agent(ScriptedModel(["Yes."]), clock=clock, telemetry=telemetry(collector))
        with mine.start_as_current_span(way) as parent:
            if way == "run":
                await agent.run("Well?")
            else:
                async with agent.stream("Well?") as events:
                    async for _ in events:
                        assert trace.get_current_span() is parent
            assert trace.get_current_span() is parent
    assert collector.child_names()["run"] == ["invoke_agent"]
    assert collector.child_names()["stream"] == ["invoke_agent"]


@pytest.mark.realtime
async def test_run_sync_knows_its_caller(collector: SpanCollector) -> None:
    """Also from within a running event loop, and its times are those of the wall clock."""
    mine, before = collector.tracers.get_tracer("mine"), time.time_ns()
    agent = Agent(ScriptedModel(["Yes."]), telemetry=telemetry(collector))
    with mine.start_as_current_span("mine"):
        agent.run_sync("Well?")
    await agent.aclose()
    assert collector.child_names()["mine"] == ["invoke_agent"]
    run, after = collector.only_span("invoke_agent"), time.time_ns()
    assert run.start_time is not None
    assert run.end_time is not None
    assert before - 1_000 <= run.start_time <= run.end_time <= after + 1_000


@pytest.mark.realtime
async def test_what_a_tool_does_is_below_its_span(collector: SpanCollector) -> None:
    """Async, in a thread, and in a sub-agent; and what the caller carries along is there."""
    mine = collector.tracers.get_tracer("mine")

    @tool(effect="read")
    async def waits() -> str:
        """Wait."""
        with mine.start_as_current_span("in waits"):
            await asyncio.sleep(0)
        return str(baggage.get_baggage("tenant"))

    @tool(effect="read")
    def works() -> str:
        """Work."""
        with mine.start_as_current_span("in works"):
            return str(baggage.get_baggage("tenant"))

    clerk = Agent(ScriptedModel([call("works"), "Done."]), name="clerk", tools=[works])
    script = [[call("waits"), call("works"), call("clerk", {"task": "Work."})], "Done."]
    agent = Agent(
        ScriptedModel(script),
        tools=[waits, works, clerk.as_tool()],
        telemetry=telemetry(collector),
    )
    token = context.attach(baggage.set_baggage("tenant", "t-7"))
    result = await agent.run("Go.")
    context.detach(token)
    await agent.aclose()
    results = next(one for one in result.messages if isinstance(one, ToolResults))
    assert [item.result.text for item in results.items[:2]] == ["t-7", "t-7"]
    below = {
        one.name: attributes_of(parent)["gen_ai.conversation.id"]
        for one in collector.spans
        for parent in collector.spans_named("execute_tool " + one.name[3:])
        if one.name.startswith("in ") and is_below(one, parent)
    }
    # They run side by side, so either may be over first.
    assert sorted(below) == ["in waits", "in works"]
    assert below["in works"] == f"{result.session_id}/c1_2"
    assert collector.child_names()["execute_tool works"] == ["in works", "in works"]


async def test_an_agent_that_a_tool_runs_by_hand_has_its_own_run_there(
    collector: SpanCollector, clock: VirtualClock
) -> None:
    """With telemetry of its own it is seen, without it is not."""
    watching = telemetry(collector)

    @tool(effect="read")
    async def ask() -> str:
        """Ask others."""
        for name, seen in (("seen", watching), ("unseen", None)):
            model = ScriptedModel(["Yes."], name=f"a:{name}")
            await Agent(model, name=name, clock=clock, telemetry=seen).run("Well?")
        return "Yes."

    agent = Agent(
        ScriptedModel([call("ask"), "Yes."]), tools=[ask], clock=clock, telemetry=watching
    )
    await agent.run("Well?")
    assert collector.child_names() == {
        "": ["invoke_agent"],
        "invoke_agent": ["chat model", "execute_tool ask", "chat model"],
        "execute_tool ask": ["invoke_agent seen"],
        "invoke_agent seen": ["chat seen"],
    }


async def test_runs_side_by_side_do_not_mix(collector: SpanCollector, clock: VirtualClock) -> None:
    """Not even where two agents call their sessions alike."""
    watching = telemetry(collector)

    @tool(effect="read")
    async def work(number: int) -> str:
        """Work."""
        with collector.tracers.get_tracer("mine").start_as_current_span(f"work {number}"):
            await asyncio.sleep(1)
        return str(number)

    async def one(number: int) -> None:
        script = [[pause(0.1 * (number % 3)), call("work", {"number": number})], "Done."]
        agent = Agent(
            ScriptedModel(script, info=ModelInfo(f"a:m{number}")),
            name=f"a{number}",
            tools=[work],
            clock=clock,
            telemetry=watching,
        )
        await agent.run("Go.", session="the same")

    await asyncio.gather(*(one(number) for number in range(20)))
    tree = collector.child_names()
    assert sorted(tree[""]) == sorted(f"invoke_agent a{number}" for number in range(20))
    for number in range(20):
        assert tree[f"invoke_agent a{number}"] == [
            f"chat m{number}",
            "execute_tool work",
            f"chat m{number}",
        ]
    roots = {span_place(one).trace_id: one.name for one in collector.spans if one.parent is None}
    for span in collector.spans:
        if span.name.startswith("work "):
            assert roots[span_place(span).trace_id] == f"invoke_agent a{span.name[5:]}"
    assert [error_type_of(span) for span in collector.spans] == [None] * 100


async def test_who_samples_nothing_gets_nothing_and_no_harm_is_done(clock: VirtualClock) -> None:
    """Also with the API alone, where nobody collects at all."""
    for given in (TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False), None):
        watching = Telemetry(tracer_provider=given)
        agent = Agent(ScriptedModel(["Yes."]), clock=clock, telemetry=watching)
        assert (await agent.run("Well?")).text == "Yes."


async def test_telemetry_that_breaks_stops_no_run(
    collector: SpanCollector,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def explode(*_: object, **__: object) -> None:
        raise RuntimeError("no more spans")

    seen: list[object] = []
    watcher: Watcher = seen.append
    watching = telemetry(collector)
    monkeypatch.setattr(watching._span_writer.tracer, "start_span", explode)
    agent = Agent(ScriptedModel([[say("Yes.")]]), clock=clock, telemetry=watching)
    assert (await agent.run("Well?", on_event=watcher)).text == "Yes."
    assert seen
    assert [record.message for record in caplog.records] == [
        "a watcher failed and gets no more events"
    ]
    caplog.clear()
