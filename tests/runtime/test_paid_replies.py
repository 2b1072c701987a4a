"""What a model was paid for is kept, also if the run is stopped while the journal is busy."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from decimal import Decimal

import pytest
from typing_extensions import override

from windlass import Agent, Compaction, ModelInfo
from windlass.core.events import (
    ContextCompacted,
    ReplyEnd,
    ReplyPiece,
    RunEnded,
    RunReleased,
    StepProposed,
)
from windlass.core.setup import Price
from windlass.core.view import Prompt
from windlass.journals.memory import MemoryJournal
from windlass.testing import ScriptedModel, VirtualClock, WaitingJournal, call, end, say, usage

SESSION = "s"
APPEND_S = 0.02
PRICED = ModelInfo("paid:model", price=Price(Decimal(1), Decimal(2)), output_max=100)
DONE = [say("Done."), usage(input=1000, output=500), end()]
COST = Decimal("0.002")


class WatchedModel(ScriptedModel):
    """Calls `at_end` right before it sends the end of a reply."""

    at_end: Callable[[], None]

    @override
    async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        async with aclosing(super().stream(prompt)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ReplyEnd):
                    self.at_end()
                    # The append that began has not ended by then.
                    await asyncio.sleep(APPEND_S / 4)
                yield piece


def stop_while_steered(agent: Agent[str], stop: Callable[[], object]) -> Callable[[], None]:
    """Return what steers the run, and stops it before the steering is on record."""

    def meddle() -> None:
        loop = asyncio.get_running_loop()
        steering.append(loop.create_task(agent.steer(SESSION, "Be quick.")))
        loop.call_later(APPEND_S / 2, stop)

    steering: list[asyncio.Task[object]] = []
    return meddle


def make_journal(clock: VirtualClock) -> WaitingJournal:
    return WaitingJournal(MemoryJournal(now=clock.now), APPEND_S)


@pytest.mark.contract("J3", "B3", "C2")
async def test_a_reply_that_waits_for_the_journal_is_kept_by_a_cancel(clock: VirtualClock) -> None:
    journal = make_journal(clock)
    with WatchedModel([DONE], info=PRICED) as model:
        agent = Agent(model, journal=journal, clock=clock)
        model.at_end = stop_while_steered(agent, lambda: agent.cancel(SESSION))
        result = await agent.run("Hello", session=SESSION)
    assert (result.outcome, result.text, result.cost) == ("cancelled", "Done.", COST)
    facts = await journal.read(SESSION)
    assert [type(fact) for fact in facts[-2:]] == [StepProposed, RunEnded]


@pytest.mark.contract("J3", "D2")
async def test_a_reply_that_waits_for_the_journal_is_kept_by_a_release(clock: VirtualClock) -> None:
    journal = make_journal(clock)
    with WatchedModel([DONE], info=PRICED) as model:
        agent = Agent(model, journal=journal, clock=clock)
        model.at_end = stop_while_steered(agent, lambda: agent.release(SESSION))
        result = await agent.run("Hello", session=SESSION)
    assert (result.outcome, result.cost) == ("released", COST)
    facts = await journal.read(SESSION)
    assert [type(fact) for fact in facts[-2:]] == [StepProposed, RunReleased]


@pytest.mark.contract("S12", "X2")
async def test_a_summary_that_waits_for_the_journal_is_charged_by_a_cancel(
    clock: VirtualClock,
) -> None:
    journal = make_journal(clock)
    long = "word " * 400
    with (
        ScriptedModel([long]) as model,
        WatchedModel([DONE], info=PRICED) as writer,
    ):
        agent = Agent(
            model,
            journal=journal,
            clock=clock,
            summary_model=writer,
            compaction=Compaction(window=500, strategies=("summary",)),
        )
        await agent.run("Hello", session=SESSION)
        writer.at_end = stop_while_steered(agent, lambda: agent.cancel(SESSION))
        result = await agent.run("And now?", session=SESSION)
    assert result.outcome == "cancelled"
    facts = await journal.read(SESSION)
    summary, ended = facts[-2:]
    assert isinstance(summary, ContextCompacted)
    assert isinstance(ended, RunEnded)
    assert summary.charge is not None
    assert summary.charge.usd == COST


@pytest.mark.contract("B2", "M1", "S12")
async def test_a_reply_of_a_sub_agent_that_is_being_written_is_charged(clock: VirtualClock) -> None:
    """Its run has the whole cost, although the process that wrote the reply was cancelled."""
    journal = make_journal(clock)
    with (
        ScriptedModel([call("helper", {"task": "Help."})]) as model,
        WatchedModel([DONE], info=PRICED) as below,
    ):
        helper = Agent(below, name="helper", clock=clock)
        agent = Agent(model, journal=journal, clock=clock, tools=[helper.as_tool()])

        def cancel_soon() -> None:
            loop = asyncio.get_running_loop()
            loop.call_later(APPEND_S / 2, agent.cancel, SESSION)

        below.at_end = cancel_soon
        result = await agent.run("Hello", session=SESSION)
        await asyncio.sleep(1)  # The sub-agent records its own end.
    assert result.outcome == "cancelled"
    charges = [one for one in result.ledger.charges if one.purpose == "subagent"]
    assert [one.usd for one in charges] == [COST]
