"""What an agent remembers of late results when they are written: nothing."""

import asyncio

from windlass import Agent, CallLate, tool
from windlass.journals.memory import MemoryJournal
from windlass.testing import ScriptedModel, VirtualClock, call


@tool(effect="write")
async def send() -> str:
    """Send a letter, whatever anybody says."""
    try:
        await asyncio.sleep(1)
    except asyncio.CancelledError:
        await asyncio.sleep(1)
    return "sent"


async def test_a_late_result_that_is_written_is_forgotten(clock: VirtualClock) -> None:
    """C4: a process that lives for months keeps nothing of each of them."""
    journal = MemoryJournal()
    agent = Agent(ScriptedModel([call("send")]), tools=[send], journal=journal, clock=clock)
    running = asyncio.create_task(agent.run("Go.", session="s"))
    await asyncio.sleep(0.5)
    agent.cancel("s")
    assert (await running).outcome == "cancelled"
    await asyncio.sleep(5)
    assert [type(fact) for fact in await journal.read("s")][-1] is CallLate
    assert agent._runs._late_writes == {}
