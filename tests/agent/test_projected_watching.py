"""D12: a real run, watched from its beginning and by those who come late, gives one view."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from windlass import Agent, Ask, Event, ModelInfo, Projection, RunEnded, apply_event, tool
from windlass.core.projection.project import without_live_parts
from windlass.core.projection.view import ReplyEntry
from windlass.core.setup import LoopPolicy
from windlass.journals.memory import MemoryJournal
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

EVERY_S = 0.35
SECRET = "hunter2-of-the-hill"


@tool(effect="read")
async def look(at: int) -> str:
    """Look at a page."""
    await asyncio.sleep(1)
    return f"page {at}"


def make_model() -> ScriptedModel:
    replies = [
        [think("Hm."), pause(1), say("Let me "), pause(1), drop()],
        [
            think("Hm, well."),
            pause(1),
            say(f"Let me use {SECRET} and "),
            pause(1),
            say("look."),
            pause(1),
            call("look", {"at": 1}),
            pause(1),
            call("look", {"at": 2}),
            pause(1),
        ],
        [say("All "), pause(1), say("is "), pause(1), say("well.")],
    ]
    return ScriptedModel(replies, info=ModelInfo("scripted:m"))


@pytest.mark.contract("D12", "E5", "S6")
@pytest.mark.parametrize("watched", [True, False], ids=["beside another", "alone"])
async def test_the_view_is_the_same_whenever_a_watcher_comes(
    clock: VirtualClock, *, watched: bool
) -> None:
    """A watcher comes every 0.35 s: in thinking, text, calls, a retry, and while tools run."""
    agent = Agent(
        make_model(),
        tools=[look],
        clock=clock,
        secrets={"PASSWORD": SECRET},
        rules=LoopPolicy(on_partial="restart"),
    )
    seen = list[Event]()
    on_event = seen.append if watched else None
    running = asyncio.create_task(agent.run("Go.", session="s", on_event=on_event))
    late = list[asyncio.Task[Projection]]()
    while not running.done():
        await asyncio.sleep(EVERY_S)
        late.append(asyncio.create_task(project_watched(agent)))
    assert (await running).outcome == "completed"
    record = [event async for event in agent.watch("s")]
    wanted = without_live_parts(project_all(record))
    assert isinstance(record[-1], RunEnded)
    for task in late:
        assert without_live_parts(await task) == wanted
    if watched:
        assert without_live_parts(project_all(seen)) == wanted
    assert len(late) > 20
    assert SECRET not in repr(wanted)


async def project_watched(agent: Agent[str]) -> Projection:
    view = Projection("s")
    async for event in agent.watch("s"):
        view = apply_event(view, event)
    return view


def project_all(events: Sequence[Event]) -> Projection:
    view = Projection("s")
    for event in events:
        view = apply_event(view, event)
    return view


@pytest.mark.contract("D12", "E5", "D11")
@pytest.mark.parametrize("place", ["here", "elsewhere"])
async def test_whoever_comes_in_the_middle_of_a_reply_sees_all_of_it_at_once(
    clock: VirtualClock, place: str
) -> None:
    """Thinking, text and the calls that are being written; not only once the step is on record."""
    journal = MemoryJournal()
    rules = LoopPolicy(on_partial="restart")
    agent = Agent(make_model(), tools=[look], journal=journal, clock=clock, rules=rules)
    watching = agent
    if place == "elsewhere":
        watching = Agent(ScriptedModel([]), tools=[look], journal=journal, clock=clock)
    first = Projection("s")
    moments = list[Projection]()

    def watch(event: Event) -> None:
        nonlocal first
        first = apply_event(first, event)

    running = asyncio.create_task(agent.run("Go.", session="s", on_event=watch))
    compared = 0
    while not running.done():
        await asyncio.sleep(EVERY_S)
        if first.reply is None or running.done():
            continue
        view = Projection("s")
        events = watching.watch("s")
        while without_live_parts(view) != without_live_parts(first):
            async with asyncio.timeout(EVERY_S / 2):
                view = apply_event(view, await anext(events))
        await events.aclose()
        moments.append(view)
        compared += 1
    assert compared > 10
    assert any(view.reply and view.reply.calls for view in moments)
    assert any(view.reply and view.reply.thinking and view.reply.text for view in moments)


def nested_projections(view: Projection) -> dict[str, Projection]:
    """Return the views of all sub-agents of a session, and of theirs, by session."""
    found = dict[str, Projection]()
    for entry in view.entries:
        for one in entry.calls if isinstance(entry, ReplyEntry) else ():
            for nested in one.agents:
                found[nested.session] = without_live_parts(nested.projection)
                found.update(nested_projections(nested.projection))
    return found


def shows_running(view: Projection, first: Projection) -> bool:
    """Whether a view has each sub-agent that works now as the first watcher has it."""
    found = nested_projections(view)
    wanted = nested_projections(first).items()
    return all(found.get(name) == one for name, one in wanted if one.run and not one.run.outcome)


def make_family(journal: Any, clock: VirtualClock) -> Agent[str]:
    """Return an agent with a sub-agent that has one as well; each thinks, speaks and waits."""
    grandchild = Agent(
        ScriptedModel([[think("Deep."), pause(1), call("look", {"at": 3})], "Grand."]),
        tools=[look],
        clock=clock,
    )
    child = Agent(
        ScriptedModel(
            [
                [
                    think("Hm."),
                    pause(1),
                    say("I "),
                    pause(1),
                    say("look."),
                    call("look", {"at": 1}),
                ],
                [call("grand", {"task": "Dig."})],
                [say("It is "), pause(1), say(SECRET), pause(1)],
            ]
        ),
        tools=[look, grandchild.as_tool("grand")],
        clock=clock,
    )
    model = ScriptedModel([[say("Well. "), call("helper", {"task": "Look."})], "Done."])
    return Agent(
        model,
        tools=[child.as_tool("helper")],
        journal=journal,
        clock=clock,
        secrets={"PASSWORD": SECRET},
    )


@pytest.mark.contract("D12", "E5", "D11")
@pytest.mark.parametrize("place", ["here", "elsewhere"])
async def test_sub_agents_are_shown_whenever_a_watcher_comes(
    clock: VirtualClock, place: str
) -> None:
    """From their first fact, with the reply that streams, as to one who was there before."""
    store = MemoryJournal()
    agent = make_family(WaitingJournal(store, 0.01), clock)
    watching = agent
    if place == "elsewhere":
        watching = Agent(ScriptedModel([]), journal=store, clock=clock)
    first = Projection("s")

    def watch(event: Event) -> None:
        nonlocal first
        first = apply_event(first, event)

    running = asyncio.create_task(agent.run("Go.", session="s", on_event=watch))
    late = list[Projection]()
    traces = list[Trace]()
    tasks = list[asyncio.Task[None]]()

    async def come_late(at: int) -> None:
        async for event in watching.watch("s"):
            traces[at](event)
            late[at] = apply_event(late[at], event)

    compared = 0
    await asyncio.sleep(0.05)
    while not running.done():
        late.append(Projection("s"))
        traces.append(Trace())
        tasks.append(asyncio.create_task(come_late(len(tasks))))
        await asyncio.sleep(EVERY_S)
        if running.done() or not any(call.agents for call in first.open_calls):
            continue
        compared += 1
        async with asyncio.timeout(EVERY_S):
            # What happens just now may still be on its way to those who watch from elsewhere.
            while not all(shows_running(view, first) for view in late):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert compared > 8
    assert (await running).outcome == "completed"
    await asyncio.gather(*tasks)
    whole = nested_projections(first)
    assert len(whole) == 2
    assert SECRET not in repr(whole)
    counts = set[int]()
    for view, trace in zip(late, traces, strict=True):
        places = [(event.seq, event.nth) for event in trace.events]
        assert places == sorted(set(places))
        found = nested_projections(view)
        # One that came after the end of a sub-agent reads its session, or its caller's result.
        assert all(found[name] == whole[name] for name in found)
        counts.add(len(found))
    assert max(counts) == 2


def make_waiting_family(journal: Any, clock: VirtualClock, *calls: Any) -> Agent[str]:
    """Return an agent whose sub-agent has one that must ask before it looks."""
    grandchild = Agent(
        ScriptedModel([call("look", {"at": 3})]),
        tools=[look],
        gate=FixedGate(Ask("May I?")),
        clock=clock,
    )
    child = Agent(
        ScriptedModel([[say("I ask."), call("grand", {"task": "Dig."})]]),
        tools=[grandchild.as_tool("grand")],
        clock=clock,
    )
    model = ScriptedModel([[call("helper", {"task": "Look."}), *calls], "Done."])
    sleeper = Agent(
        ScriptedModel([call("sleep_long"), "Slept."]),
        tools=[tool(sleep_long, effect="read")],
        clock=clock,
    )
    tools = [child.as_tool("helper"), sleeper.as_tool("sleeper")]
    return Agent(model, tools=tools, journal=journal, clock=clock)


async def sleep_long() -> str:
    """Take a long time."""
    await asyncio.sleep(100)
    return "slept"


async def watch_for(agent: Agent[str], seconds: float) -> tuple[Projection, Trace]:
    """Watch a session for some time, or until the watch ends."""
    view = Projection("s")
    trace = Trace()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            async for event in agent.watch("s"):
                trace(event)
                view = apply_event(view, event)
    places = [(event.seq, event.nth) for event in trace.events]
    assert places == sorted(set(places))
    return view, trace


@pytest.mark.contract("D12", "D13")
@pytest.mark.parametrize("place", ["here", "elsewhere"])
@pytest.mark.parametrize("caller", ["waits too", "works on"])
async def test_sub_agents_that_wait_are_shown_to_those_who_come_late(
    clock: VirtualClock, place: str, caller: str
) -> None:
    """As to one who was there when they asked, also when nobody drives the session any more."""
    journal = MemoryJournal()
    calls = [call("sleeper", {"task": "Sleep."})] if caller == "works on" else []
    agent = make_waiting_family(journal, clock, *calls)
    watching = agent
    if place == "elsewhere":
        watching = Agent(ScriptedModel([]), journal=journal, clock=clock)
    first = Projection("s")

    def watch(event: Event) -> None:
        nonlocal first
        first = apply_event(first, event)

    running = asyncio.create_task(agent.run("Go.", session="s", on_event=watch))
    await asyncio.sleep(20)
    assert running.done() == (caller == "waits too")
    late, _ = await watch_for(watching, 20)
    shown = nested_projections(late)
    assert shown == nested_projections(first)
    assert len(shown) == 2 + len(calls)
    assert (await running).outcome == "suspended"
    after, _ = await watch_for(watching, 20)
    waiting = nested_projections(after)
    assert {name: nested_projections(first)[name] for name in waiting} == waiting
    assert len(waiting) == 2
