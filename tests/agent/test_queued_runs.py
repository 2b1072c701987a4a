"""A run between its acceptance and its first driver, in every store."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import windlass
from line_store import LineStore
from windlass import Agent, NothingToDo, RunEnded, tool
from windlass.core.errors import IllegalFact, MailRejected, RunUnfinished
from windlass.core.events import (
    Fact,
    PromptWithdrawn,
    RunContinued,
    RunPaused,
    RunQueued,
    RunStarted,
    SteeringGiven,
)
from windlass.core.fold.run import fold
from windlass.core.mail import PromptMail
from windlass.core.messages import TextPart
from windlass.core.projection.project import project_events
from windlass.core.state import State
from windlass.journals.completing import CompletedJournal, complete_journal
from windlass.journals.forking import fork
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.ports import Journal
from windlass.runtime.leases import hold_session
from windlass.runtime.mailbox import read_queue
from windlass.testing import ScriptedModel, call, say

CANARY = "sk-live-4f7b1e9d2c6a8035"
STORES = ("memory", "sqlite", "own", pytest.param("postgres", marks=pytest.mark.slow))


@asynccontextmanager
async def open_store(kind: str, folder: Path) -> AsyncGenerator[Journal]:
    """Yield a journal of each kind; `own` is a program's store that only reads and appends."""
    if kind == "memory":
        yield MemoryJournal()
    elif kind == "sqlite":
        with SqliteJournal(folder / "journal.db") as journal:
            yield journal
    elif kind == "own":
        yield complete_journal(LineStore(folder))
    else:
        # Imported here: the server is not needed for the other stores.
        from postgres import dsn_of  # noqa: PLC0415
        from windlass.journals.postgres.journal import PostgresJournal  # noqa: PLC0415

        async with PostgresJournal(await asyncio.to_thread(dsn_of, folder)) as journal:
            yield journal


@pytest.fixture(scope="session", autouse=True)
def stop_at_the_end() -> Any:
    """End the server of the tests, if one of them has started it."""
    yield
    postgres = pytest.importorskip("postgres")
    if postgres.start_server.cache_info().currsize:
        postgres.stop_server()


Scene = Callable[[Journal], Coroutine[None, None, None]]


def on_every_store(scene: Scene) -> Callable[..., None]:
    """Make a test of a scene that runs on a journal of each kind, in real time."""

    @pytest.mark.parametrize("store", STORES)
    def run_scene(store: str, tmp_path: Path) -> None:
        async def play() -> None:
            async with open_store(store, tmp_path) as journal:
                await scene(journal)

        asyncio.run(play())

    run_scene.__name__ = scene.__name__
    run_scene.__doc__ = scene.__doc__
    return run_scene


def lists(journal: Journal) -> bool:
    """Whether a journal lists its sessions: a program's own store does not."""
    return not isinstance(journal, CompletedJournal)


@tool(effect="read")
async def look() -> str:
    """Look at something."""
    return "seen"


def make_agent(journal: Journal, *script: Any, **options: Any) -> Agent[str]:
    return Agent(ScriptedModel(list(script)), tools=[look], journal=journal, **options)


async def accept(journal: Journal, *script: Any, **options: Any) -> Agent[str]:
    """Accept a run that this process does not drive, and return its agent."""
    agent = make_agent(journal, *script)
    given = {"caller": "ann", "context": {"tenant": "north"}, **options}
    await agent.start("Go.", session="s", drive=False, **given)
    return agent


async def read_state(journal: Journal) -> State:
    return fold("s", await journal.read("s"))


def kinds(facts: Any) -> list[type[Fact]]:
    return [type(fact) for fact in facts]


@pytest.mark.contract("D14")
@on_every_store
async def test_a_run_exists_once_it_is_accepted(journal: Journal) -> None:
    """D14: it is on record, is read, listed, watched, and then begun under the same number."""
    agent = make_agent(journal, say("Done."))
    handle = await agent.start("Go.", session="s", drive=False, caller="ann", key="k")
    (queued,) = await journal.read("s")
    assert isinstance(queued, RunQueued)
    assert (queued.run, queued.mail, queued.caller, queued.key) == (1, 1, "ann", "k")
    assert queued.session_id
    assert (handle.run, handle.is_queued, await handle.queue_place()) == (1, True, 1)
    view = project_events([queued], "s")
    assert view.run is not None
    assert (view.run.queued, view.status.waits_for) == (True, "driver")
    if lists(journal):
        (row,) = await journal.sessions(state="queued", caller="ann")
        assert (row.session, row.title, row.runs) == ("s", "", 1)
    seen = asyncio.create_task(collect(handle))
    result = await agent.drive("s")
    assert result is not None
    assert (result.text, result.run) == ("Done.", 1)
    events = [event for event in await seen if not event.nth]
    assert kinds(events)[:2] == [RunQueued, RunStarted]
    assert isinstance(events[-1], RunEnded)
    assert not await journal.read_mail("s", "prompts")
    again = await agent.start("Go.", session="s", drive=False, caller="ann", key="k")
    assert (again.run, again.is_queued) == (1, False)


async def collect(handle: Any) -> list[Any]:
    return [event async for event in handle.events()]


