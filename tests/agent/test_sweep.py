"""Sweeping: whatever nobody drives is driven, by its own agent, and never for ever in vain."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

import windlass
from windlass import Agent, Ask, ConfigError, RunResumed, RunStarted, TextPart, tool
from windlass.core.events import MailRefused, RunContinued, RunPaused, RunReleased
from windlass.core.fold.run import fold
from windlass.core.mail import CancelMail, PromptMail
from windlass.core.messages import UserMessage
from windlass.journals.memory import MemoryJournal
from windlass.testing import FixedGate, ScriptedModel, VirtualClock, call, say, stall
from windlass.testing.journals import append_facts


@tool(effect="read")
async def look() -> str:
    """Look at something for a while."""
    await asyncio.sleep(1)
    return "seen"


def make_agent(journal: Any, *script: Any, name: str = "clerk", **options: Any) -> Agent[str]:
    model = ScriptedModel(list(script))
    return Agent(model, tools=[look], journal=journal, name=name, **options)


async def left_open(
    journal: Any, session: str, name: str = "clerk", *, script: Any = None, **options: Any
) -> None:
    """A run whose process has died, by default in a call."""
    agent = make_agent(journal, script or call("look"), name=name, **options)
    await agent.start("Go.", session=session)
    await asyncio.sleep(0.5)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.1)


@pytest.mark.contract("D8")
async def test_a_sweep_drives_what_nobody_drives() -> None:
    """D8: open runs and queued prompts of this agent, and nothing twice."""
    journal = MemoryJournal()
    await left_open(journal, "a")
    await left_open(journal, "other", name="cook")
    await journal.post_mail("b", PromptMail(prompt=(TextPart("Go."),)))
    agent = make_agent(journal, say("Done."), say("Done."))
    report = await agent.sweep(at_once=1)
    assert sorted(report.driven) == ["a", "b"]
    assert (await agent.sweep()).driven == ()
    assert fold("other", await journal.read("other")).is_active


async def test_a_session_that_is_driven_is_left_alone() -> None:
    journal = MemoryJournal()
    agent = make_agent(journal, call("look"), say("Done."))
    handle = await agent.start("Go.", session="a")
    assert (await agent.sweep()).driven == ()
    assert (await handle.result()).outcome == "completed"


async def test_another_configuration_is_not_taken() -> None:
    journal = MemoryJournal()
    await left_open(journal, "a", instructions="Be brief.")
    agent = make_agent(journal, say("Done."))
    assert (await agent.sweep()).skipped == ("a",)


@pytest.mark.contract("D8")
async def test_a_session_that_leads_nowhere_is_parked_until_somebody_resumes_it() -> None:
    """D8, D5: the facts count the tries, so that it holds across processes that die."""
    journal = MemoryJournal()
    await left_open(journal, "a", script=stall())
    for _ in range(2):
        state = fold("a", await journal.read("a"))
        await append_facts(journal, "a", [RunResumed(seq=state.seq + 1, at=state.at)])
    agent = make_agent(journal, say("Done."))
    assert (await agent.sweep(tries_max=3)).parked == ("a",)
    pauses = [fact for fact in await journal.read("a") if isinstance(fact, RunPaused)]
    assert "3 drivers" in pauses[0].reason
    report = await agent.sweep(tries_max=3)
    assert (report.driven, report.parked) == ((), ())
    await windlass.resume(journal, "a", by="ada")
    assert (await agent.sweep(tries_max=3)).driven == ("a",)


@pytest.mark.contract("D8", "D2")
async def test_a_run_that_drivers_let_go_of_is_not_parked() -> None:
    """A long call that outlives one deploy after the other is no poison: only deaths count."""
    journal = MemoryJournal()
    await left_open(journal, "a", script=stall())
    for number in range(8):
        state = fold("a", await journal.read("a"))
        facts: list[Any] = [RunResumed(seq=state.seq + 1, at=state.at)]
        if number % 4:
            facts.append(RunReleased("deployed", seq=state.seq + 2, at=state.at))
        await append_facts(journal, "a", facts)
    run = fold("a", await journal.read("a")).run
    assert run is not None
    assert len(run.fruitless) == 3
    assert (await make_agent(journal, say("Done.")).sweep(tries_max=4)).driven == ("a",)


@pytest.mark.contract("D8")
async def test_a_root_may_have_any_name_and_a_sub_agent_is_known_by_its_facts() -> None:
    """D8: a slash in a name proves nothing; only the caller's run drives a sub-agent."""
    journal = MemoryJournal()
    root = "eval/greeting/polite/3"
    await left_open(journal, root)
    below = f"{root}/c1_0"
    (first, *_) = await journal.read(root)
    assert isinstance(first, RunStarted)
    await append_facts(journal, below, [replace(first, parent=below)])
    await journal.post_mail(below, PromptMail(prompt=(TextPart("More."),)))
    report = await make_agent(journal, say("Done.")).sweep()
    assert report.driven == (root,)
    assert report.skipped == (below,)


