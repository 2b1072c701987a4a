"""Speaking to a run with nothing but its journal."""

import asyncio
from typing import Any

import pytest

import windlass
from windlass import (
    Agent,
    ConfigError,
    Limits,
    NothingToDo,
    RaisedLimits,
    RunEnded,
    tool,
)
from windlass.agent.prompt_queue import count_queued
from windlass.core.errors import MailRejected
from windlass.core.events import LimitsRaised, MailRefused, RunContinued, RunPaused, RunReleased
from windlass.core.fold.run import fold
from windlass.core.mail import PauseMail, SteerMail
from windlass.journals.memory import MemoryJournal
from windlass.testing import ScriptedModel, call
from windlass.testing.journals import append_facts


@tool(effect="read")
async def look() -> str:
    """Look at something for a while."""
    await asyncio.sleep(1)
    return "seen"


def make_agent(journal: Any, *script: Any, **options: Any) -> Agent[str]:
    return Agent(ScriptedModel(list(script)), tools=[look], journal=journal, **options)


async def left_open(journal: Any, session: str = "s") -> None:
    """A run whose process has died."""
    await make_agent(journal, call("look"), limits=Limits(steps=2)).start("Go.", session=session)
    await asyncio.sleep(0.5)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.1)


@pytest.mark.contract("D3")
async def test_a_run_that_nobody_drives_is_cancelled_at_once() -> None:
    """D3: with nothing but the journal, and without any text of whoever cancels it."""
    journal = MemoryJournal()
    await left_open(journal)
    receipt = await windlass.cancel(journal, "s", "because of xyzzy", by="ada")
    end = await receipt.taken()
    assert isinstance(end, RunEnded)
    assert (end.outcome, end.reason, end.by) == ("cancelled", "cancelled", "ada")
    assert "xyzzy" not in str(await journal.read("s"))
    explained = "\n".join(windlass.explain("s", await journal.read("s")))
    assert "ended as cancelled by ada" in explained
    assert not fold("s", await journal.read("s")).is_active
    with pytest.raises(NothingToDo, match="no open run"):
        await windlass.cancel(journal, "s")


@pytest.mark.contract("D4")
async def test_what_waits_for_a_cancelled_run_is_refused_by_facts() -> None:
    """D4: each acknowledged message is taken or refused."""
    journal = MemoryJournal()
    await left_open(journal)
    steering = await windlass.steer(journal, "s", "Hurry.", by="bob")
    await windlass.cancel(journal, "s")
    with pytest.raises(MailRejected, match="cancelled"):
        await steering.taken(timeout=1)
    assert await journal.list_mailed() == []
    refused = [fact for fact in await journal.read("s") if isinstance(fact, MailRefused)]
    assert [(fact.kind, fact.by) for fact in refused] == [("steer", "bob")]


@pytest.mark.contract("D4")
async def test_a_message_names_its_run_and_is_durable_until_somebody_drives() -> None:
    """D4: it is in the mailbox once it is acknowledged, masked with what the poster knows."""
    journal = MemoryJournal()
    await left_open(journal)
    receipt = await windlass.steer(journal, "s", "Hurry.", by="ada", key="k")
    again = await windlass.steer(journal, "s", "Hurry.", by="ada", key="k")
    assert receipt.mail == again.mail
    await windlass.pause(journal, "s", "lunch", by="ada")
    letters = await journal.read_mail("s", "control")
    assert [type(letter.message) for letter in letters] == [SteerMail, PauseMail]
    with pytest.raises(TimeoutError):
        await receipt.taken(timeout=1)
    with pytest.raises(NothingToDo, match="run 7"):
        await windlass.steer(journal, "s", "Hurry.", run=7)


