"""Speaking to a run that is driven: by handles, and by anyone with the journal."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import windlass
from windlass import Agent, Ask, Event, Limits, RaisedLimits, RunEnded, SteeringGiven, tool
from windlass.core.errors import MailRejected
from windlass.core.events import LimitsRaised, RunContinued, RunPaused, RunResumed, RunSuspended
from windlass.core.mail import ContinueMail
from windlass.core.projection.project import project_events
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import (
    FixedGate,
    ScriptedModel,
    VirtualClock,
    WaitingJournal,
    call,
    check_trace,
    run_virtual,
    say,
)


@tool(effect="read")
async def look() -> str:
    """Look at something for a while."""
    await asyncio.sleep(1)
    return "seen"


def make_agent(journal: Any, *script: Any, **options: Any) -> Agent[str]:
    return Agent(ScriptedModel(list(script)), tools=[look], journal=journal, **options)


@pytest.mark.contract("D3", "D4")
async def test_a_run_is_steered_paused_resumed_and_cancelled_by_its_handle() -> None:
    """D3, D4: each message is acknowledged when it is durable, and its fact can be awaited."""
    journal = MemoryJournal()
    agent = make_agent(journal, *[call("look")] * 3, limits=Limits(steps=2))
    handle = await agent.start("Go.", session="s")
    steered = await handle.steer("Hurry.", by="ada")
    assert isinstance(await steered.taken(timeout=5), SteeringGiven)
    raised = await handle.raise_limits(RaisedLimits(steps=9), by="ada")
    assert isinstance(await raised.taken(timeout=5), LimitsRaised)
    paused = await handle.pause("lunch", by="ada")
    assert isinstance(await paused.taken(timeout=5), RunPaused)
    assert (await handle.result()).outcome == "paused"
    assert (await agent.drive("s")) is not None
    resumed = await handle.resume(by="ada")
    assert isinstance(await resumed.taken(timeout=5), RunContinued)
    driving = asyncio.create_task(agent.drive("s"))
    await asyncio.sleep(0.5)
    cancelled = await windlass.cancel(journal, "s", "enough", by="bob")
    end = await cancelled.taken(timeout=5)
    assert isinstance(end, RunEnded)
    assert (end.outcome, end.reason, end.by) == ("cancelled", "enough", "bob")
    result = await driving
    assert result is not None
    assert result.outcome == "cancelled"


@pytest.mark.contract("L3", "D4")
def test_a_message_to_a_run_that_begins_to_wait_adds_no_event_after_its_last() -> None:
    """L3: whenever it comes, a watcher of `drive` is told once that the run waits, at the end."""

    async def drive_and_post(clock: VirtualClock, after_s: float) -> list[Event]:
        store = MemoryJournal(now=clock.now)
        journal = WaitingJournal(store, delay_s=0.01)
        agent = make_agent(journal, call("look"), gate=FixedGate(Ask("May I?")), clock=clock)
        await agent.start("Go.", session="s", drive=False)
        events: list[Event] = []
        driving = asyncio.create_task(agent.drive("s", on_event=events.append))
        await store.wait_for_append("s", 0)
        await asyncio.sleep(after_s)
        await store.post_mail("s", ContinueMail(run=1), by="ann")
        await driving
        return events

    times_driven: set[int] = set()
    for tick in range(60):
        events = run_virtual(partial(drive_and_post, after_s=tick / 200))
        check_trace(events)
        assert isinstance(events[-1], RunSuspended)
        times_driven.add(1 + sum(isinstance(event, RunResumed) for event in events))
    assert times_driven == {1, 2}


@pytest.mark.contract("D4")
async def test_a_message_that_comes_too_late_is_refused_with_a_reason() -> None:
    """D4: and whoever posted it is told."""
    journal = MemoryJournal()
    agent = make_agent(journal, call("look"), say("Done."))
    handle = await agent.start("Go.", session="s")
    await asyncio.sleep(0.5)
    receipt = await handle.raise_limits(RaisedLimits(steps=1))
    with pytest.raises(MailRejected, match="raises no limit"):
        await receipt.taken(timeout=5)
    await handle.result()


@pytest.mark.contract("D7")
async def test_a_prompt_for_a_busy_session_steers_its_run() -> None:
    """D7: it is taken up by the open run, before its next step."""
    agent = make_agent(MemoryJournal(), call("look"), say("Done."))
    first = await agent.start("Go.", session="s")
    second = await agent.start("In blue.", session="s", on_busy="steer")
    assert (second.run, (await second.result()).text) == (1, "Done.")
    texts = [str(message) for message in (await first.result()).messages]
    assert any("In blue." in text for text in texts)


@pytest.mark.contract("D2")
async def test_a_handle_releases_its_run_for_another_agent() -> None:
    """D2: the events of the handle stay with the run until its one end."""
    journal = MemoryJournal()
    agent = make_agent(journal, call("look"))
    handle = await agent.start("Go.", session="s")
    seen: list[Any] = []

    async def watch() -> None:
        seen.extend([event async for event in handle.events()])

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.5)
    assert handle.release("moving house")
    assert (await handle.result()).outcome == "released"
    other = make_agent(journal, say("Done."))
    result = await other.drive("s")
    assert result is not None
    assert result.text == "Done."
    await watching
    assert isinstance(seen[-1], RunEnded)
    assert (await handle.result()).text == "Done."


@pytest.mark.contract("D8")
async def test_whoever_drives_and_is_cancelled_lets_go_of_the_run() -> None:
    """D8: an engine that stops its activity does not end the run."""
    journal = MemoryJournal()
    agent = make_agent(journal, call("look"), say("Done."))
    await agent.start("Go.", session="s")
    await asyncio.sleep(0.2)
    agent.release("s", grace_s=0.0)
    await asyncio.sleep(2)
    driving = asyncio.create_task(agent.drive("s"))
    await asyncio.sleep(0.2)
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    result = await agent.drive("s")
    assert result is not None
    assert result.text == "Done."


@pytest.mark.slow
@pytest.mark.realtime
@pytest.mark.contract("D3")
async def test_a_file_is_all_that_is_needed(tmp_path: Path) -> None:
    """D3: two journals on one file stand for two processes."""
    with SqliteJournal(tmp_path / "s.db") as journal, SqliteJournal(tmp_path / "s.db") as other:
        agent = make_agent(journal, call("look"), say("Done."))
        handle = await agent.start("Go.", session="s")
        steered = await windlass.steer(other, "s", "Hurry.", by="ada")
        assert isinstance(await steered.taken(timeout=10), SteeringGiven)
        # The other agent has no driver of its own for this session.
        await make_agent(other).steer("s", "Faster.", by="bob")
        cancelled = await windlass.cancel(other, "s", "enough", by="ada")
        assert isinstance(await cancelled.taken(timeout=10), RunEnded)
        assert (await handle.result()).outcome == "cancelled"


@pytest.mark.contract("D5", "E1")
async def test_who_watches_a_paused_run_is_told_why_nothing_comes(clock: VirtualClock) -> None:
    """D5: by facts, so that those who come later are told as well; `watch` ends there."""
    journal = MemoryJournal(now=clock.now)
    agent = make_agent(journal, call("look"), clock=clock)
    handle = await agent.start("Go.", session="s")
    seen: list[Event] = []

    async def watch_handle() -> None:
        async for event in handle.events():
            seen.append(event)  # noqa: PERF401 - it is cancelled, and keeps what it has seen

    watching = asyncio.create_task(watch_handle())
    await handle.pause("lunch", by="ada")
    await handle.result()
    await asyncio.sleep(60)
    assert not watching.done()
    watching.cancel()
    late = [event async for event in make_agent(journal, clock=clock).watch("s")]
    for events in (seen, late):
        view = project_events(events, "s")
        assert view.status.waits_for == "continue"
        assert view.run is not None
        assert view.run.pause is not None
        assert (view.run.pause.reason, view.run.pause.by) == ("lunch", "ada")
