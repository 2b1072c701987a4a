"""Release: a driver lets go of a run without ending it, and any other goes on with it."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from windlass import Agent, Ask, Event, ModelInfo, RunEnded, RunFailed, RunResult, tool
from windlass.core.events import AttemptFailed, CallFinished, CallStarted, RunReleased, StepProposed
from windlass.core.fold.run import fold
from windlass.journals.memory import MemoryJournal
from windlass.testing import (
    FailingJournal,
    FixedGate,
    ScriptedModel,
    VirtualClock,
    WaitingJournal,
    call,
    check_trace,
    pause,
    say,
    usage,
)

SESSION = "s"


async def until(holds: Callable[[], object]) -> None:
    while not holds():  # noqa: ASYNC110 - a model tells nobody
        await asyncio.sleep(0.01)


@tool
async def send(number: int) -> str:
    """Send something."""
    await asyncio.sleep(number)
    return f"sent {number}"


def make_agent(clock: VirtualClock, journal: Any, *replies: Any, **options: Any) -> Agent[str]:
    options.setdefault("tools", [send])
    return Agent(ScriptedModel(replies), journal=journal, clock=clock, **options)


@pytest.mark.contract("D2", "L4")
async def test_an_attempt_is_stopped_and_charged_by_what_streamed(clock: VirtualClock) -> None:
    """No end is on record, the lease is free, and the retries are untouched."""
    journal = MemoryJournal(now=clock.now)
    events: list[Event] = []
    first = make_agent(
        clock, journal, [usage(input=10, output=2), say("Half "), pause(60), say("a reply.")]
    )
    running = asyncio.create_task(first.run("Go.", session=SESSION, on_event=events.append))
    await asyncio.sleep(1)
    assert first.release(SESSION, "the machine goes down")
    result = await running
    assert (result.outcome, clock.elapsed_s < 2) == ("released", True)
    facts = await journal.read(SESSION)
    last = facts[-1]
    assert isinstance(last, RunReleased)
    assert last.reason == "the machine goes down"
    assert last.charge is not None
    assert last.charge.usage is not None
    assert last.charge.usage.input == 10
    assert not any(isinstance(fact, RunEnded | AttemptFailed) for fact in facts)
    assert not await journal.is_leased(SESSION)
    check_trace(events)
    second = make_agent(clock, journal, "A reply.")
    resumed = await second.resume(SESSION)
    assert (resumed.outcome, resumed.text, resumed.model_calls) == ("completed", "A reply.", 2)


@pytest.mark.contract("D2")
async def test_calls_get_a_grace_to_finish_and_are_recorded(clock: VirtualClock) -> None:
    journal = MemoryJournal(now=clock.now)
    first = make_agent(clock, journal, [call("send", {"number": 3}), call("send", {"number": 4})])
    running = asyncio.create_task(first.run("Go.", session=SESSION))
    await asyncio.sleep(1)
    first.release(SESSION, grace_s=10)
    result = await running
    assert result.outcome == "released"
    facts = await journal.read(SESSION)
    assert sum(isinstance(fact, CallFinished) for fact in facts) == 1
    assert sum(isinstance(fact, CallStarted) for fact in facts) == 1
    second = make_agent(clock, journal, "Done.")
    resumed = await second.resume(SESSION)
    assert resumed.completed
    started = [fact for fact in await journal.read(SESSION) if isinstance(fact, CallStarted)]
    assert len(started) == 2


@pytest.mark.realtime
@pytest.mark.contract("D2", "J2")
async def test_a_thread_keeps_the_lease_until_it_is_over() -> None:
    """A thread cannot be stopped: nobody may reconcile its call while it can still act."""
    journal = MemoryJournal()
    go_on = threading.Event()
    began = threading.Event()

    @tool
    def hang() -> str:
        """Hang."""
        began.set()
        go_on.wait(30)
        return "done"

    agent = Agent(ScriptedModel([[call("hang", {})]]), tools=[hang], journal=journal)
    running = asyncio.create_task(agent.run("Go.", session=SESSION))
    await asyncio.to_thread(began.wait, 30)
    agent.release(SESSION, grace_s=0.01)
    assert (await running).outcome == "released"
    assert await journal.is_leased(SESSION)
    go_on.set()
    await until_free(journal)


@pytest.mark.realtime
@pytest.mark.contract("D2", "J2", "F3")
@pytest.mark.parametrize("stop", ["release", "cancel"])
async def test_a_thread_keeps_the_lease_if_the_journal_fails(stop: str) -> None:
    """Its call is open on record, so the next driver would ask whether it happened, and run it."""
    memory = MemoryJournal()
    journal = FailingJournal(memory, at=5)  # The append after the one that starts the call.
    go_on = threading.Event()
    began = threading.Event()

    @tool
    def hang() -> str:
        """Hang."""
        began.set()
        go_on.wait(30)
        return "done"

    agent = Agent(ScriptedModel([[call("hang", {})]]), tools=[hang], journal=journal)
    running = asyncio.create_task(agent.run("Go.", session=SESSION))
    await asyncio.to_thread(began.wait, 30)
    if stop == "release":
        agent.release(SESSION, grace_s=0.01)
    else:
        agent.cancel(SESSION)
    with suppress(RunFailed):
        await running
    state = fold(SESSION, await memory.read(SESSION))
    assert state.is_active
    assert [one.phase for one in state.step_calls] == ["started"]
    assert await memory.is_leased(SESSION)
    go_on.set()
    await until_free(memory)


async def until_free(journal: MemoryJournal) -> None:
    while await journal.is_leased(SESSION):  # noqa: ASYNC110 - a lease tells nobody
        await asyncio.sleep(0.01)


@pytest.mark.contract("D2")
async def test_closing_an_agent_releases_durable_runs(clock: VirtualClock) -> None:
    """Runs in memory are cancelled, because nobody else could go on with them."""
    for durable, cancel, outcome in (
        (True, False, "released"),
        (True, True, "cancelled"),
        (False, False, "cancelled"),
    ):
        memory = MemoryJournal(now=clock.now)
        journal = WaitingJournal(memory, 0.001) if durable else memory
        agent = make_agent(clock, journal, [say("Half "), pause(60)])
        running = asyncio.create_task(agent.run("Go.", session=SESSION))
        await asyncio.sleep(1)
        await agent.aclose(cancel=cancel)
        assert (await running).outcome == outcome


@pytest.mark.contract("D2")
async def test_a_run_that_asks_is_simply_left(clock: VirtualClock) -> None:
    journal = MemoryJournal(now=clock.now)

    async def approve(_: object) -> None:
        await asyncio.sleep(1000)

    agent = make_agent(
        clock,
        journal,
        [call("send", {"number": 1})],
        gate=FixedGate(Ask("May I?")),
        approver=approve,
    )
    running = asyncio.create_task(agent.run("Go.", session=SESSION))
    await asyncio.sleep(1)
    agent.release(SESSION)
    result = await running
    assert (result.outcome, len(result.questions)) == ("suspended", 1)
    assert not await journal.is_leased(SESSION)


@pytest.mark.contract("D2", "C6", "M1")
async def test_a_release_reaches_sub_agents_as_a_release(clock: VirtualClock) -> None:
    """Their sessions are released first, and go on when the caller's run is resumed."""
    journal = MemoryJournal(now=clock.now)

    def make_tree(above: list[Any], below: list[Any]) -> Agent[str]:
        info = ModelInfo("scripted:below")
        helper = Agent(ScriptedModel(below, info=info), name="helper", clock=clock)
        return make_agent(clock, journal, *above, tools=[helper.as_tool()])

    first = make_tree(
        [[call("helper", {"task": "Find it."})]], [[say("Half "), pause(60), say("done.")]]
    )
    running = asyncio.create_task(first.run("Go.", session=SESSION))
    await asyncio.sleep(1)
    first.release(SESSION)
    result: RunResult[str] = await running
    assert result.outcome == "released"
    inner = f"{SESSION}/c1_0"
    assert isinstance((await journal.read(inner))[-1], RunReleased)
    assert isinstance((await journal.read(SESSION))[-1], RunReleased)
    assert not await journal.is_leased(inner)
    assert not await journal.is_leased(SESSION)
    second = make_tree(["All done."], ["Found."])
    resumed = await second.resume(SESSION)
    assert (resumed.outcome, resumed.text) == ("completed", "All done.")
    state = fold(inner, await journal.read(inner))
    assert state.run is not None
    assert (state.run.outcome, state.run.number) == ("completed", 1)
    replies = [fact for fact in await journal.read(inner) if isinstance(fact, StepProposed)]
    assert len(replies) == 1


