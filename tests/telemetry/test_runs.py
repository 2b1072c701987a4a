"""Whole runs as spans and metrics, by the conventions (O1)."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from opentelemetry.trace import SpanKind

from collector import SpanCollector, attributes_of, error_type_of, is_below, span_place
from windlass import (
    Agent,
    Allow,
    Ask,
    Compaction,
    Deny,
    FailedByModel,
    ModelInfo,
    Price,
    RetryPolicy,
    RunFailed,
    tool,
)
from windlass.core.events import RunEnded, UsageDelta
from windlass.core.messages import ToolResults, Usage
from windlass.core.view import Prompt
from windlass.journals.memory import MemoryJournal
from windlass.ports import Journal
from windlass.telemetry import Telemetry
from windlass.testing import (
    FixedGate,
    PowerCutJournal,
    ScriptedModel,
    ScriptedReply,
    VirtualClock,
    call,
    cut,
    drop,
    fail,
    pause,
    say,
    stall,
    usage,
)

pytestmark = pytest.mark.contract("O1")
PRICED = ModelInfo("google:gem-1", price=Price(Decimal(2), Decimal(10)))
DURATION = "gen_ai.client.operation.duration"


@tool(effect="read")
async def weather(city: str) -> str:
    """Tell the weather."""
    await asyncio.sleep(2)
    return f"Rain in {city}."


@tool
async def broken() -> str:
    """Fail."""
    raise ValueError("it is broken")


def telemetry(collector: SpanCollector, *, content: bool = False) -> Telemetry:
    return Telemetry(
        content=content, tracer_provider=collector.tracers, meter_provider=collector.meters
    )


def seconds(nanoseconds: int | None) -> float:
    assert nanoseconds is not None
    return nanoseconds / 1e9


async def test_a_run_is_a_tree_of_spans(collector: SpanCollector, clock: VirtualClock) -> None:
    whole = UsageDelta(Usage(100, 20, cache_read=40, cache_write=10, reasoning=5))
    script: list[ScriptedReply] = [
        [pause(3), call("weather", {"city": "Ghent"}), whole],
        [say("It rains."), usage(input=150, output=4)],
    ]
    with ScriptedModel(script, info=PRICED) as model:
        agent = Agent(
            model, name="clerk", tools=[weather], clock=clock, telemetry=telemetry(collector)
        )
        result = await agent.run("Well?", session="s1")
    assert collector.child_names() == {
        "": ["invoke_agent clerk"],
        "invoke_agent clerk": ["chat gem-1", "execute_tool weather", "chat gem-1"],
    }
    run, first, ran, last = collector.spans
    assert [one.kind for one in (run, first, ran)] == [
        SpanKind.INTERNAL,
        SpanKind.CLIENT,
        SpanKind.INTERNAL,
    ]
    assert attributes_of(first) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "gem-1",
        "gen_ai.request.stream": True,
        "gen_ai.response.model": "gem-1",
        "gen_ai.response.finish_reasons": ("tool_call",),
        "gen_ai.response.time_to_first_chunk": pytest.approx(3.0),
        "gen_ai.conversation.id": "s1",
        "gen_ai.agent.name": "clerk",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 40,
        "gen_ai.usage.cache_creation.input_tokens": 10,
        "gen_ai.usage.reasoning.output_tokens": 5,
        "operation.cost": pytest.approx(0.0004),
        "windlass.purpose": "main",
        "windlass.step": 1,
        "windlass.attempt": 1,
    }
    assert attributes_of(ran) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "weather",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c1_0",
        "gen_ai.conversation.id": "s1",
        "gen_ai.agent.name": "clerk",
    }
    assert attributes_of(run) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "gem-1",
        "gen_ai.conversation.id": "s1",
        "gen_ai.agent.name": "clerk",
        "gen_ai.usage.input_tokens": 250,
        "gen_ai.usage.output_tokens": 24,
        "gen_ai.usage.cache_read.input_tokens": 40,
        "gen_ai.usage.cache_creation.input_tokens": 10,
        "gen_ai.usage.reasoning.output_tokens": 5,
        "operation.cost": pytest.approx(float(result.cost or 0)),
        "windlass.outcome": "completed",
    }
    assert attributes_of(last)["gen_ai.response.finish_reasons"] == ("stop",)
    assert [error_type_of(one) for one in collector.spans] == [None] * 4
    assert seconds(ran.end_time) - seconds(ran.start_time) == pytest.approx(2.0)
    assert seconds(run.end_time) - seconds(run.start_time) == pytest.approx(5.0)


async def test_metrics_have_their_points(collector: SpanCollector, clock: VirtualClock) -> None:
    script: list[ScriptedReply] = [
        [pause(3), call("weather", {"city": "Ghent"}), usage(input=100, output=20)],
        [fail("rate_limit")],
        [say("It rains."), usage(input=150, output=4)],
    ]
    with ScriptedModel(script, info=PRICED) as model:
        agent = Agent(
            model, name="clerk", tools=[weather], clock=clock, telemetry=telemetry(collector)
        )
        await agent.run("Well?")
    common = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "gcp.gemini"}
    asked = {**common, "gen_ai.request.model": "gem-1"}
    good = {**asked, "gen_ai.response.model": "gem-1"}
    durations = {
        point.attributes.get("error.type") if point.attributes else None: point
        for point in collector.metric_points(DURATION)
    }
    assert dict(durations["rate_limit"].attributes or {}) == {**asked, "error.type": "rate_limit"}
    assert dict(durations[None].attributes or {}) == good
    assert (durations[None].count, durations[None].sum) == (2, pytest.approx(3.0))
    assert durations[None].explicit_bounds[0] == 0.01
    tokens = {
        str((point.attributes or {})["gen_ai.token.type"]): (point.count, point.sum)
        for point in collector.metric_points("gen_ai.client.token.usage")
    }
    assert tokens == {"input": (2, 250), "output": (2, 24)}
    (first,) = collector.metric_points("gen_ai.client.operation.time_to_first_chunk")
    assert (first.count, first.sum) == (2, pytest.approx(3.0))
    (ran,) = collector.metric_points("gen_ai.execute_tool.duration")
    assert dict(ran.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "weather",
        "gen_ai.agent.name": "clerk",
    }
    assert ran.sum == pytest.approx(2.0)
    (whole,) = collector.metric_points("gen_ai.invoke_agent.duration")
    assert dict(whole.attributes or {}) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "clerk",
    }
    assert whole.count == 1


async def test_estimated_tokens_are_marked_and_not_measured(
    collector: SpanCollector, clock: VirtualClock
) -> None:
    with ScriptedModel(["It rains."], info=PRICED) as model:
        await Agent(model, clock=clock, telemetry=telemetry(collector)).run("Well?")
    assert attributes_of(collector.only_span("chat gem-1"))["windlass.usage.estimated"] is True
    assert collector.metric_points("gen_ai.client.token.usage") == []
    assert collector.only_span("invoke_agent").name == "invoke_agent"


async def test_each_attempt_is_a_span(collector: SpanCollector, clock: VirtualClock) -> None:
    """Also one that was refused at the door, one that stalled, and one of another model."""
    first = ScriptedModel([[fail("rate_limit")], [say("Hm"), stall()]], name="openai:gpt-x")
    second = ScriptedModel([[say("Yes."), usage(input=1, output=1)]], name="anthropic:c-1")
    with first, second:
        agent = Agent(
            first,
            fallbacks=[second],
            retries=RetryPolicy(attempts_max=2),
            clock=clock,
            telemetry=telemetry(collector),
        )
        result = await agent.run("Well?")
    assert result.text == "Yes."
    spans = [one for one in collector.spans if one.name.startswith("chat")]
    assert [(one.name, error_type_of(one)) for one in spans] == [
        ("chat gpt-x", "rate_limit"),
        ("chat gpt-x", "stalled"),
        ("chat c-1", None),
    ]
    assert [attributes_of(one)["windlass.attempt"] for one in spans[:2]] == [1, 2]
    assert "gen_ai.response.model" not in attributes_of(spans[0])
    assert attributes_of(spans[1])["gen_ai.response.time_to_first_chunk"] == pytest.approx(0.0)
    assert error_type_of(collector.only_span("invoke_agent")) is None


async def test_who_only_measures_has_seen_nothing(
    collector: SpanCollector, clock: VirtualClock
) -> None:
    """A stream that breaks is asked again, as it is when nobody watches."""
    script: list[ScriptedReply] = [[say("Half of"), drop()], "Whole."]
    with ScriptedModel(script) as model:
        agent = Agent(model, clock=clock, telemetry=telemetry(collector))
        assert (await agent.run("Well?", on_partial="fail")).text == "Whole."
    assert [error_type_of(one) for one in collector.spans_named("chat model")] == ["network", None]
    with ScriptedModel(script[:1]) as model:
        agent = Agent(model, clock=clock, telemetry=telemetry(collector))
        with pytest.raises(RunFailed):
            await agent.run("Well?", on_event=lambda _: None, on_partial="fail")


async def test_a_run_that_fails_says_how(collector: SpanCollector, clock: VirtualClock) -> None:
    with ScriptedModel([[fail("auth", "the key XYZ is wrong")]]) as model:
        agent = Agent(model, clock=clock, telemetry=telemetry(collector))
        with pytest.raises(FailedByModel):
            await agent.run("Well?")
    run, chat = collector.spans
    assert (error_type_of(run), error_type_of(chat)) == ("auth", "auth")
    assert attributes_of(run)["windlass.outcome"] == "failed"
    assert run.status.description is None
    (whole,) = collector.metric_points("gen_ai.invoke_agent.duration")
    assert (whole.attributes or {})["error.type"] == "auth"


async def test_a_tool_that_fails_is_an_error_of_its_span_alone(
    collector: SpanCollector, clock: VirtualClock
) -> None:
    with ScriptedModel([call("broken"), "Pity."]) as model:
        agent = Agent(model, tools=[broken], clock=clock, telemetry=telemetry(collector))
        assert (await agent.run("Try.")).completed
    assert error_type_of(collector.only_span("execute_tool broken")) == "error"
    assert error_type_of(collector.only_span("invoke_agent")) is None
    (point,) = collector.metric_points("gen_ai.execute_tool.duration")
    assert (point.attributes or {})["error.type"] == "error"


async def test_a_call_that_was_denied_was_not_executed(
    collector: SpanCollector, clock: VirtualClock
) -> None:
    """It is an event of the run; so is one that is none."""
    gate = FixedGate(lambda request: Deny("not today", "no-weather"))
    script: list[ScriptedReply] = [call("weather", {"city": "Ghent"}), call("wether"), "Pity."]
    with ScriptedModel(script) as model:
        agent = Agent(
            model, tools=[weather], gate=gate, clock=clock, telemetry=telemetry(collector)
        )
        await agent.run("Well?")
    assert collector.child_names()["invoke_agent"] == ["chat model"] * 3
    denied, invalid = collector.only_span("invoke_agent").events
    assert denied.name == invalid.name == "windlass.call.judged"
    assert dict(denied.attributes or {}) == {
        "gen_ai.tool.call.id": "c1_0",
        "gen_ai.tool.name": "weather",
        "windlass.verdict": "deny",
        "windlass.rule": "no-weather",
    }
    assert dict(invalid.attributes or {}) == {
        "gen_ai.tool.call.id": "c2_0",
        "windlass.verdict": "invalid",
    }


async def test_a_cancel_ends_all_that_is_open(
    collector: SpanCollector, clock: VirtualClock
) -> None:
    script: list[ScriptedReply] = [
        [call("weather", {"city": "Ghent"}), usage(input=7, output=3)],
        [usage(input=9, output=1), say("I"), stall()],
    ]
    for during, left in (("execute_tool weather", 1), ("chat model", 0)):
        with ScriptedModel(script[: 2 - left]) as model:
            agent = Agent(model, tools=[weather], clock=clock, telemetry=telemetry(collector))
            run = asyncio.create_task(agent.run("Well?", session=during))
            await asyncio.sleep(1 if left else 10)
            agent.cancel(during)
            assert (await run).outcome == "cancelled"
            await agent.aclose()
        spans = [
            one for one in collector.spans if attributes_of(one)["gen_ai.conversation.id"] == during
        ]
        failures = {one.name: error_type_of(one) for one in spans}
        assert failures.pop("invoke_agent") == "cancelled"
        assert failures.pop(during) == "cancelled"
        assert set(failures.values()) == {None}
    stopped = [one for one in collector.spans_named("chat model") if error_type_of(one)]
    assert attributes_of(stopped[0])["gen_ai.usage.input_tokens"] == 9


async def test_a_run_that_waits_is_linked_to_by_the_one_that_goes_on(
    collector: SpanCollector, clock: VirtualClock
) -> None:
    gate, journal = FixedGate(lambda request: Ask("May I?")), MemoryJournal()
    with ScriptedModel([call("weather", {"city": "Ghent"}), "It rains."]) as model:
        agent = Agent(
            model,
            name="clerk",
            tools=[weather],
            gate=gate,
            journal=journal,
            clock=clock,
            telemetry=telemetry(collector),
        )
        held = await agent.run("Well?", session="s")
        (waiting,) = collector.spans_named("invoke_agent clerk")
        assert attributes_of(waiting)["windlass.outcome"] == "suspended"
        assert error_type_of(waiting) is None
        await asyncio.sleep(3600)
        result = await agent.answer("s", held.questions[0].call_id, Allow())
    assert result.text == "It rains."
    before, after = collector.spans_named("invoke_agent clerk")
    assert before is waiting
    assert [link.context for link in after.links] == [before.context]
    assert span_place(before).trace_id != span_place(after).trace_id
    assert [event.name for event in after.events] == ["windlass.call.answered"]
    assert is_below(collector.only_span("execute_tool weather"), after)


async def test_a_crash_leaves_a_trace_that_the_resumed_run_links_to(
    collector: SpanCollector, clock: VirtualClock
) -> None:
    """Another process knows nothing of the trace before, and begins one without a link."""
    for same_process in (True, False):
        journal, watching = MemoryJournal(), telemetry(collector)
        # The fifth append is the end of the call.
        dying = PowerCutJournal(journal, 5, "before")
        with ScriptedModel([call("weather", {"city": "Ghent"}), "It rains."]) as model:
            options: dict[str, Any] = {"tools": [weather], "clock": clock}
            with pytest.raises(BaseException, match="append 5"):
                await Agent(model, journal=dying, telemetry=watching, **options).run(
                    "Go", session="s"
                )
            now = watching if same_process else telemetry(collector)
            agent = Agent(model, journal=journal, telemetry=now, **options)
            assert (await agent.resume("s")).text == "It rains."
        after = collector.spans_named("invoke_agent")[-1]
        assert len(after.links) == same_process
        assert attributes_of(after)["windlass.outcome"] == "completed"
        below = [one.name for one in collector.spans if is_below(one, after)]
        assert below == ["execute_tool weather", "chat model"]


async def test_a_sub_agent_is_below_the_call_that_it_works_for(
    collector: SpanCollector, clock: VirtualClock
) -> None:
    """However deep, also with telemetry of its own: nothing is told twice."""
    watching = telemetry(collector)
    hand = Agent(
        ScriptedModel([call("weather", {"city": "Ghent"}), "Rain."], name="a:hand"),
        name="hand",
        tools=[weather],
        telemetry=watching,
    )
    clerk = Agent(
        ScriptedModel([call("hand", {"task": "Look."}), "Rain."], name="a:clerk"),
        name="clerk",
        tools=[hand.as_tool()],
    )
    boss = Agent(
        ScriptedModel([call("clerk", {"task": "Ask."}), "It rains."], name="a:boss"),
        name="boss",
        tools=[clerk.as_tool()],
        clock=clock,
        telemetry=watching,
    )
    result = await boss.run("Well?", session="s")
    assert result.text == "It rains."
    assert collector.child_names() == {
        "": ["invoke_agent boss"],
        "invoke_agent boss": ["chat boss", "execute_tool clerk", "chat boss"],
        "execute_tool clerk": ["invoke_agent clerk"],
        "invoke_agent clerk": ["chat clerk", "execute_tool hand", "chat clerk"],
        "execute_tool hand": ["invoke_agent hand"],
        "invoke_agent hand": ["chat hand", "execute_tool weather", "chat hand"],
    }
    assert (
        attributes_of(collector.only_span("invoke_agent hand"))["gen_ai.conversation.id"]
        == "s/c1_0/c1_0"
    )
    assert len({span_place(one).trace_id for one in collector.spans}) == 1


async def test_wherever_a_crash_is_the_rest_is_a_whole_trace(clock: VirtualClock) -> None:
    """Also below a sub-agent's call: each span of the resumed run has ended, and has its name."""
    crashes = 0
    for at in range(2, 60):
        collector, store = SpanCollector(), MemoryJournal()
        dying = PowerCutJournal(store, at, "after")
        try:
            await _tree(dying, clock, telemetry(collector)).run("Well?", session="s")
        except BaseException:
            if not dying.dead:
                raise
        if not dying.dead:
            assert crashes > 10
            return
        crashes += 1
        await asyncio.sleep(5)
        if isinstance((await store.read("s"))[-1], RunEnded):
            continue
        again = SpanCollector()
        result = await _tree(store, clock, telemetry(again, content=True)).resume("s")
        assert result.text == "It rains."
        assert again.started_count == len(again.spans)
        assert set(again.child_names()) <= {
            "",
            "invoke_agent boss",
            "execute_tool clerk",
            "invoke_agent clerk",
        }
        assert again.child_names()[""] == ["invoke_agent boss"]
        names = {span.name for span in again.spans}
        assert names <= {
            "invoke_agent boss",
            "invoke_agent clerk",
            "chat boss",
            "chat clerk",
            "execute_tool clerk",
            "execute_tool weather",
        }
    pytest.fail("it never came to an end")