async def test_a_corrupt_session_does_not_stop_the_sweep() -> None:
    journal = MemoryJournal()
    await left_open(journal, "a")
    await left_open(journal, "b")
    state = fold("b", await journal.read("b"))
    await append_facts(journal, "b", [RunContinued(seq=state.seq + 1, at=state.at)])
    report = await make_agent(journal, say("Done.")).sweep()
    assert (report.driven, report.failed) == (("a",), ("b",))


@pytest.mark.contract("D8")
async def test_a_prompt_is_left_to_the_agent_that_it_names() -> None:
    """D8, F1: a start that drives nothing is begun by a sweep of its own agent, in order."""
    journal = MemoryJournal()
    clerk = make_agent(journal, say("From the clerk."), say("Again."))
    cook = make_agent(journal, say("From the cook."), name="cook")
    first = await clerk.start("1", session="s", drive=False)
    second = await cook.start("2", session="s", drive=False, on_busy="queue")
    third = await clerk.start("3", session="s", drive=False, on_busy="queue")
    assert (await cook.sweep()).driven == ()
    assert (await clerk.sweep()).driven == ("s",)
    assert (await first.result()).text == "From the clerk."
    assert third.is_queued
    assert (await clerk.sweep()).driven == ()
    assert (await cook.sweep()).driven == ("s",)
    assert (await clerk.sweep()).driven == ("s",)
    texts = [(await each.result()).text for each in (second, third)]
    assert texts == ["From the cook.", "Again."]


@pytest.mark.contract("D1")
async def test_a_key_is_begun_once_although_nobody_here_drives_it() -> None:
    """D1: the same key gives the same prompt in the queue, and then the same run."""
    journal = MemoryJournal()
    agent = make_agent(journal, say("Done."))
    first = await agent.start("Go.", key="k", drive=False)
    again = await agent.start("Go.", key="k", drive=False)
    assert (again.session, await again.queue_place()) == (first.session, 1)
    with pytest.raises(ConfigError, match="another prompt"):
        await agent.start("Stop.", key="k", drive=False)
    assert (await agent.sweep()).driven == (first.session,)
    late = await agent.start("Go.", key="k", drive=False)
    assert (late.run, (await late.result()).text) == (1, "Done.")


async def test_a_prompt_that_others_begin_may_bring_a_conversation_to_a_new_session() -> None:
    journal = MemoryJournal()
    agent = make_agent(journal, say("As I said."))
    earlier = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    handle = await agent.start("And?", session="s", messages=earlier, drive=False)
    with pytest.raises(ConfigError, match="already has a conversation"):
        await agent.start("And?", session="s", messages=earlier, drive=False, on_busy="queue")
    assert (await agent.sweep()).driven == ("s",)
    messages = (await handle.result()).messages
    assert [getattr(message, "text", "") for message in messages] == [
        "Hi.",
        "Hello.",
        "And?",
        "As I said.",
    ]


async def test_a_conversation_for_a_session_that_has_one_is_refused() -> None:
    """D4: also if both were posted when the session was new."""
    journal = MemoryJournal()
    agent = make_agent(journal, say("Done."))
    prompt = (TextPart("Go."),)
    await journal.post_mail("s", PromptMail(prompt=prompt))
    earlier = (UserMessage((TextPart("Hi."),)),)
    await journal.post_mail("s", PromptMail(prompt=prompt, earlier=earlier))
    assert (await agent.sweep()).driven == ("s",)
    refused = [fact for fact in await journal.read("s") if isinstance(fact, MailRefused)]
    assert [fact.reason for fact in refused] == [
        "it brings a conversation, and the session has one of its own already"
    ]


