"""Cancel at every await, found by counting them: the end comes at once, and nothing is lost."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any

import pytest
from typing_extensions import override

from windlass import (
    Agent,
    Allow,
    FailedByJournal,
    JournalFailed,
    Limits,
    RunEnded,
    RunResult,
    Toolbox,
    tool,
)
from windlass.core.events import CallFinished, CallLate, CallStarted, Event
from windlass.core.fold.run import fold
from windlass.core.messages import ToolResults
from windlass.core.moves import ClearedCall
from windlass.core.verdicts import Verdict
from windlass.journals.memory import MemoryJournal
from windlass.ports import CallContext, GateRequest, World
from windlass.runtime import driver
from windlass.runtime.in_flight import InFlight
from windlass.runtime.recorder import Recorder
from windlass.testing import (
    FailingJournal,
    FixedGate,
    HungJournal,
    RecordingTools,
    ScriptedModel,
    VirtualClock,
    WaitingJournal,
    call,
    check_trace,
    fail,
    pause,
    run_virtual,
    say,
    stall,
    think,
    usage,
)

SESSION = "cancelled"
CANCEL_S = 0.1


@tool(effect="read")
async def look(number: int) -> str:
    """Look at something for a while."""
    await asyncio.sleep(number)
    return f"saw {number}"


@tool
async def send(number: int) -> str:
    """Send something, and do not be stopped."""
    for _ in range(3):
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            continue
    return f"sent {number}"


class Script:
    """A session that awaits in every way there is: journal, model, back-off, gate, tools."""

    def __init__(self, clock: VirtualClock) -> None:
        self.store = MemoryJournal()
        self.events: list[Event] = []
        self.clock = clock
        model = ScriptedModel(
            [
                [fail("server")],
                [think("Hm."), say("Let me look. "), pause(0.5), usage(input=10, output=5)]
                + [call("look", {"number": at}) for at in (1, 2, 3)]
                + [call("send", {"number": 4})],
                [say("And again. "), pause(1), call("look", {"number": 5})],
                [say("Done.")],
            ]
        )
        self.agent = Agent(
            model,
            tools=Toolbox([look, send], grace=0.02),
            gate=SlowGate(Allow()),
            journal=WaitingJournal(self.store, 0.01),
            clock=clock,
        )

    async def run(self) -> RunResult[str]:
        return await self.agent.run("Go.", session=SESSION, on_event=self.events.append)


class SlowGate(FixedGate):
    """Takes its time, as a gate that asks a server does."""

    @override
    async def judge(self, request: GateRequest) -> Verdict:
        await asyncio.sleep(0.2)
        return await super().judge(request)


class Awaits:
    """A coroutine that counts how often it waits, and acts at one of those times."""

    def __init__(self, work: Coroutine[Any, Any, Any], at: int, act: Callable[[], object]) -> None:
        self._work = work
        self._at = at
        self._act = act
        self.count = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self._work.__await__()
        try:
            waited = next(inner)
            while True:
                self.count += 1
                if self.count == self._at:
                    asyncio.get_running_loop().call_soon(self._act)
                try:
                    answer = yield waited
                except BaseException as error:  # noqa: BLE001 - passed on as it is
                    waited = inner.throw(error)
                else:
                    waited = inner.send(answer)
        except StopIteration as done:
            return done.value


def instrumented(
    monkeypatch: pytest.MonkeyPatch, at: int, act: Callable[[], object]
) -> list[Awaits]:
    """Count the awaits of a run, its first record included, and act at one of them."""
    counted: list[Awaits] = []
    plain = driver.run_loop

    async def run(world: World, recorder: Recorder, in_flight: InFlight) -> Any:
        counted.append(Awaits(plain(world, recorder, in_flight), at, act))
        return await counted[-1]

    monkeypatch.setattr(driver, "run_loop", run)
    return counted


def awaits_in_all() -> int:
    with pytest.MonkeyPatch.context() as patch:
        counted = instrumented(patch, 0, lambda: None)

        async def main(clock: VirtualClock) -> None:
            assert (await Script(clock).run()).outcome == "completed"

        run_virtual(main)
    return counted[0].count


AWAITS = awaits_in_all()


def test_the_session_awaits_in_many_places() -> None:
    assert AWAITS > 30


@pytest.mark.parametrize("at", range(1, AWAITS + 1))
@pytest.mark.parametrize("how", ["told", "caller"])
@pytest.mark.leaves_tasks
async def test_a_cancel_at_any_await_ends_the_run_at_once(
    at: int, how: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C1, C2, C3, L3: within 100 ms, with one end, whatever the run was waiting for."""
    script = Script(clock)
    cancelled_at: list[float] = []

    def cancel() -> None:
        cancelled_at.append(clock.elapsed_s)
        task.cancel() if how == "caller" else script.agent.cancel(SESSION)

    instrumented(monkeypatch, at, cancel)
    task = asyncio.create_task(script.run())
    await asyncio.wait({task})
    took = clock.elapsed_s - cancelled_at[0]
    assert took <= CANCEL_S
    check_trace(script.events)
    end = script.events[-1]
    assert isinstance(end, RunEnded)
    if how == "told":
        result = task.result()
        assert result.outcome == end.outcome
        assert result.recorded
    assert end.outcome == ("cancelled" if at < AWAITS else end.outcome)
    await the_next_request_is_valid(script)


