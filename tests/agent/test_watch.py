"""Watching: streams, slow watchers, late watchers."""

import asyncio
from typing import Any

import pytest

from windlass import Agent, CallFinished, RunEnded, RunStarted, StepProposed, TextDelta, tool
from windlass.agent.event_stream import EventStream
from windlass.core.events import CallDelta, CallProgress, Event, ThinkingDelta, UsageDelta
from windlass.core.messages import Usage
from windlass.journals.memory import MemoryJournal
from windlass.testing import (
    ScriptedModel,
    Trace,
    VirtualClock,
    WaitingJournal,
    call,
    pause,
    say,
    stall,
)


@tool(effect="read")
async def look() -> str:
    """Look."""
    await asyncio.sleep(1)
    return "seen"


async def test_a_stream_gives_events_and_then_the_result(clock: VirtualClock) -> None:
    """E1, E2, L3: each delta as it came, numbered, with one end, which is last."""
    trace = Trace()
    with ScriptedModel([[say("One two three."), call("look")], "Done."]) as model:
        agent = Agent(model, tools=[look], clock=clock)
        async with agent.stream("Go.") as events:
            async for event in events:
                trace(event)
    trace.check()
    assert trace.texts() == ["One ", "two ", "thre", "e.", "Done", "."]
    assert events.result.text == "Done."
    assert events.result.output == "Done."


@pytest.mark.contract("E2")
async def test_empty_pieces_are_not_events(clock: VirtualClock) -> None:
    """Servers send empty pieces to keep a connection alive; a watcher has nothing to show."""
    shown: list[Event] = []
    empty = [TextDelta(""), ThinkingDelta("")]
    with ScriptedModel([[*empty, say("Hi."), *empty]]) as model:
        await Agent(model, clock=clock).run("Go.", on_event=shown.append)
    deltas = [event for event in shown if isinstance(event, TextDelta | ThinkingDelta)]
    assert [type(event) for event in deltas] == [TextDelta]


async def test_the_result_is_there_only_at_the_end(clock: VirtualClock) -> None:
    with ScriptedModel(["Done."]) as model:
        async with Agent(model, clock=clock).stream("Go.") as events:
            with pytest.raises(RuntimeError, match="not ended"):
                _ = events.result


async def test_a_watcher_that_goes_away_does_not_stop_the_run(clock: VirtualClock) -> None:
    """E4."""
    with ScriptedModel([call("look"), "Done."]) as model:
        async with Agent(model, tools=[look], clock=clock).stream("Go.") as events:
            async for _ in events:
                break
    assert events.result.outcome == "completed"


async def test_a_watcher_that_fails_stops_the_run(clock: VirtualClock) -> None:
    store = MemoryJournal()
    agent = Agent(ScriptedModel([[say("Hi"), stall()]]), journal=store, clock=clock)

    async def watch() -> None:
        async with agent.stream("Go.", session="s") as events:
            async for _ in events:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await watch()
    last = (await store.read("s"))[-1]
    assert isinstance(last, RunEnded)
    assert last.outcome == "cancelled"


async def test_facts_are_written_before_they_are_shown(clock: VirtualClock) -> None:
    """E3."""
    store = MemoryJournal()
    shown: list[tuple[int, int]] = []

    def watch(event: Event) -> None:
        written = len(store._sessions.get("s", ()))
        if not event.nth:
            shown.append((event.seq, written))

    with ScriptedModel([call("look"), "Done."]) as model:
        agent = Agent(model, tools=[look], journal=WaitingJournal(store), clock=clock)
        await agent.run("Go.", session="s", on_event=watch)
    assert shown
    assert all(seq <= written for seq, written in shown)


async def test_a_slow_watcher_slows_nothing_down_and_loses_no_text(clock: VirtualClock) -> None:
    """E4: the buffer is bounded, adjacent deltas are merged, the rest is kept."""
    words = "word " * 5_000
    with ScriptedModel([[say(words), call("look")], "Done."]) as model:
        async with Agent(model, tools=[look], clock=clock).stream("Go.") as events:
            await asyncio.sleep(60)
            assert len(events._buffer) < 300
            assert clock.elapsed_s == 60
            trace = Trace([event async for event in events])
    assert "".join(trace.texts()) == words + "Done."
    assert trace.kinds()[-1] == "RunEnded"
    assert {"StepProposed", "CallJudged", "CallStarted", "CallFinished"} <= set(trace.kinds())


FRAGMENTS: list[tuple[Any, Any, Any]] = [
    (TextDelta("a"), TextDelta("b"), TextDelta("ab")),
    (ThinkingDelta("a"), ThinkingDelta("b"), ThinkingDelta("ab")),
    (CallDelta(0, "x", "f", "a"), CallDelta(0, arguments="b"), CallDelta(0, "x", "f", "ab")),
    (CallProgress("c", "a"), CallProgress("c", "b"), CallProgress("c", "ab")),
    (UsageDelta(Usage(1)), UsageDelta(Usage(2)), UsageDelta(Usage(2))),
]