def _tree(journal: Journal, clock: VirtualClock, watching: Telemetry) -> Agent[str]:
    """A boss and a clerk whose models go on from wherever they are."""

    def clerk_says(prompt: Prompt) -> ScriptedReply:
        asked = not any(isinstance(one, ToolResults) for one in prompt.messages)
        return call("weather", {"city": "Ghent"}) if asked else "Rain."

    def boss_says(prompt: Prompt) -> ScriptedReply:
        asked = not any(isinstance(one, ToolResults) for one in prompt.messages)
        return call("clerk", {"task": "Ask."}) if asked else "It rains."

    clerk = Agent(ScriptedModel([clerk_says] * 9, name="a:clerk"), name="clerk", tools=[weather])
    return Agent(
        ScriptedModel([boss_says] * 9, name="a:boss"),
        name="boss",
        tools=[clerk.as_tool()],
        journal=journal,
        clock=clock,
        telemetry=watching,
    )


async def test_a_sub_agent_that_is_cut_short_ends_with_its_caller(
    collector: SpanCollector, clock: VirtualClock
) -> None:
    clerk = Agent(ScriptedModel([stall()], name="a:clerk"), name="clerk")
    boss = Agent(
        ScriptedModel([call("clerk", {"task": "Ask."})], name="a:boss"),
        name="boss",
        tools=[clerk.as_tool()],
        clock=clock,
        telemetry=telemetry(collector),
    )
    run = asyncio.create_task(boss.run("Well?", session="s"))
    await asyncio.sleep(5)
    boss.cancel("s")
    await run
    await boss.aclose()
    assert {one.name: error_type_of(one) for one in collector.spans} == {
        "invoke_agent boss": "cancelled",
        "chat boss": None,
        "execute_tool clerk": "cancelled",
        "invoke_agent clerk": "cancelled",
        "chat clerk": "cancelled",
    }