class StubbornGate(FixedGate):
    """Thinks for an hour, and cannot be stopped."""

    @override
    async def judge(self, request: GateRequest) -> Verdict:
        until = asyncio.get_running_loop().time() + 3_600
        while (left := until - asyncio.get_running_loop().time()) > 0:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(left)
        return await super().judge(request)


@pytest.mark.contract("C1")
@pytest.mark.leaves_tasks
async def test_a_part_of_the_loop_that_ignores_a_cancel_holds_up_no_end(
    clock: VirtualClock,
) -> None:
    """A gate, a model or an approver is code of the user, and may swallow a cancel."""
    model = ScriptedModel([call("look", {"number": 1})])
    agent = Agent(model, tools=[look], gate=StubbornGate(Allow()), clock=clock)
    running = asyncio.create_task(agent.run("Go.", session=SESSION))
    await asyncio.sleep(1)
    agent.cancel(SESSION)
    assert (await running).outcome == "cancelled"
    assert clock.elapsed_s <= 1 + CANCEL_S


async def the_next_request_is_valid(script: Script) -> None:
    """C3, X1: the scripted model checks every request that it gets."""
    facts = await script.store.read(SESSION)
    state = fold(SESSION, facts)
    finished = {fact.call_id: fact.result for fact in facts if isinstance(fact, CallFinished)}
    told = {
        item.call.id: item.result
        for message in state.transcript
        if isinstance(message, ToolResults)
        for item in message.items
    }
    assert {call_id: told[call_id] for call_id in finished} == finished
    with ScriptedModel(["Fine."]) as model:
        follower = Agent(model, journal=script.store, clock=script.clock)
        assert (await follower.run("And now?", session=SESSION)).text == "Fine."


async def until(script: Script, happened: Callable[[Event], bool]) -> None:
    while not any(map(happened, script.events)):  # noqa: ASYNC110 - events are pushed, not awaited
        await asyncio.sleep(0.01)


@pytest.mark.leaves_tasks
async def test_a_finished_sibling_keeps_its_result_and_the_others_say_how_far_they_came(
    clock: VirtualClock,
) -> None:
    """C3, T8."""
    script = Script(clock)
    task = asyncio.create_task(script.run())
    await until(script, lambda event: isinstance(event, CallFinished))
    script.agent.cancel(SESSION)
    results = (await task).messages[-1]
    assert isinstance(results, ToolResults)
    kinds = [item.result.kind for item in results.items]
    assert kinds == ["value", "cancelled", "cancelled", "cancelled"]
    assert "had started" in results.items[1].result.text
    assert "had not started" in results.items[3].result.text


