"""Watching a run that somebody else drives: its text as it streams."""

import asyncio
from typing import Any

import pytest

from windlass import Agent, Deny, LoopPolicy, TextDelta, tool
from windlass.core.events import AttemptDiscarded, Event, RunEnded, RunSuspended, StepProposed
from windlass.core.verdicts import Allow, Ask
from windlass.journals.memory import MemoryJournal
from windlass.runtime import publisher
from windlass.testing import (
    FixedGate,
    ScriptedModel,
    Trace,
    VirtualClock,
    WaitingJournal,
    call,
    drop,
    pause,
    say,
    think,
)

pytestmark = pytest.mark.contract("D11")
SECRET = "hunter2-of-the-hill"


@tool(effect="read")
async def look() -> str:
    """Look."""
    await asyncio.sleep(1)
    return "seen"


async def watch_elsewhere(journal: Any, clock: VirtualClock, after: int = 0) -> Trace:
    """Watch with an agent that does not drive the session."""
    watcher = Agent(ScriptedModel([]), journal=journal, clock=clock)
    return Trace([event async for event in watcher.watch("s", after=after)])


SCRIPT = [[say("One "), pause(0.5), say("two "), pause(0.5), call("look")], "Done."]


@pytest.mark.parametrize("after_s", [0.01, 0.25, 0.75, 1.5, 2.1])
async def test_text_comes_as_it_streams_whenever_one_comes(
    after_s: float, clock: VirtualClock
) -> None:
    """E5: the records, then the text so far, then what follows: no gap and no repeat."""
    store = MemoryJournal()
    with ScriptedModel(SCRIPT) as model:
        agent = Agent(model, tools=[look], journal=WaitingJournal(store, 0.01), clock=clock)
        running = asyncio.create_task(agent.run("Go.", session="s"))
        await asyncio.sleep(after_s)
        trace = await watch_elsewhere(store, clock)
        await running
    trace.check()
    assert [event for event in trace.events if not event.nth] == list(await store.read("s"))
    first = "One two " if after_s < 1 else ""
    last = "Done." if after_s < 2.1 else ""
    assert "".join(trace.texts()) == first + last


async def test_text_comes_within_a_quarter_of_a_second(clock: VirtualClock) -> None:
    shown_at: dict[str, float] = {}
    store = MemoryJournal()
    words = [item for at in range(20) for item in (say(f"{at} "), pause(0.2))]
    with ScriptedModel([words]) as model:
        agent = Agent(model, journal=store, clock=clock)
        running = asyncio.create_task(agent.run("Go.", session="s"))
        await asyncio.sleep(0.1)
        begun = clock.elapsed_s - 0.1
        watcher = Agent(ScriptedModel([]), journal=store, clock=clock)
        async for event in watcher.watch("s"):
            if isinstance(event, TextDelta):
                shown_at[event.text] = clock.elapsed_s - begun
        await running
    assert [*shown_at] == [f"{at} " for at in range(20)]
    for at in range(1, 20):
        assert shown_at[f"{at} "] <= at * 0.2 + 0.25


async def test_a_flood_of_deltas_is_gathered(clock: VirtualClock) -> None:
    """E4: what follows at once is one event, and every letter of it is there."""
    store = MemoryJournal()
    text = "".join(f"{at} " for at in range(5_000))
    with ScriptedModel([[say("First. "), pause(1), say(text)]]) as model:
        running = asyncio.create_task(
            Agent(model, journal=store, clock=clock).run("Go.", session="s")
        )
        await asyncio.sleep(0.5)
        trace = await watch_elsewhere(store, clock)
        await running
    assert "".join(trace.texts()) == "First. " + text
    assert len(trace.texts()) < 10