@pytest.mark.contract("D3")
async def test_a_pause_that_nobody_drives_ends_with_nothing_but_the_journal() -> None:
    """D3, D5: and raised limits are on record at once."""
    journal = MemoryJournal()
    await left_open(journal)
    with pytest.raises(NothingToDo, match="not paused"):
        await windlass.resume(journal, "s")
    state = fold("s", await journal.read("s"))
    facts = (RunPaused("lunch", seq=state.seq + 1, at=state.at),)
    facts += (RunReleased("paused", seq=state.seq + 2, at=state.at),)
    await append_facts(journal, "s", facts)
    raised = await windlass.raise_limits(journal, "s", RaisedLimits(steps=9), by="ada")
    assert isinstance(await raised.taken(), LimitsRaised)
    continued = await windlass.resume(journal, "s", by="ada")
    assert isinstance(await continued.taken(), RunContinued)
    state = fold("s", await journal.read("s"))
    assert state.setup is not None
    assert (state.is_paused, state.setup.limits.steps) == (False, 9)


async def test_mistakes_are_explained() -> None:
    journal = MemoryJournal()
    await left_open(journal, "orders")
    with pytest.raises(NothingToDo, match="Did you mean orders"):
        await windlass.steer(journal, "order", "Hurry.")
    with pytest.raises(ConfigError, match="empty"):
        await windlass.steer(journal, "orders", " ")
    with pytest.raises(ConfigError, match="no limit"):
        await windlass.raise_limits(journal, "orders", RaisedLimits())


@pytest.mark.contract("D3")
async def test_a_root_is_known_by_its_facts_and_not_by_its_name() -> None:
    """D3: sessions may be named with slashes; only a sub-agent of an open call is not addressed."""
    journal = MemoryJournal()
    root = "team/invoices/7"
    below = f"{root}/c1_0"
    clerk = make_agent(None, call("look"), name="clerk")
    boss = Agent(
        ScriptedModel([call("clerk", {"task": "Look."})]), tools=[clerk.as_tool()], journal=journal
    )
    await boss.start("Go.", session=root)
    await asyncio.sleep(0.5)
    await windlass.steer(journal, root, "Hurry.")
    with pytest.raises(ConfigError, match=f"use session {root},"):
        await windlass.steer(journal, below, "Hurry.")
    await boss.aclose(cancel=True)
    assert await journal.list_abandoned() == []


@pytest.mark.contract("D5")
async def test_a_resume_withdraws_a_pause_that_nobody_has_taken() -> None:
    """D5: both are taken in order, so the run goes on and the record says why."""
    journal = MemoryJournal()
    await left_open(journal)
    await windlass.pause(journal, "s", "lunch", by="ada")
    await windlass.resume(journal, "s", by="bob")
    with pytest.raises(NothingToDo, match="not paused"):
        await windlass.resume(journal, "s")
    await windlass.pause(journal, "s", "tea", by="ada")
    result = await make_agent(journal, "Done.", limits=Limits(steps=2)).resume("s")
    assert result.outcome == "completed"
    told = [
        (type(fact), fact.by)
        for fact in await journal.read("s")
        if isinstance(fact, RunPaused | RunContinued)
    ]
    assert told == [
        (RunPaused, "ada"),
        (RunContinued, "bob"),
        (RunPaused, "ada"),
        (RunContinued, ""),
    ]


@pytest.mark.contract("D7")
async def test_a_prompt_is_begun_by_who_queued_it_when_a_run_of_another_agent_ends() -> None:
    """D7: `run` begins nothing after its own run, because its caller may be about to exit."""
    journal = MemoryJournal()
    first = make_agent(journal, call("look"), "First.")
    second = make_agent(journal, "Second.")
    running = asyncio.create_task(first.run("Go.", session="s"))
    await asyncio.sleep(0.5)
    handle = await second.start("Go on.", session="s", on_busy="queue")
    assert await count_queued(journal, ["s", "other"]) == {"s": 1}
    assert (await running).text == "First."
    async with asyncio.timeout(60):
        assert (await handle.result()).text == "Second."
    assert await count_queued(journal, ["s"]) == {}
