"""A final reply is shown when its gate has allowed it, and not before (G3)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from windlass import (
    Agent,
    Allow,
    Deny,
    LoopPolicy,
    ReplyJudged,
    RunEnded,
    RunFailed,
    StepProposed,
    TextDelta,
    ThinkingDelta,
    tool,
)
from windlass.core.control_facts import RunReleased
from windlass.core.events import Event, RunSuspended
from windlass.core.fold.run import fold
from windlass.core.result import build_result
from windlass.journals.memory import MemoryJournal
from windlass.testing import (
    FixedGate,
    ScriptedModel,
    Trace,
    VirtualClock,
    call,
    drop,
    pause,
    say,
    stall,
    think,
)
from windlass.testing.journals import append_facts

pytestmark = pytest.mark.contract("G3")
BAD = "the launch code"


def no_codes(text: str) -> Allow | Deny:
    return Deny("no codes") if BAD in text else Allow("fine")


def gate(delay_s: float = 0.0, replies: Callable[[str], Allow | Deny] = no_codes) -> FixedGate:
    return FixedGate(replies=replies, delay_s=delay_s)


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


async def test_an_allowed_reply_is_shown_whole_once_it_is_allowed(clock: VirtualClock) -> None:
    """E2, E3: piece by piece, before the reply and its verdict, each at its place."""
    trace, shown_at = Trace(), list[float]()

    def watch(event: Event) -> None:
        trace(event)
        if isinstance(event, TextDelta | ThinkingDelta | StepProposed):
            shown_at.append(clock.elapsed_s)

    with ScriptedModel([[think("Hm."), say("All is well.")]]) as model:
        agent = Agent(model, gate=gate(5.0), clock=clock)
        result = await agent.run("Go.", on_event=watch)
    trace.check()
    assert (result.text, trace.shown_text()) == ("All is well.", "All is well.")
    assert len(trace.texts()) > 1
    assert set(shown_at) == {5.0}
    said = trace.of_type(StepProposed)[0]
    assert said.reply.text == "All is well."
    kinds = trace.kinds()
    assert kinds.index("TextDelta") < kinds.index("StepProposed") < kinds.index("ReplyJudged")


async def test_nothing_of_a_denied_reply_is_shown(clock: VirtualClock) -> None:
    trace, store = Trace(), MemoryJournal()
    with ScriptedModel([[think(f"So {BAD}."), say(f"It is {BAD}.")], "No."]) as model:
        agent = Agent(model, gate=gate(), journal=store, clock=clock)
        result = await agent.run("Go.", session="s", on_event=trace)
    trace.check()
    assert BAD not in repr(trace.events)
    assert [step.reply.text for step in trace.of_type(StepProposed)] == ["[withheld]", "No."]
    assert (result.text, trace.shown_text()) == ("No.", "No.")
    assert BAD in repr(await store.read("s"))


async def test_text_beside_calls_is_shown_before_they_run(clock: VirtualClock) -> None:
    """E6: it is no final reply, and nobody judges it."""
    trace = Trace()
    with ScriptedModel([[say("I look."), call("look")], "Done."]) as model:
        agent = Agent(model, tools=[look], gate=gate(), clock=clock)
        await agent.run("Go.", on_event=trace)
    trace.check()
    kinds = trace.kinds()
    assert kinds.index("TextDelta") < kinds.index("StepProposed") < kinds.index("CallStarted")
    assert trace.shown_text() == "I look.Done."


async def test_three_denials_end_the_run_and_leave_no_text(clock: VirtualClock) -> None:
    trace = Trace()
    agent = Agent(ScriptedModel([BAD] * 3), gate=gate(), clock=clock)
    result = await agent.run("Go.", on_event=trace)
    trace.check()
    assert (result.outcome, result.text, result.partial_text) == ("policy_denied", "", "")
    assert BAD not in repr(trace.events)


@pytest.mark.parametrize("words", [[say(BAD), stall()], [say(BAD), pause(0.5)]])
async def test_a_cancel_shows_nothing_that_was_not_judged(words: Any, clock: VirtualClock) -> None:
    """C2: while it is written, and while it is judged."""
    trace, store = Trace(), MemoryJournal()
    agent = Agent(ScriptedModel([words]), gate=gate(60.0), journal=store, clock=clock)
    running = asyncio.create_task(agent.run("Go.", session="s", on_event=trace))
    await asyncio.sleep(2)
    agent.cancel("s")
    result = await running
    trace.check()
    assert (result.outcome, result.text, result.partial_text) == ("cancelled", "", "")
    assert BAD not in repr(trace.events)
    assert build_result(fold("s", await store.read("s")), recorded=True) == result


async def test_a_broken_attempt_is_dropped_and_asked_again(clock: VirtualClock) -> None:
    """S5: nobody saw it, so that nothing has to be taken back."""
    trace = Trace()
    model = ScriptedModel([[say(BAD), drop()], "Fine."])
    result = await Agent(model, gate=gate(), clock=clock).run("Go.", on_event=trace)
    trace.check()
    assert (result.text, trace.shown_text()) == ("Fine.", "Fine.")
    assert "AttemptDiscarded" not in trace.kinds()
    assert BAD not in repr(trace.events)


async def test_a_reply_that_does_not_fit_was_not_allowed_either(clock: VirtualClock) -> None:
    trace = Trace()
    agent = Agent(
        ScriptedModel([BAD, BAD, BAD]),
        output_type=int,
        gate=gate(replies=lambda _: Allow()),
        rules=LoopPolicy(misfits_max=2),
        clock=clock,
    )
    with pytest.raises(RunFailed) as raised:
        await agent.run("Go.", on_event=trace)
    trace.check()
    assert BAD not in repr(trace.events)
    assert raised.value.result.outcome == "failed"


async def test_who_comes_later_is_shown_no_more(clock: VirtualClock) -> None:
    """E5: denied for good, and not shown from the records either."""
    store = MemoryJournal()
    with ScriptedModel([BAD, "Fine."]) as model:
        agent = Agent(model, gate=gate(), journal=store, clock=clock)
        await agent.run("Go.", session="s")
    for after in range(len(await store.read("s"))):
        seen = [event async for event in agent.watch("s", after=after)]
        assert BAD not in repr(seen)
        assert isinstance(seen[-1], RunEnded)
    # Another agent, whose own gate judges no replies.
    other = Agent(ScriptedModel(["-"]), journal=store, clock=clock)
    assert BAD not in repr([event async for event in other.watch("s")])


@pytest.mark.parametrize("text", [BAD, "All is well."])
@pytest.mark.parametrize("at", [0.5, 2.5])
async def test_who_comes_while_it_is_judged_sees_it_once_it_is_allowed(
    text: str, at: float, clock: VirtualClock
) -> None:
    """E5: while it is written, or while it is judged: no gap, and nothing twice."""
    store = MemoryJournal()
    words = [say(text[:5]), pause(1.0), say(text[5:])]
    agent = Agent(ScriptedModel([words, "No."]), gate=gate(5.0), journal=store, clock=clock)
    running = asyncio.create_task(agent.run("Go.", session="s"))
    await asyncio.sleep(at)
    trace = Trace()
    async for event in agent.watch("s"):
        trace(event)
    result = await running
    trace.check()
    assert BAD not in repr(trace.events)
    assert trace.shown_text() == result.text
    assert [type(one.verdict) for one in trace.of_type(ReplyJudged)][-1] is Allow


async def test_a_reply_that_nobody_judged_before_a_crash_is_not_shown(clock: VirtualClock) -> None:
    """E5: whoever reads the records of a run that was left open sees that there was a reply."""
    store = MemoryJournal()
    agent = Agent(ScriptedModel(["All is well."]), gate=gate(), journal=store, clock=clock)
    await agent.run("Go.", session="s")
    facts = await store.read("s")
    left = MemoryJournal()
    at = next(n for n, fact in enumerate(facts) if isinstance(fact, StepProposed))
    await append_facts(left, "s", facts[: at + 1])
    other = Agent(ScriptedModel(["-"]), gate=gate(), journal=left, clock=clock)
    trace = Trace([event async for event in other.watch("s")])
    assert [step.reply.text for step in trace.of_type(StepProposed)] == ["[withheld]"]


async def test_without_a_gate_for_replies_text_is_shown_at_once(clock: VirtualClock) -> None:
    """E2."""
    shown_at: list[float] = []

    def watch(event: Event) -> None:
        if isinstance(event, TextDelta):
            shown_at.append(clock.elapsed_s)

    words = [say("Hi"), pause(1.0), say("you")]
    await Agent(ScriptedModel([words]), gate=FixedGate(), clock=clock).run("Go.", on_event=watch)
    assert shown_at == [0.0, 1.0]


@pytest.mark.parametrize("script", [[[say(BAD), drop()], "Hello."], [BAD]])
async def test_the_result_of_a_run_that_was_released_has_nothing_that_was_not_judged(
    script: Any, clock: VirtualClock
) -> None:
    """After an attempt that broke off, and while a whole reply is judged."""
    rules = LoopPolicy(on_partial="restart")
    agent = Agent(ScriptedModel(script), gate=gate(delay_s=60), rules=rules, clock=clock)
    running = asyncio.create_task(agent.run("Tell me.", session="s"))
    await asyncio.sleep(0.1)
    assert agent.release("s", grace_s=0.0)
    result = await running
    assert (result.outcome, result.text, result.partial_text) == ("released", "", "")


@pytest.mark.contract("E2")
async def test_a_watcher_is_told_of_a_release_while_a_reply_is_judged(clock: VirtualClock) -> None:
    """E2: the reply stays withheld, and the watcher does not wait for a judgement by others."""
    agent = Agent(ScriptedModel([BAD]), gate=gate(delay_s=60), clock=clock)
    seen: list[Event] = []
    running = asyncio.create_task(agent.run("Tell me.", session="s", on_event=seen.append))
    await asyncio.sleep(0.1)
    assert agent.release("s", grace_s=0.0)
    await running
    assert isinstance(seen[-2], RunReleased)
    assert isinstance(seen[-1], RunSuspended)
    assert [step.reply.text for step in Trace(seen).of_type(StepProposed)] == ["[withheld]"]