@pytest.mark.contract("D14")
@on_every_store
async def test_a_queued_run_is_cancelled_without_any_driver(journal: Journal) -> None:
    """D14: its end names its prompt, which no driver begins any more."""
    agent = await accept(journal, say("Never."), key="k")
    receipt = await windlass.cancel(journal, "s", "because of xyzzy", by="ada")
    end = await receipt.taken()
    assert isinstance(end, RunEnded)
    assert (end.outcome, end.by, end.prompt) == ("cancelled", "ada", 1)
    assert kinds(await journal.read("s")) == [RunQueued, RunEnded]
    assert (await read_state(journal)).prompts_taken == 1
    assert not await journal.read_mail("s", "prompts")
    assert not lists(journal) or await journal.list_mailed() == []
    result = await agent.drive("s")
    assert result is not None
    assert (result.outcome, result.messages) == ("cancelled", ())
    # The key has begun its run: it never begins a second one.
    handle = await agent.start("Go.", session="s", drive=False, caller="ann", key="k")
    assert (await handle.result()).outcome == "cancelled"
    assert len(await journal.read("s")) == 2


@pytest.mark.contract("D14")
@on_every_store
async def test_a_queued_run_is_paused_and_resumed_without_any_driver(journal: Journal) -> None:
    """D14, D5: no driver begins it in its pause, and the time in the queue is no working time."""
    agent = await accept(journal, say("Done."))
    paused = await (await windlass.pause(journal, "s", f"no {CANARY}", by="ada")).taken()
    assert isinstance(paused, RunPaused)
    # Without the agent, it is unknown which secrets the reason holds.
    assert (paused.by, paused.reason) == ("ada", "")
    if lists(journal):
        assert [row.session for row in await journal.sessions(state="paused")] == ["s"]
        assert (await agent.sweep()).driven == ()
    await agent.drive("s")
    assert kinds(await journal.read("s")) == [RunQueued, RunPaused]
    continued = await (await windlass.resume(journal, "s", by="bob")).taken()
    assert isinstance(continued, RunContinued)
    result = await agent.drive("s")
    assert result is not None
    assert (result.outcome, result.text) == ("completed", "Done.")


@pytest.mark.contract("D14")
@on_every_store
async def test_a_queued_run_is_steered_and_the_steering_is_read_first(journal: Journal) -> None:
    """D14, D4: what is said while it waits is taken when a driver begins it."""
    agent = await accept(journal, say("Done."))
    receipt = await windlass.steer(journal, "s", "And hurry.", by="ada")
    await agent.steer("s", "Please.")
    result = await agent.drive("s")
    assert result is not None
    assert isinstance(await receipt.taken(), SteeringGiven)
    texts = [getattr(message, "text", "") for message in result.messages]
    assert texts[0] == "Go."
    assert set(texts[1:3]) == {"And hurry.", "Please."}


@pytest.mark.contract("D14")
@on_every_store
async def test_a_prompt_behind_a_run_becomes_a_run_with_its_end(journal: Journal) -> None:
    """D14: the append that ends the run before it makes it one, whoever drives it then."""
    agent = make_agent(journal, call("look"), say("One."), say("Two."))
    await agent.start("1", session="s", drive=False)
    second = await agent.start("2", session="s", drive=False, on_busy="queue", caller="bob")
    assert (second.run, second.is_queued, await second.queue_place()) == (0, True, 2)
    with pytest.raises(NothingToDo, match="behind another run"):
        await second.cancel()
    with pytest.raises(RunUnfinished, match="has not ended"):
        await agent.start("3", session="s", drive=False)
    before = len(await journal.read("s"))
    assert before == 1
    assert (await agent.drive("s")) is not None
    facts = await journal.read("s")
    at = kinds(facts).index(RunEnded)
    assert kinds(facts)[at : at + 3] == [RunEnded, RunQueued, RunStarted]
    assert (await second.result()).text == "Two."
    assert second.run == 2


@pytest.mark.contract("D14")
@on_every_store
async def test_a_cancel_queues_the_prompt_behind(journal: Journal) -> None:
    """D14: also if no process drives anything."""
    agent = await accept(journal)
    await agent.start("2", session="s", drive=False, on_busy="queue")
    await windlass.cancel(journal, "s")
    facts = await journal.read("s")
    assert kinds(facts) == [RunQueued, RunEnded, RunQueued]
    state = fold("s", facts)
    assert state.run is not None
    assert (state.run.number, state.is_queued, state.prompts_taken) == (2, True, 1)


@pytest.mark.contract("D14")
@on_every_store
async def test_a_prompt_behind_a_run_is_withdrawn_by_its_number(journal: Journal) -> None:
    """D14: those beside it begin as before."""
    agent = make_agent(journal, say("One."), say("Three."))
    await agent.start("1", session="s", drive=False)
    second = await agent.start("2", session="s", drive=False, on_busy="queue")
    third = await agent.start("3", session="s", drive=False, on_busy="queue")
    assert await third.queue_place() == 3
    await windlass.withdraw_prompt(journal, "s", second.prompt_number, by="ada")
    assert await third.queue_place() == 2
    numbers = [letter.number for letter in await read_queue(journal, await read_state(journal))]
    assert numbers == [1, 3]
    with pytest.raises(NothingToDo, match="does not wait"):
        await windlass.withdraw_prompt(journal, "s", second.prompt_number)
    await agent.drive("s")
    assert (await third.result()).text == "Three."
    with pytest.raises(MailRejected, match="withdrawn"):
        await second.result()
    begun = [fact.run for fact in await journal.read("s") if isinstance(fact, RunStarted)]
    assert begun == [1, 2]


