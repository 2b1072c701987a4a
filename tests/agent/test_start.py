"""Starting runs that nobody need wait for: handles, keys, and sessions that are busy."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from windlass import (
    Agent,
    AttemptDiscarded,
    ConfigError,
    Event,
    NothingToDo,
    RunEnded,
    RunStarted,
    RunUnfinished,
    SessionBusy,
    TextDelta,
    TextPart,
    tool,
)
from windlass.agent.runs import LiveRuns
from windlass.core.events import MailRefused, RunQueued
from windlass.core.fold.run import fold
from windlass.core.mail import PromptMail
from windlass.core.result import RunFailed
from windlass.core.state import State
from windlass.journals.leases import HeldLease
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import ScriptedModel, WaitingJournal, call, check_trace, drop, pause, say
from windlass.testing import fail as break_off


@tool(effect="read")
async def look() -> str:
    """Look at something for a while."""
    await asyncio.sleep(1)
    return "seen"


def make_agent(journal: Any, *script: Any, **options: Any) -> Agent[str]:
    return Agent(ScriptedModel(list(script)), tools=[look], journal=journal, **options)


@pytest.mark.contract("D1")
async def test_a_start_returns_once_the_run_is_durable_and_its_beginning_is_not_missed() -> None:
    """D1: the handle comes while the model has not said a word, and then shows everything."""
    journal = MemoryJournal()
    agent = make_agent(journal, call("look"), say("Done."))
    handle = await agent.start("Go.", session="s")
    facts = await journal.read("s")
    assert [type(fact) for fact in facts] == [RunStarted]
    assert (handle.session, handle.run, handle.is_queued) == ("s", 1, False)
    await asyncio.sleep(0.5)
    events = [event async for event in handle.events()]
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunEnded)
    check_trace(events)
    result = await handle.result()
    assert (result.outcome, result.text) == ("completed", "Done.")
    # After the end, everything is still there.
    assert [event async for event in handle.events()] == list(await journal.read("s"))
    assert [event async for event in handle.events(after=events[-1].seq)] == []


@pytest.mark.contract("D1")
async def test_cancelling_who_awaits_a_result_cancels_nothing() -> None:
    """D1: the run is a task of the agent."""
    agent = make_agent(MemoryJournal(), call("look"), say("Done."))
    handle = await agent.start("Go.")
    waiting = asyncio.create_task(handle.result())
    await asyncio.sleep(0.1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await handle.result()).outcome == "completed"


async def test_a_handle_cancels_its_run() -> None:
    agent = make_agent(MemoryJournal(), call("look"), say("Done."))
    handle = await agent.start("Go.")
    await handle.cancel("enough")
    result = await handle.result()
    assert (result.outcome, result.reason) == ("cancelled", "enough")


async def test_a_start_in_a_busy_session_is_refused() -> None:
    agent = make_agent(MemoryJournal(), call("look"), say("Done."))
    handle = await agent.start("Go.", session="s")
    with pytest.raises(SessionBusy):
        await agent.start("Again.", session="s")
    assert (await handle.result()).outcome == "completed"


async def test_a_run_that_fails_is_told_by_its_result() -> None:
    agent = make_agent(MemoryJournal(), break_off("auth"))
    handle = await agent.start("Go.")
    with pytest.raises(RunFailed):
        await handle.result()


@pytest.mark.contract("D1")
async def test_a_key_begins_one_run() -> None:
    """D1: the same key gives the same run, while it runs and after it, and names the session."""
    journal = MemoryJournal()
    agent = make_agent(journal, call("look"), say("Done."), name="clerk")
    first = await agent.start("Go.", key="order 7", caller="ada")
    again = await agent.start("Go.", key="order 7", caller="ada")
    assert (again.session, again.run) == (first.session, first.run)
    other_process = make_agent(journal, name="clerk")
    elsewhere = await other_process.start("Go.", key="order 7", caller="ada")
    results = [await handle.result() for handle in (first, again, elsewhere)]
    assert [result.text for result in results] == ["Done."] * 3
    late = await other_process.start("Go.", key="order 7", caller="ada")
    assert (await late.result()).text == "Done."
    assert (await other_process.run("Go.", key="order 7", caller="ada")).text == "Done."
    assert len([fact for fact in await journal.read(first.session) if fact_starts(fact)]) == 1
    with pytest.raises(ConfigError, match="another prompt"):
        await agent.start("Something else.", key="order 7", caller="ada")


def fact_starts(fact: Event) -> bool:
    return isinstance(fact, RunStarted)


@pytest.mark.contract("D1")
async def test_a_key_is_compared_with_the_masked_prompt() -> None:
    """D1: the journal holds the prompt without its secrets, and it is the same prompt."""
    journal = MemoryJournal()
    agent = make_agent(journal, say("Done."), secrets={"door": "xyzzy-plugh-9"})
    first = await agent.start("The word is xyzzy-plugh-9.", key="k")
    await first.result()
    again = await agent.start("The word is xyzzy-plugh-9.", key="k")
    assert (await again.result()).text == "Done."


@pytest.mark.contract("D1")
async def test_a_key_whose_process_died_is_driven_by_who_asks_again() -> None:
    """D1: a client that tries again gets its run finished."""
    journal = MemoryJournal()
    dying = make_agent(journal, call("look"))
    handle = await dying.start("Go.", key="k")
    await asyncio.sleep(0.5)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.1)
    agent = make_agent(journal, say("Done."))
    again = await agent.start("Go.", key="k")
    assert (again.session, again.run) == (handle.session, 1)
    assert (await again.result()).text == "Done."


@pytest.mark.contract("D7")
async def test_a_queue_is_worked_off_in_order() -> None:
    """D7: prompts wait durably, and each begins when the run before it has ended."""
    journal = MemoryJournal()
    agent = make_agent(journal, call("look"), say("One."), say("Two."), say("Three."))
    first = await agent.start("1", session="s")
    second = await agent.start("2", session="s", on_busy="queue", labels=["untrusted"])
    third = await agent.start("3", session="s", on_busy="queue")
    assert (second.is_queued, await second.queue_place(), await third.queue_place()) == (True, 1, 2)
    with pytest.raises(NothingToDo, match="queue"):
        await third.pause()
    texts = [(await handle.result()).text for handle in (third, second, first)]
    assert texts == ["Three.", "Two.", "One."]
    assert (third.run, await third.queue_place()) == (3, 0)
    state = fold("s", await journal.read("s"))
    assert "untrusted" in state.labels
    await asyncio.sleep(0.1)
    assert await journal.read_mail("s", "prompts") == ()
    events = [event async for event in second.events()]
    assert isinstance(events[0], RunQueued)
    assert isinstance(events[1], RunStarted)
    assert (events[0].run, events[0].mail) == (2, 1)


@pytest.mark.contract("D7")
async def test_a_caller_that_is_cancelled_leaves_its_prompt_in_the_queue() -> None:
    """D7: the run has not begun, so there is nothing to cancel, and the caller is told so."""
    journal = MemoryJournal()
    agent = make_agent(journal, call("look"), say("One."), say("Two."))
    await agent.start("1", session="s")
    waiting = asyncio.create_task(agent.run("2", session="s", on_busy="queue"))
    await asyncio.sleep(0.1)
    assert len(await journal.read_mail("s", "prompts")) == 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(5)
    ends = [fact.outcome for fact in await journal.read("s") if isinstance(fact, RunEnded)]
    assert ends == ["completed", "completed"]


@pytest.mark.contract("C1")
@pytest.mark.parametrize("options", [{}, {"key": "k"}, {"on_busy": "queue"}], ids=str)
@pytest.mark.parametrize("after_ms", range(0, 60, 5))
async def test_a_run_ends_before_its_cancelled_caller_is_told(after_ms: int, options: Any) -> None:
    """C1: however it was started, also before its first record, and nothing comes after."""
    store = MemoryJournal()
    agent = make_agent(WaitingJournal(store, 0.01), call("look"), say("Done."))
    running = asyncio.create_task(agent.run("Go.", session="s", **options))
    await asyncio.sleep(after_ms / 1000)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    facts = await store.read("s")
    assert [fact.outcome for fact in facts if isinstance(fact, RunEnded)] in ([], ["cancelled"])
    assert not fold("s", facts).is_active
    await asyncio.sleep(5)
    assert await store.read("s") == facts


@pytest.mark.contract("D7")
async def test_a_free_session_begins_a_prompt_at_once() -> None:
    """D7: queueing in a session that is free, and new, is a start like any other."""
    agent = make_agent(MemoryJournal(), say("Done."))
    result = await agent.run("Go.", session="s", on_busy="queue")
    assert result.text == "Done."


@pytest.mark.contract("D7")
async def test_a_queued_prompt_with_a_key_waits_once() -> None:
    """D7, D1: the same key is queued once, and the run it begins has the key."""
    journal = MemoryJournal()
    agent = make_agent(journal, call("look"), say("One."), say("Two."))
    await agent.start("1", session="s")
    second = await agent.start("2", session="s", on_busy="queue", key="k")
    again = await agent.start("2", session="s", on_busy="queue", key="k")
    assert await again.queue_place() == 1
    assert (await again.result()).text == (await second.result()).text == "Two."
    assert (await (await agent.start("2", session="s", key="k")).result()).text == "Two."


@pytest.mark.contract("D7")
async def test_a_prompt_replaces_the_open_run() -> None:
    """D7: the open run ends as cancelled, then the new one begins."""
    agent = make_agent(MemoryJournal(), call("look"), say("Two."))
    first = await agent.start("1", session="s")
    second = await agent.start("2", session="s", on_busy="replace")
    assert (await first.result()).outcome == "cancelled"
    assert (await second.result()).text == "Two."


@pytest.mark.contract("D7")
async def test_a_run_that_nobody_drives_is_replaced_too() -> None:
    """D7: nothing but the journal is needed to end it."""
    journal = MemoryJournal()
    dying = make_agent(journal, call("look"))
    await dying.start("1", session="s")
    await asyncio.sleep(0.5)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.1)
    agent = make_agent(journal, say("Two."))
    with pytest.raises(RunUnfinished):
        await agent.run("2", session="s")
    assert (await agent.run("2", session="s", on_busy="replace")).text == "Two."


@pytest.mark.contract("D8")
async def test_driving_does_what_is_needed_and_then_nothing() -> None:
    """D8: it goes on with the open run, begins what is queued, and is idempotent."""
    journal = MemoryJournal()
    dying = make_agent(journal, call("look"))
    await dying.start("1", session="s")
    await asyncio.sleep(0.5)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.1)
    await journal.post_mail("s", PromptMail(prompt=(TextPart("2"),)))
    agent = make_agent(journal, say("One."), say("Two."))
    result = await agent.drive("s")
    assert result is not None
    assert (result.run, result.text) == (2, "Two.")
    size = len(await journal.read("s"))
    assert (await agent.drive("s")) is not None
    assert len(await journal.read("s")) == size
    with pytest.raises(NothingToDo, match="no session"):
        await agent.drive("t")


class LateLease(MemoryJournal):
    """Another driver does all the work between the first look at a session and its lease."""

    rival: Agent[str] | None = None

    @override
    async def lease(self, session: str) -> HeldLease:
        rival = self.rival
        self.rival = None
        if rival is not None:
            await rival.drive(session)
        return await super().lease(session)


@pytest.mark.contract("D8")
async def test_driving_what_another_driver_has_just_finished_is_no_error() -> None:
    """D8: the run has ended, or the prompt was begun, before this one had the lease."""
    journal = LateLease()
    prompt = PromptMail(prompt=(TextPart("Go."),))
    await journal.post_mail("s", prompt)
    journal.rival = make_agent(journal, "Done.")
    result = await make_agent(journal).drive("s")
    assert result is not None
    assert (result.text, result.run) == ("Done.", 1)
    await make_agent(journal, call("look")).start("Go on.", session="s")
    await asyncio.sleep(0.5)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.1)
    journal.rival = make_agent(journal, "Done too.")
    result = await make_agent(journal).drive("s")
    assert result is not None
    assert (result.text, result.run) == ("Done too.", 2)


@pytest.mark.contract("D8")
async def test_driving_begins_a_session_that_has_only_a_prompt() -> None:
    """D8: a prompt may be the first message of a session."""
    journal = MemoryJournal()
    await journal.post_mail("s", PromptMail(prompt=(TextPart("1"),), key="k"))
    await journal.post_mail("s", PromptMail(prompt=(TextPart("1"),), key="k"))
    agent = make_agent(journal, say("One."))
    result = await agent.drive("s")
    assert result is not None
    assert result.text == "One."
    # The second one was posted without the key of the mailbox, and is refused by its own.
    facts = await journal.read("s")
    assert [fact.reason for fact in facts if isinstance(fact, MailRefused)] == [
        "a run with the same key has begun already"
    ]


@pytest.mark.contract("S6")
async def test_who_watches_does_not_decide_what_happens_to_a_broken_reply() -> None:
    """S6: a run that was started asks again, although a watcher saw the text."""
    agent = make_agent(MemoryJournal(), [say("Half a"), pause(1), drop()], say("Done."))
    handle = await agent.start("Go.", session="s")
    events = [event async for event in handle.events()]
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert text == "Half aDone."
    assert any(isinstance(event, AttemptDiscarded) for event in events)
    assert (await handle.result()).text == "Done."


@pytest.mark.contract("S6")
async def test_a_prompt_in_the_queue_keeps_its_choice_about_broken_replies() -> None:
    """S6: the setting is part of the start, also of one that waits for its turn."""
    broken = [say("Half a"), drop()]
    agent = make_agent(MemoryJournal(), [pause(1), say("First.")], broken, "Never asked for.")
    first = await agent.start("Go.", session="s")
    second = await agent.start("On.", session="s", on_busy="queue", on_partial="fail")
    assert (await first.result()).text == "First."
    events = [event async for event in second.events()]
    started = next(event for event in events if isinstance(event, RunStarted))
    assert started.on_partial == "fail"
    with pytest.raises(RunFailed) as failed:
        await second.result()
    assert failed.value.result.partial_text == "Half a"


@pytest.mark.slow
@pytest.mark.realtime
async def test_handles_work_on_a_file(tmp_path: Path) -> None:
    """D1: the same with a journal in a file, watched by another agent."""
    with SqliteJournal(tmp_path / "s.db") as journal:
        agent = Agent(ScriptedModel([say("Done.")]), journal=journal)
        handle = await agent.start("Go.", key="k")
        with SqliteJournal(tmp_path / "s.db") as other:
            again = await Agent(ScriptedModel([]), journal=other).start("Go.", key="k")
            assert (await again.result()).text == "Done."
        assert (await handle.result()).text == "Done."


async def test_a_key_whose_run_ends_while_it_is_looked_up_is_told_of_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D1: the run was open when it was read, and is over when its session is free."""
    journal = MemoryJournal()
    agent = make_agent(journal, say("Done."))
    handle = await agent.start("Go.", session="s", key="order 7")
    still_open = fold("s", await journal.read("s"))
    assert still_open.is_active
    await handle.result()
    await agent.aclose()

    async def read_state(*_: object) -> State:
        monkeypatch.undo()
        return still_open

    monkeypatch.setattr(LiveRuns, "read_state", read_state)
    again = await make_agent(journal).start("Go.", session="s", key="order 7")
    assert (again.run, (await again.result()).text) == (1, "Done.")
