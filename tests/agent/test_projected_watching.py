"""D12: a real run, watched from its beginning and by those who come late, gives one view."""

import asyncio
from collections.abc import Sequence

import pytest

from windlass import Agent, Event, ModelInfo, Projection, RunEnded, apply_event, tool
from windlass.core.projection.project import without_live_parts
from windlass.core.setup import LoopPolicy
from windlass.testing import ScriptedModel, VirtualClock, call, drop, pause, say, think

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


@pytest.mark.contract("D12", "E5")
async def test_whoever_comes_in_the_middle_of_a_reply_sees_all_of_it_at_once(
    clock: VirtualClock,
) -> None:
    """Thinking, text and the calls that are being written; not only once the step is on record."""
    agent = Agent(make_model(), tools=[look], clock=clock, rules=LoopPolicy(on_partial="restart"))
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
        events = agent.watch("s")
        while without_live_parts(view) != without_live_parts(first):
            async with asyncio.timeout(EVERY_S / 2):
                view = apply_event(view, await anext(events))
        await events.aclose()
        moments.append(view)
        compared += 1
    assert compared > 10
    assert any(view.reply and view.reply.calls for view in moments)
    assert any(view.reply and view.reply.thinking and view.reply.text for view in moments)