@pytest.mark.contract("D2", "A3")
async def test_a_reply_gets_the_time_that_a_release_gives_it(clock: VirtualClock) -> None:
    """A3: it is recorded and charged once, and no step begins after it."""
    journal = MemoryJournal(now=clock.now)
    replies = [[say("Half "), pause(8), say("a reply."), call("send", {"number": 1})], "Done."]
    first = make_agent(clock, journal, *replies)
    running = asyncio.create_task(first.run("Go.", session=SESSION))
    await asyncio.sleep(1)
    assert first.release(SESSION, "a deploy", 0.0, reply_s=20)
    assert (await running).outcome == "released"
    assert 8 <= clock.elapsed_s < 9
    facts = await journal.read(SESSION)
    assert [type(fact) for fact in facts[-2:]] == [StepProposed, RunReleased]
    assert not any(isinstance(fact, CallStarted) for fact in facts)
    with ScriptedModel(["Done."]) as model:
        second = Agent(model, journal=journal, clock=clock, tools=[send])
        resumed = await second.resume(SESSION)
    # The reply of the first driver was not asked for again.
    assert (resumed.outcome, model.requests, resumed.model_calls) == ("completed", 1, 2)


@pytest.mark.contract("D2", "A3")
async def test_a_reply_gets_no_longer_than_that(clock: VirtualClock) -> None:
    journal = MemoryJournal(now=clock.now)
    first = make_agent(clock, journal, [say("Half "), pause(60), say("a reply.")])
    running = asyncio.create_task(first.run("Go.", session=SESSION))
    await asyncio.sleep(1)
    first.release(SESSION, reply_s=20)
    assert (await running).outcome == "released"
    assert 21 <= clock.elapsed_s < 22


