"""A driver that may have been replaced: its calls do not begin, and its tools can find out."""

import asyncio

import pytest

from windlass import Agent, FailedByBug, RunContext, RunResumed, RunStarted, tool
from windlass.core.messages import ToolResult
from windlass.journals.memory import MemoryJournal
from windlass.runtime.in_flight import PROOF_LASTS_S, InFlight
from windlass.runtime.leases import is_still_driving
from windlass.testing import PowerCut, PowerCutJournal, ScriptedModel, VirtualClock, call

pytestmark = pytest.mark.contract("J2", "F3")


async def test_each_driver_has_a_higher_token(clock: VirtualClock) -> None:
    """It is the number of the fact by which the driver opened the run."""
    seen: list[tuple[int, bool]] = []

    @tool(effect="idempotent")
    async def pay(context: RunContext) -> str:
        """Pay the bill."""
        seen.append((context.fencing_token, await context.still_driving()))
        return "paid"

    store = MemoryJournal()
    # The fourth append is the start of the call, and the fifth has its result.
    dying = PowerCutJournal(store, 5)
    agent = Agent(ScriptedModel([call("pay"), "Paid."]), tools=[pay], journal=dying, clock=clock)
    with pytest.raises((PowerCut, FailedByBug)):
        await agent.run("Pay.", session="s")
    with ScriptedModel(["Paid."]) as model:
        await Agent(model, tools=[pay], journal=store, clock=clock).resume("s")
    openings = [
        fact.seq for fact in await store.read("s") if isinstance(fact, RunStarted | RunResumed)
    ]
    assert len(openings) == 2
    assert seen == [(opening, True) for opening in openings]


async def test_a_sync_tool_asks_from_its_thread() -> None:
    def pay(context: RunContext) -> str:
        """Pay the bill."""
        return f"{context.check_driving()} {context.fencing_token}"

    with ScriptedModel([call("pay"), "Paid."]) as model:
        result = await Agent(model, tools=[pay]).run("Pay.")
    assert "True 1" in str(result.messages)


async def test_in_a_unit_test_nobody_else_drives() -> None:
    context = RunContext(deps=None)
    assert (context.fencing_token, await context.still_driving(), context.check_driving()) == (
        0,
        True,
        True,
    )


async def test_a_session_that_another_driver_opened_is_lost() -> None:
    """Also if that driver has ended the run since, and its lease is free."""
    journal = MemoryJournal()
    agent = Agent(ScriptedModel(["Hello.", "Hello."]), journal=journal)
    await agent.run("Hi.", session="s")
    last = (await journal.read("s"))[-1].seq
    assert await is_still_driving(journal, None, "s", last)
    await agent.run("Hi again.", session="s")
    assert not await is_still_driving(journal, None, "s", last)


@pytest.mark.parametrize("was_replaced", [True, False])
async def test_a_call_that_begins_late_asks_first(clock: VirtualClock, was_replaced: bool) -> None:  # noqa: FBT001
    """The process may have been stopped after the start was recorded."""
    ran: list[str] = []

    async def still_driving() -> bool:
        ran.append("asked")
        return not was_replaced

    async def work() -> ToolResult:
        ran.append("ran")
        return ToolResult.from_text("value", "paid")

    in_flight = InFlight(still_driving=still_driving)
    in_flight.starts_recorded_at = asyncio.get_running_loop().time()
    assert (await in_flight.run_if_driving(work)).kind == "value"
    assert ran == ["ran"], "right after its start was recorded, nothing needs to be asked"
    ran.clear()
    await asyncio.sleep(PROOF_LASTS_S * 2)
    result = await in_flight.run_if_driving(work)
    if was_replaced:
        assert (result.kind, ran) == ("cancelled", ["asked"])
        assert "another driver" in str(result.content)
    else:
        assert (result.kind, ran) == ("value", ["asked", "ran"])
    del clock