@pytest.mark.leaves_tasks
async def test_a_late_result_is_recorded_as_late(clock: VirtualClock) -> None:
    """C4: the tool sees the cancel; what it says afterwards is kept, and changes nothing."""
    script = Script(clock)
    task = asyncio.create_task(script.run())
    await until(script, lambda event: isinstance(event, CallStarted) and event.call_id == "c1_3")
    script.agent.cancel(SESSION)
    result = await task
    before = fold(SESSION, await script.store.read(SESSION)).transcript
    await asyncio.sleep(10)
    facts = await script.store.read(SESSION)
    assert [fact.result.text for fact in facts if isinstance(fact, CallLate)] == ["sent 4"]
    assert fold(SESSION, facts).transcript == before
    assert result.outcome == "cancelled"


@pytest.mark.leaves_tasks
@pytest.mark.realtime
async def test_a_thread_that_cannot_be_stopped_is_reported_as_still_running() -> None:
    """C4: in the event, in the record and in the result; what it did afterwards is recorded."""
    began = threading.Event()
    may_act = threading.Event()

    @tool
    def pay() -> str:
        """Pay."""
        began.set()
        may_act.wait(30)
        return "paid"

    journal = MemoryJournal()
    seen: list[Event] = []
    agent = Agent(ScriptedModel([call("pay", {})]), tools=[pay], journal=journal)
    running = asyncio.create_task(agent.run("Go.", session=SESSION, on_event=seen.append))
    await asyncio.to_thread(began.wait, 30)
    agent.cancel(SESSION)
    result = await running
    may_act.set()
    await agent.aclose()
    assert result.still_running == ("c1_0",)
    facts = await journal.read(SESSION)
    for ends in (seen, facts):
        (end,) = [event for event in ends if isinstance(event, RunEnded)]
        assert end.still_running == ("c1_0",)
    (late,) = [fact for fact in facts if isinstance(fact, CallLate)]
    assert late.result.text.endswith("it returned: paid")


async def test_nothing_is_requested_once_a_call_has_cancelled_its_run(clock: VirtualClock) -> None:
    """C2: although the loop reaches the next request before the driver could stop it."""

    def stop(_cleared: ClearedCall, _context: CallContext) -> str:
        agent.cancel(SESSION)
        return "too late"

    model = ScriptedModel([call("stop", {}), [say("Paid for.")]])
    agent = Agent(model, tools=RecordingTools({"stop": stop}), clock=clock)
    result = await agent.run("Go.", session=SESSION)
    await agent.aclose()
    assert (result.outcome, model.requests) == ("cancelled", 1)


async def test_a_call_that_had_ended_is_not_reported_as_running(clock: VirtualClock) -> None:
    """C4."""

    @tool
    async def pay() -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel([call("pay", {}), [say("So"), stall()]])
    agent = Agent(model, tools=[pay], limits=Limits(seconds=30), clock=clock)
    assert (await agent.run("Go.")).still_running == ()


async def test_partial_text_and_usage_survive_a_cancel(clock: VirtualClock) -> None:
    """C2, L5: with usage and partial text."""
    model = ScriptedModel([[usage(input=7, output=2), say("Once upon"), stall()]])
    agent = Agent(model, clock=clock)
    async with agent.stream("Tell.", session=SESSION) as events:
        seen = ""
        async for event in events:
            seen += getattr(event, "text", "")
            if seen == "Once upon":
                events.cancel("enough")
    result = events.result
    assert (result.outcome, result.reason) == ("cancelled", "enough")
    assert result.partial_text == "Once upon"
    assert result.usage is not None
    assert result.usage.input == 7


async def test_a_deadline_is_a_cancel_with_a_reason(clock: VirtualClock) -> None:
    """C5, L4."""
    model = ScriptedModel([[say("So"), stall()]])
    result = await Agent(model, limits=Limits(seconds=30), clock=clock).run("Go.")
    assert result.outcome == "timed_out"
    assert "30 s" in result.reason
    assert result.partial_text == "So"
    assert 30 <= clock.elapsed_s <= 30.1