@pytest.mark.parametrize(("one", "two", "merged"), FRAGMENTS)
async def test_what_belongs_together_is_merged(one: Any, two: Any, merged: Any) -> None:
    """E4."""
    events: EventStream[str] = EventStream(capacity=1)
    for event in (one, two, two, RunEnded("completed")):
        events.push(event)
    events.close()
    kept = [event async for event in events]
    assert type(kept[0]) is type(merged)
    assert len(kept) == 2


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (TextDelta("a"), ThinkingDelta("b")),
        (CallDelta(0, arguments="a"), CallDelta(1, arguments="b")),
        (CallDelta(0, arguments="a"), CallDelta(0, "new", "f")),
        (CallProgress("c", "a"), CallProgress("d", "b")),
        (TextDelta("a"), RunStarted(1, ())),
    ],
)
async def test_what_does_not_belong_together_is_kept_apart(one: Any, two: Any) -> None:
    """E4: structural events are never dropped."""
    events: EventStream[str] = EventStream(capacity=1)
    for event in (one, two, RunEnded("completed")):
        events.push(event)
    events.close()
    assert [event async for event in events][:2] == [one, two]


@pytest.mark.parametrize("after_s", [0.0, 0.25, 0.75, 1.5, 2.0, 30.0])
async def test_a_late_watcher_sees_all_facts_once_and_the_text_that_is_being_said(
    after_s: float, clock: VirtualClock
) -> None:
    """E5: records from the journal, then live events, with no gap and no repeat."""
    store = MemoryJournal()
    script = [[say("One "), pause(0.5), say("two "), pause(0.5), call("look")], "Done."]
    with ScriptedModel(script) as model:
        agent = Agent(model, tools=[look], journal=WaitingJournal(store, 0.01), clock=clock)
        running = asyncio.create_task(agent.run("Go.", session="s"))
        await asyncio.sleep(after_s)
        seen = [event async for event in agent.watch("s")]
        await running
    facts = list(await store.read("s"))
    if after_s or seen:
        assert [event for event in seen if not event.nth] == facts
        places = [(event.seq, event.nth) for event in seen]
        assert places == sorted(set(places))


async def test_a_watcher_may_come_in_at_any_number(clock: VirtualClock) -> None:
    """E5."""
    store = MemoryJournal()
    with ScriptedModel([call("look"), "Done."]) as model:
        agent = Agent(model, tools=[look], journal=store, clock=clock)
        await agent.run("Go.", session="s")
    facts = list(await store.read("s"))
    for after in range(len(facts) + 1):
        assert [event async for event in agent.watch("s", after=after)] == facts[after:]


async def test_what_was_said_before_the_watcher_came_is_not_lost(clock: VirtualClock) -> None:
    """E5: the text of the attempt under way comes first, in one piece."""
    with ScriptedModel([[say("One two "), pause(5), say("three")]]) as model:
        agent = Agent(model, clock=clock)
        running = asyncio.create_task(agent.run("Go.", session="s", on_event=lambda _: None))
        await asyncio.sleep(1)
        seen = Trace([event async for event in agent.watch("s")])
        await running
    assert "".join(seen.texts()) == "One two three"


async def test_each_result_is_an_event_as_soon_as_its_call_ends(clock: VirtualClock) -> None:
    """E6, T8."""
    at: dict[str, float] = {}

    def watch(event: Event) -> None:
        if isinstance(event, CallFinished | StepProposed):
            at.setdefault(getattr(event, "call_id", "step"), clock.elapsed_s)

    @tool(effect="read")
    async def wait(seconds: int) -> str:
        await asyncio.sleep(seconds)
        if seconds == 2:
            raise OSError("broken")
        return "ok"

    with ScriptedModel([[call("wait", {"seconds": s}) for s in (5, 1)], "Done."]) as model:
        await Agent(model, tools=[wait], clock=clock).run("Go.", on_event=watch)
    assert at["c1_1"] == at["step"] + 1
    assert at["c1_0"] == at["step"] + 5


async def test_a_callback_that_fails_is_told_no_more_and_stops_nothing(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """E4: whoever watches cannot break the run."""
    heard: list[Event] = []

    def watch(event: Event) -> None:
        heard.append(event)
        raise ValueError("no")

    with ScriptedModel([call("look"), "Done."]) as model:
        result = await Agent(model, tools=[look], clock=clock).run("Go.", on_event=watch)
    assert result.text == "Done."
    assert len(heard) == 1
    assert "a watcher failed" in caplog.text