async def test_nobody_outside_means_no_watcher_in_the_run(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nobody watches from outside, no event of the run reaches the relay."""
    taken: list[Event] = []
    take = publisher.LiveRelay._take_event

    def note(relay: publisher.LiveRelay, event: Event) -> None:
        taken.append(event)
        take(relay, event)

    monkeypatch.setattr(publisher.LiveRelay, "_take_event", note)
    store = MemoryJournal()
    with ScriptedModel([[say("One "), pause(9), say("two "), pause(9), say("three")]]) as model:
        agent = Agent(model, journal=store, clock=clock)
        running = asyncio.create_task(agent.run("Go.", session="s"))
        await asyncio.sleep(1)
        assert taken == []
        watcher = Agent(ScriptedModel([]), journal=store, clock=clock)
        async for event in watcher.watch("s"):
            if isinstance(event, TextDelta) and event.text == "two ":
                break
        await asyncio.sleep(0.1)
        before = len(taken)
        await running
    assert [event.text for event in taken if isinstance(event, TextDelta)] == ["two "]
    assert len(taken) == before


async def test_secrets_are_masked_also_across_pieces(clock: VirtualClock) -> None:
    """G8: exactly what those who watch in the same process see."""
    store = MemoryJournal()
    words = [say("It is hunter"), pause(0.5), say("2-of-the-"), pause(0.5), say("hill, yes.")]
    here = Trace()
    with ScriptedModel([words]) as model:
        agent = Agent(model, journal=store, clock=clock, secrets={"PASSWORD": SECRET})
        running = asyncio.create_task(agent.run("Go.", session="s", on_event=here))
        await asyncio.sleep(0.25)
        trace = await watch_elsewhere(store, clock)
        await running
    assert "".join(trace.texts()) == "".join(here.texts()) == "It is [secret: PASSWORD], yes."
    assert "hunter" not in repr(trace.events)


@pytest.mark.parametrize("start_s", [0.1, 0.7, 2.5])
@pytest.mark.parametrize("verdict", [Allow(), Deny("no")])
async def test_a_reply_that_is_withheld_is_never_sent_before_it_is_judged(
    verdict: Allow | Deny, start_s: float, clock: VirtualClock
) -> None:
    """G3: by a watcher whose own agent withholds nothing."""
    store = MemoryJournal()
    judged_at: list[float] = []

    def judge(_text: str) -> Allow | Deny:
        judged_at.append(clock.elapsed_s)
        return verdict if len(judged_at) == 1 else Allow()

    gate = FixedGate(replies=judge, delay_s=5)
    script = [[say("The code"), pause(1), say(" is 1234.")], "Sorry."]
    model = ScriptedModel(script if isinstance(verdict, Deny) else script[:1])
    agent = Agent(model, gate=gate, journal=store, clock=clock)
    running = asyncio.create_task(agent.run("Go.", session="s"))
    await asyncio.sleep(start_s)
    watcher = Agent(ScriptedModel([]), journal=store, clock=clock)
    trace = Trace()
    async for event in watcher.watch("s"):
        if isinstance(event, TextDelta | StepProposed):
            assert judged_at
        trace(event)
    await running
    trace.check()
    if isinstance(verdict, Deny):
        assert "1234" not in repr(trace.events)
        assert trace.shown_text() == "Sorry."
    else:
        assert trace.shown_text() == "The code is 1234."


async def test_who_goes_on_from_a_record_is_not_shown_what_is_withheld(
    clock: VirtualClock,
) -> None:
    """G3, E5: the setup that withholds replies was recorded before the first record wanted."""
    store = MemoryJournal()
    gate = FixedGate(replies=Deny("no"), delay_s=60)
    agent = Agent(ScriptedModel(["It is 1234."]), gate=gate, journal=store, clock=clock)
    running = asyncio.create_task(agent.run("Go.", session="s"))
    await asyncio.sleep(1)
    watcher = Agent(ScriptedModel([]), journal=store, clock=clock)
    seen: list[Event] = []

    async def watch() -> None:
        seen.extend([event async for event in watcher.watch("s", after=1)])

    watching = asyncio.create_task(watch())
    await asyncio.sleep(2)
    running.cancel()
    await asyncio.wait({running, watching})
    assert "1234" not in repr(seen)


async def test_watching_from_elsewhere_changes_nothing_in_the_run(clock: VirtualClock) -> None:
    """S6: a reply that broke off is asked for again, as if nobody had seen it."""
    store = MemoryJournal()
    broken = [say("One "), pause(1), say("and "), pause(1), drop()]
    script = [broken, [say("Two "), pause(1), say("three.")]]
    with ScriptedModel(script) as model:
        rules = LoopPolicy(on_partial="fail")
        agent = Agent(model, journal=store, clock=clock, rules=rules)
        running = asyncio.create_task(agent.run("Go.", session="s"))
        await asyncio.sleep(0.5)
        trace = await watch_elsewhere(store, clock)
        result = await running
    trace.check()
    assert result.text == "Two three."
    assert len(trace.of_type(AttemptDiscarded)) == 1
    assert trace.shown_text() == "Two three."


async def test_a_watch_ends_when_the_run_waits_for_a_person(clock: VirtualClock) -> None:
    """E5: with the same last event as in the driver's process."""
    store = MemoryJournal()
    script = [[say("May I?"), pause(1), call("look")]]
    gate = FixedGate(Ask("May I?"))
    agent = Agent(ScriptedModel(script), tools=[look], gate=gate, journal=store, clock=clock)
    running = asyncio.create_task(agent.run("Go.", session="s"))
    await asyncio.sleep(0.5)
    trace = await watch_elsewhere(store, clock)
    await running
    trace.check()
    assert isinstance(trace.events[-1], RunSuspended)


async def test_a_slow_watcher_elsewhere_catches_up(clock: VirtualClock) -> None:
    """E4: what it missed of a text comes in one piece, and nothing comes twice."""
    store = MemoryJournal()
    # More batches than an inbox holds: each piece is sent by itself.
    words = [item for at in range(600) for item in (say(f"{at} "), pause(0.1))]
    with ScriptedModel([[*words, think("Hm."), call("look")], "Done."]) as model:
        agent = Agent(model, tools=[look], journal=store, clock=clock)
        running = asyncio.create_task(agent.run("Go.", session="s"))
        await asyncio.sleep(0.05)
        watcher = Agent(ScriptedModel([]), journal=store, clock=clock)
        trace = Trace()
        async for event in watcher.watch("s"):
            if isinstance(event, TextDelta) and len(trace.texts()) == 3:
                await asyncio.sleep(40)
            trace(event)
        await running
    trace.check()
    assert "".join(trace.texts()) == "".join(f"{at} " for at in range(600)) + "Done."
    assert len(trace.texts()) < 400


async def test_a_channel_that_loses_everything_loses_no_fact(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E5: after a snapshot nothing more comes; the facts do not wait for it."""
    sent: list[Any] = []

    def lose(relay: publisher.LiveRelay, items: Any, *, is_snapshot: bool = False) -> None:
        sent.append(items)
        if len(sent) < 3:
            send(relay, items, is_snapshot=is_snapshot)

    send = publisher.LiveRelay._send
    monkeypatch.setattr(publisher.LiveRelay, "_send", lose)
    store = MemoryJournal()
    with ScriptedModel(SCRIPT) as model:
        agent = Agent(model, tools=[look], journal=store, clock=clock)
        running = asyncio.create_task(agent.run("Go.", session="s"))
        await asyncio.sleep(0.1)
        trace = await watch_elsewhere(store, clock)
        await running
    assert [event for event in trace.events if not event.nth] == list(await store.read("s"))
    assert isinstance(trace.events[-1], RunEnded)


def test_a_run_in_another_thread_can_be_watched() -> None:
    """The driver of `run_sync` lives in an event loop of its own."""
    with ScriptedModel([[say("One "), pause(0.3), say("two.")]]) as model:
        agent = Agent(model)

        async def watch() -> Trace:
            running = asyncio.create_task(asyncio.to_thread(agent.run_sync, "Go.", session="s"))
            while not model.prompts:  # noqa: ASYNC110 - a model tells nobody
                await asyncio.sleep(0.005)
            trace = Trace([event async for event in agent.watch("s")])
            await running
            return trace

        trace = asyncio.run(watch())
        trace.check()
    assert "".join(trace.texts()) == "One two."