@pytest.mark.leaves_tasks
@pytest.mark.parametrize("at", range(1, 7))
async def test_a_journal_that_hangs_holds_up_no_cancel(at: int, clock: VirtualClock) -> None:
    """C1: the end comes in time, and says that it is not on record."""
    script = Script(clock)
    script.agent = Agent(
        ScriptedModel([[call("look", {"number": 1})], "Done."]),
        tools=[look],
        journal=HungJournal(script.store, at),
        clock=clock,
    )
    task = asyncio.create_task(script.run())
    await asyncio.sleep(60)
    assert not task.done()
    began = clock.elapsed_s
    script.agent.cancel(SESSION)
    result = await task
    assert clock.elapsed_s - began <= CANCEL_S
    assert result.outcome == "cancelled"
    assert not result.recorded
    check_trace(script.events[-1:])


@pytest.mark.parametrize("at", range(1, 8))
async def test_a_journal_that_fails_stops_the_run_before_the_effect(
    at: int, clock: VirtualClock
) -> None:
    """J1, L3, L6: one end, an error that carries the result, and no effect without its record."""
    ran: list[int] = []

    @tool
    def write(number: int) -> str:
        ran.append(number)
        return "ok"

    events: list[Event] = []
    store = MemoryJournal()
    agent = Agent(
        ScriptedModel([[call("write", {"number": 1})], "Done."]),
        tools=[write],
        journal=FailingJournal(store, at),
        clock=clock,
    )
    if at == 1:  # Nothing has begun, and so nothing has failed but the journal.
        with pytest.raises(JournalFailed):
            await agent.run("Go.", session=SESSION, on_event=events.append)
        assert not events
        return
    with pytest.raises(FailedByJournal) as raised:
        await agent.run("Go.", session=SESSION, on_event=events.append)
    assert raised.value.result.outcome == "failed"
    assert not raised.value.result.recorded
    started = [fact for fact in await store.read(SESSION) if type(fact).__name__ == "CallStarted"]
    assert len(ran) <= len(started)
    assert isinstance(events[-1], RunEnded)
    assert sum(isinstance(event, RunEnded) for event in events) == 1


async def test_closing_an_agent_stops_what_runs(clock: VirtualClock) -> None:
    """C1: nothing is left behind."""
    agent = Agent(ScriptedModel([[stall()]]), clock=clock)
    task = asyncio.create_task(agent.run("Go."))
    await asyncio.sleep(1)
    await agent.aclose()
    assert (await task).outcome == "cancelled"


async def test_a_cancel_of_nothing_says_so(clock: VirtualClock) -> None:
    assert not Agent(ScriptedModel([]), clock=clock).cancel("nobody")


@pytest.mark.leaves_tasks
@pytest.mark.parametrize("after_s", [0.1, 0.4, 0.7, 1.0])
async def test_a_slow_journal_holds_up_no_cancel_and_still_keeps_the_end(
    after_s: float, clock: VirtualClock
) -> None:
    """C1, J1: the end is told in time and lands when the disk has caught up, in its order."""
    script = Script(clock)
    script.agent = Agent(
        ScriptedModel([[call("look", {"number": 1})], "Done."]),
        tools=[look],
        journal=WaitingJournal(script.store, 0.3),
        clock=clock,
    )
    task = asyncio.create_task(script.run())
    await asyncio.sleep(0.3 + after_s)
    began = clock.elapsed_s
    script.agent.cancel(SESSION)
    result = await task
    assert clock.elapsed_s - began <= CANCEL_S
    assert (result.outcome, result.recorded) == ("cancelled", False)
    await asyncio.sleep(2)
    facts = await script.store.read(SESSION)
    end = facts[-1]
    assert isinstance(end, RunEnded)
    assert end.outcome == "cancelled"
    assert not fold(SESSION, facts).is_active


@pytest.mark.leaves_tasks
@pytest.mark.parametrize("after_ms", range(0, 40, 2))
async def test_a_cancel_while_the_run_is_being_opened_is_not_lost(
    after_ms: int, clock: VirtualClock
) -> None:
    """C1, C5: also before its first record."""
    script = Script(clock)
    task = asyncio.create_task(script.run())
    await asyncio.sleep(after_ms / 1000)
    assert script.agent.cancel(SESSION)
    result = await task
    assert (result.outcome, result.recorded) == ("cancelled", True)
    assert isinstance((await script.store.read(SESSION))[-1], RunEnded)