EXPIRES_S = 60.0


async def left_waiting(
    journal: Any, clock: VirtualClock, session: str, name: str = "clerk"
) -> None:
    """A run that waits for an answer, within a minute."""
    gate = FixedGate(Ask("May I?", expires_at=clock.now() + EXPIRES_S))
    agent = make_agent(journal, call("look"), name=name, gate=gate, clock=clock)
    assert (await agent.run("Go.", session=session)).outcome == "suspended"


@pytest.mark.contract("D8", "G5")
async def test_a_question_that_nobody_answered_in_time_is_denied_by_a_sweep(
    clock: VirtualClock,
) -> None:
    """The session waits, so nothing but the clock says that somebody must come for it."""
    journal = MemoryJournal()
    await left_waiting(journal, clock, "a")
    await left_waiting(journal, clock, "other", name="cook")
    agent = make_agent(journal, say("Then not."), gate=FixedGate(Ask("May I?")), clock=clock)
    assert (await agent.sweep()).driven == ()
    await asyncio.sleep(EXPIRES_S + 1)
    assert (await agent.sweep()).driven == ("a",)
    state = fold("a", await journal.read("a"))
    assert state.run is not None
    assert state.run.outcome == "completed"
    assert fold("other", await journal.read("other")).is_waiting


@pytest.mark.contract("F8")
async def test_a_waiting_session_is_not_read_until_its_question_expires(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F8: a look costs nothing for what waits."""
    journal = MemoryJournal()
    for number in range(5):
        await left_waiting(journal, clock, f"s{number}")
    reads = list[str]()
    read = journal.read

    async def note_read(session: str, after: int = 0) -> Any:
        reads.append(session)
        return await read(session, after)

    monkeypatch.setattr(journal, "read", note_read)
    replies = [say("Then not.") for _ in range(5)]
    agent = make_agent(journal, *replies, gate=FixedGate(Ask("May I?")), clock=clock)
    for _ in range(9):
        assert (await agent.sweep()).driven == ()
    assert reads == []
    await asyncio.sleep(EXPIRES_S + 1)
    driven = (await agent.sweep()).driven
    assert sorted(driven) == [f"s{number}" for number in range(5)]


@pytest.mark.contract("D8")
async def test_sessions_of_others_do_not_keep_a_sweep_from_its_own() -> None:
    """The limit counts the sessions of this agent."""
    journal = MemoryJournal()
    await left_open(journal, "a")
    for number in range(3):
        await left_open(journal, f"other{number}", name="cook")
    agent = make_agent(journal, say("Done."))
    assert (await agent.sweep(limit=2)).driven == ("a",)


@pytest.mark.contract("D8")
async def test_messages_for_others_do_not_keep_a_sweep_from_its_own() -> None:
    """As above, with prompts that nobody has begun: the oldest are for another agent."""
    journal = MemoryJournal()
    for number in range(3):
        await make_agent(journal, name="cook").start("Go.", session=f"other{number}", drive=False)
    clerk = make_agent(journal, say("Done."))
    await clerk.start("Go.", session="a", drive=False)
    assert (await clerk.sweep(limit=2)).driven == ("a",)


@pytest.mark.contract("D8")
async def test_a_message_is_heeded_although_a_prompt_for_another_agent_waits_behind_it(
    clock: VirtualClock,
) -> None:
    """No prompt begins while a run is open, so what was posted is for the agent of that run."""
    journal = MemoryJournal()
    await left_waiting(journal, clock, "a")
    cook = make_agent(journal, name="cook")
    await cook.start("Go.", session="a", drive=False, on_busy="queue")
    # Posted to a driver that was killed before it took the message.
    await journal.post_mail("a", CancelMail("enough", run=1))
    agent = make_agent(journal, say("Then not."), gate=FixedGate(Ask("May I?")), clock=clock)
    assert (await agent.sweep()).driven == ("a",)
    state = fold("a", await journal.read("a"))
    assert (state.is_queued, state.agent) == (True, "cook")