@pytest.mark.contract("D14")
async def test_a_driver_takes_a_withdrawal_while_it_works() -> None:
    journal = MemoryJournal()
    agent = make_agent(journal, call("look"), say("One."))
    first = await agent.start("1", session="s")
    second = await agent.start("2", session="s", on_busy="queue")
    receipt = await windlass.withdraw_prompt(journal, "s", second.prompt_number, by="ada")
    taken = await receipt.taken(5)
    assert isinstance(taken, PromptWithdrawn)
    assert (taken.prompt, taken.by) == (1, "ada")
    assert (await first.result()).text == "One."
    await agent.drive("s")
    assert await journal.list_mailed() == []
    assert (await read_state(journal)).runs == 1


@pytest.mark.contract("D14")
async def test_the_prompt_of_a_queued_run_stays_mail_until_its_driver_masks_it() -> None:
    """D14, S2: neither the fact, nor the title, nor the row has it."""
    journal = MemoryJournal()
    agent = make_agent(journal, say("Done."))
    # Posted by a program that does not know the secrets of the agent.
    await journal.post_mail("s", PromptMail(prompt=(TextPart(f"Use {CANARY}."),)))
    await agent.start("Next.", session="s", drive=False, on_busy="queue")
    (queued,) = await journal.read("s")
    assert isinstance(queued, RunQueued)
    assert queued.mail == 1
    assert CANARY not in str(queued)
    assert (await read_state(journal)).title == ""


@pytest.mark.contract("D14")
async def test_a_session_that_a_driver_holds_leaves_the_prompt_as_mail() -> None:
    """D14: only the holder of the lease writes, until it is free again."""
    journal = MemoryJournal()
    agent = make_agent(journal, say("Done."))
    with await hold_session(journal, "s"):
        starting = asyncio.create_task(agent.start("Go.", session="s", drive=False))
        await asyncio.sleep(0.1)
        assert await journal.read("s") == ()
        assert len(await journal.read_mail("s", "prompts")) == 1
    handle = await starting
    assert kinds(await journal.read("s")) == [RunQueued]
    assert handle.run == 1


@pytest.mark.contract("D14")
async def test_a_run_that_begins_where_it_is_accepted_costs_no_append_more() -> None:
    journal = MemoryJournal()
    await make_agent(journal, say("Done.")).run("Go.", session="s")
    assert RunQueued not in kinds(await journal.read("s"))


@pytest.mark.contract("D14")
async def test_resume_begins_a_queued_run_and_ends_its_pause() -> None:
    journal = MemoryJournal()
    agent = await accept(journal, say("Done."))
    await windlass.pause(journal, "s")
    assert (await agent.resume("s")).text == "Done."


async def test_a_fork_takes_no_prompt_along() -> None:
    """The copy of a queued run ends: its prompt is in the mailbox of the other session."""
    journal = MemoryJournal()
    await accept(journal, key="k")
    name = await fork(journal, "s", 1)
    state = fold(name, await journal.read(name))
    assert state.run is not None
    assert (state.is_active, state.run.outcome) == (False, "cancelled")
    assert (await read_state(journal)).is_queued


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ([RunQueued(1, 1), RunQueued(2, 2)], "has not ended"),
        ([RunQueued(1, 1), RunStarted(1, (), mail=2)], "waits in the queue before it"),
        ([RunQueued(1, 1), RunStarted(2, (), mail=1)], "waits in the queue before it"),
        ([RunQueued(1, 1), RunEnded("cancelled")], "must name the prompt"),
        ([RunQueued(1, 1), PromptWithdrawn(1)], "cancel that one"),
        ([PromptWithdrawn(1), RunQueued(1, 1)], "was taken already"),
        ([PromptWithdrawn(1), PromptWithdrawn(1)], "was taken already"),
    ],
)
def test_the_fold_refuses_what_a_queue_cannot_do(facts: list[Fact], why: str) -> None:
    numbered = [replace(fact, seq=at, at=float(at)) for at, fact in enumerate(facts, 1)]
    with pytest.raises(IllegalFact, match=why):
        fold("s", numbered)


def test_time_in_the_queue_is_no_working_time() -> None:
    """D14, L7: a run that waited for an hour has worked for no second of it."""
    queued = RunQueued(1, 1, seq=1, at=1_000.0)
    paused = RunPaused(seq=2, at=2_000.0)
    ended = RunEnded("cancelled", prompt=1, seq=3, at=5_000.0)
    state = fold("s", [queued, paused, ended])
    assert (state.elapsed_s, state.run.elapsed_s if state.run else None) == (0.0, 0.0)
