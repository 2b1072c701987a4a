"""Watching a session that somebody else drives: its records as they are written, to the end."""

import asyncio
from pathlib import Path

import pytest

from windlass import Agent, Allow, Ask, Event, NothingToDo, RunEnded, SteeringGiven, tool
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import FixedGate, ScriptedModel, Trace, VirtualClock, call


@tool(effect="read")
async def wait() -> str:
    """Take a moment."""
    await asyncio.sleep(0.2)
    return "waited"


async def seen(agent: Agent[str], session: str, after: int = 0) -> list[Event]:
    return [event async for event in agent.watch(session, after=after)]


@pytest.mark.contract("E5")
async def test_who_does_not_drive_sees_the_records_and_then_the_end(clock: VirtualClock) -> None:
    journal = MemoryJournal()
    driver = Agent(
        ScriptedModel([call("wait"), "Done."]), tools=[wait], journal=journal, clock=clock
    )
    watcher = Agent(ScriptedModel([]), tools=[wait], journal=journal, clock=clock)
    running = asyncio.create_task(driver.run("Go.", session="s"))
    await asyncio.sleep(0.1)
    watching = asyncio.create_task(seen(watcher, "s", after=2))
    await running
    events = await watching
    facts = await journal.read("s")
    assert [event for event in events if not event.nth] == list(facts[2:])
    assert Trace(events).texts() == ["Done."]
    assert isinstance(events[-1], RunEnded)


@pytest.mark.contract("E5")
async def test_a_session_that_nobody_drives_is_told_and_left(clock: VirtualClock) -> None:
    """A watch of a run that waits for a person does not wait with it."""
    journal = MemoryJournal()
    agent = Agent(
        ScriptedModel([call("wait"), "Done."]),
        tools=[wait],
        gate=FixedGate(Ask("May I?")),
        journal=journal,
        clock=clock,
    )
    held = await agent.run("Go.", session="s")
    other = Agent(ScriptedModel([]), tools=[wait], journal=journal, clock=clock)
    assert await seen(other, "s") == list(await journal.read("s"))
    with pytest.raises(NothingToDo, match="no session 'unknown'"):
        await seen(other, "unknown")
    await agent.steer("s", "Be quick.")
    facts = await journal.read("s")
    assert await seen(other, "s", after=len(facts) - 1) == [facts[-1]]
    assert isinstance(facts[-1], SteeringGiven)
    (question,) = held.questions
    await agent.answer("s", question.call_id, Allow())
    assert isinstance((await seen(other, "s"))[-1], RunEnded)


@pytest.mark.realtime
@pytest.mark.contract("E5")
async def test_two_journals_on_one_file_are_as_two_processes(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with SqliteJournal(path) as here, SqliteJournal(path) as there:
        with ScriptedModel([call("wait"), call("wait"), "Done."]) as model:
            driver = Agent(model, tools=[wait], journal=here)
            watcher = Agent(ScriptedModel([]), tools=[wait], journal=there)
            running = asyncio.create_task(driver.run("Go.", session="s"))
            while not model.prompts:  # noqa: ASYNC110 - a model tells nobody
                await asyncio.sleep(0.005)
            events = await seen(watcher, "s")
            await running
        assert [event for event in events if not event.nth] == list(await here.read("s"))
