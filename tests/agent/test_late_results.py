"""Late results are written, even as the event loop ends; then an agent forgets them."""

import asyncio
import gc
from collections.abc import Sequence
from contextlib import suppress

import pytest
from typing_extensions import override

from windlass import Agent, CallLate, tool
from windlass.core.events import Fact
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


class SlowJournal(MemoryJournal):
    """Takes some turns of the event loop to be read, as a file does."""

    @override
    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        for _ in range(20):
            await asyncio.sleep(0)
        return await super().read(session, after)


@pytest.mark.contract("C4")
def test_a_result_that_comes_as_the_event_loop_ends_is_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`asyncio.run` cancels what it finds at the end; the write that follows begins after that."""
    journal = SlowJournal()

    async def cancel_and_leave() -> None:
        started = asyncio.Event()

        @tool(effect="write")
        async def send_at_last() -> str:
            started.set()
            for _ in range(2):
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)
            return "sent"

        model = ScriptedModel([call("send_at_last")])
        agent = Agent(model, tools=[send_at_last], journal=journal)
        running = asyncio.create_task(agent.run("Go.", session="s"))
        await started.wait()
        agent.cancel("s")
        assert (await running).outcome == "cancelled"

    asyncio.run(cancel_and_leave())
    gc.collect()
    assert "Task was destroyed" not in caplog.text
    assert [type(fact) for fact in asyncio.run(journal.read("s"))][-1] is CallLate