@pytest.mark.contract("D2", "A3")
async def test_a_second_release_may_end_the_wait_and_not_extend_it(clock: VirtualClock) -> None:
    journal = MemoryJournal(now=clock.now)
    first = make_agent(clock, journal, [say("Half "), pause(60), say("a reply.")])
    running = asyncio.create_task(first.run("Go.", session=SESSION))
    await asyncio.sleep(1)
    first.release(SESSION, "a deploy", reply_s=20)
    await asyncio.sleep(1)
    first.release(SESSION, "its driver was cancelled", 50, reply_s=50)
    await asyncio.sleep(1)
    assert not running.done()
    first.release(SESSION, "a deploy, at once", 0.0)
    assert (await running).outcome == "released"
    assert clock.elapsed_s < 4
    last = (await journal.read(SESSION))[-1]
    assert isinstance(last, RunReleased)
    assert last.reason == "a deploy, at once"


@pytest.mark.contract("D2", "A3")
async def test_the_reply_of_a_sub_agent_gets_as_long(clock: VirtualClock) -> None:
    journal = MemoryJournal(now=clock.now)
    inner = Agent(ScriptedModel([[say("Half "), pause(8), say("of it.")]]), name="inner")
    outer = make_agent(
        clock, journal, [call("ask", {"task": "Go."})], tools=[inner.as_tool("ask", "Ask.")]
    )
    running = asyncio.create_task(outer.run("Go.", session=SESSION))
    await asyncio.sleep(1)
    outer.release(SESSION, "a deploy", 20, reply_s=20)
    assert (await running).outcome == "released"
    assert 8 <= clock.elapsed_s < 10
    [below] = [one.session for one in await journal.sessions() if one.session != SESSION]
    facts = await journal.read(below)
    assert any(isinstance(fact, StepProposed) for fact in facts)