async def test_a_summary_is_a_chat_with_its_purpose(
    collector: SpanCollector, clock: VirtualClock
) -> None:
    @tool(effect="read")
    def look(number: int) -> str:
        """Look at something large."""
        return f"{number}: " + "much to see " * 300

    looks: list[ScriptedReply] = [call("look", {"number": at}) for at in range(8)]
    writer = ScriptedModel([[say("Goals."), usage(input=700, output=30)]], name="a:writer")
    with ScriptedModel([*looks, "Seen."], info=ModelInfo("a:small", window=8_000)) as model, writer:
        agent = Agent(
            model,
            tools=[look],
            summary_model=writer,
            compaction=Compaction(strategies=("summary", "window")),
            clock=clock,
            telemetry=telemetry(collector),
        )
        assert (await agent.run("Look.")).completed
    summing = collector.only_span("chat writer")
    assert attributes_of(summing)["windlass.purpose"] == "compaction"
    assert attributes_of(summing)["gen_ai.usage.input_tokens"] == 700
    assert {
        attributes_of(one)["windlass.purpose"] for one in collector.spans_named("chat small")
    } == {"main"}


async def test_a_stream_without_its_end_is_a_failed_attempt(
    collector: SpanCollector, clock: VirtualClock
) -> None:
    with ScriptedModel([cut(), "Whole."]) as model:
        await Agent(model, clock=clock, telemetry=telemetry(collector)).run("Well?")
    first, last = collector.spans_named("chat model")
    assert (error_type_of(first), error_type_of(last)) == ("incomplete_stream", None)
