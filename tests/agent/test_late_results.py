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
from windlass.runtime.leftover_tasks import CANCEL_GRACE_S
from windlass.testing import RecordingTools, ScriptedModel, VirtualClock, call


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


@pytest.mark.contract("C4")
async def test_a_tool_that_ignores_the_cancel_is_cancelled_again_after_a_grace(
    clock: VirtualClock,
) -> None:
    """Tools of any kind, also such as bring no grace of their own."""
    cancelled_at: list[float] = []

    async def hold_on(*_: object) -> None:
        while len(cancelled_at) < 2:
            try:
                await asyncio.sleep(3_600)
            except asyncio.CancelledError:
                cancelled_at.append(clock.elapsed_s)
        raise asyncio.CancelledError

    tools = RecordingTools({"send": hold_on})
    agent = Agent(ScriptedModel([call("send")]), tools=tools, clock=clock)
    running = asyncio.create_task(agent.run("Go.", session="s"))
    await asyncio.sleep(1)
    agent.cancel("s")
    assert (await running).outcome == "cancelled"
    await asyncio.sleep(60)
    assert cancelled_at == [1, 1 + CANCEL_GRACE_S]
    assert len(tools.cancelled) == 1


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
