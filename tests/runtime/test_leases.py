"""Waiting for one who writes into a session: a moment is waited for, a driver is not."""

import asyncio
from pathlib import Path

import pytest

from windlass import Agent, Ask, SessionBusy, tool
from windlass.core.events import CallAnswered
from windlass.core.verdicts import Allow
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import FixedGate, ScriptedModel, VirtualClock, WaitingJournal, call


@tool
def send(to: str) -> str:
    """Send something."""
    return f"sent to {to}"


def make_agent(journal: WaitingJournal, clock: VirtualClock) -> Agent[str]:
    model = ScriptedModel([call("send", {"to": "ann"}), "Sent."])
    return Agent(model, tools=[send], gate=FixedGate(Ask("May I?")), journal=journal, clock=clock)


@pytest.mark.contract("D3")
async def test_a_message_that_is_being_written_keeps_nobody_from_resuming(
    clock: VirtualClock,
) -> None:
    """D3: a steering message takes the lease of an undriven session for one append."""
    store = MemoryJournal(now=clock.now)
    journal = WaitingJournal(store, delay_s=0.05)
    agent = make_agent(journal, clock)
    assert (await agent.run("Write to ann.", session="s")).outcome == "suspended"
    steering = asyncio.create_task(agent.steer("s", "Be brief."))
    await asyncio.sleep(0.07)
    assert await store.is_leased("s")
    other = make_agent(journal, clock)
    result = await other.resume("s")
    await steering
    assert result.outcome == "suspended"


@pytest.mark.contract("D3")
async def test_a_message_that_is_being_written_keeps_nobody_from_answering(
    clock: VirtualClock,
) -> None:
    """D3: what would keep the run from resuming is looked for before the answer counts."""
    store = MemoryJournal(now=clock.now)
    journal = WaitingJournal(store, delay_s=0.05)
    agent = make_agent(journal, clock)
    assert (await agent.run("Write to ann.", session="s")).outcome == "suspended"
    steering = asyncio.create_task(agent.steer("s", "Be brief."))
    await asyncio.sleep(0.07)
    assert await store.is_leased("s")
    other = make_agent(WaitingJournal(store, delay_s=0.0), clock)
    await other.answer("s", "c1_0", Allow())
    await steering
    answered = [fact for fact in await store.read("s") if isinstance(fact, CallAnswered)]
    assert [(fact.call_id, fact.verdict) for fact in answered] == [("c1_0", Allow())]


@pytest.mark.contract("D3")
async def test_a_session_that_stays_taken_is_refused(clock: VirtualClock) -> None:
    store = MemoryJournal(now=clock.now)
    journal = WaitingJournal(store, delay_s=0.01)
    agent = make_agent(journal, clock)
    await agent.run("Write to ann.", session="s")
    lease = await store.lease("s")
    with pytest.raises(SessionBusy):
        await agent.resume("s")
    with pytest.raises(SessionBusy):
        await agent.answer("s", "c1_0", Allow())
    lease.release()
    result = await agent.answer("s", "c1_0", Allow())
    assert result.completed


@pytest.mark.realtime
@pytest.mark.contract("D3")
async def test_a_writer_in_another_process_is_waited_for(tmp_path: Path) -> None:
    """D3: two journals on one file, as two processes have them."""
    path = tmp_path / "s.db"
    with SqliteJournal(path) as here, SqliteJournal(path) as there:
        agent = Agent(
            ScriptedModel([call("send", {"to": "ann"})]),
            tools=[send],
            gate=FixedGate(Ask("May I?")),
            journal=here,
        )
        await agent.run("Write to ann.", session="s")
        lease = await there.lease("s")
        asyncio.get_running_loop().call_later(0.05, lease.release)
        assert (await agent.resume("s")).outcome == "suspended"
