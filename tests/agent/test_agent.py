"""The agent as a user sees it: runs, results, outcomes, errors, structured output."""

import asyncio
import subprocess
import sys
import threading
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from msgspec.structs import replace
from typing_extensions import override

from windlass import (
    Agent,
    Allow,
    Ask,
    ConfigError,
    Deny,
    FailedByBug,
    FailedByModel,
    FailedByOutput,
    Limits,
    LoopPolicy,
    ModelInfo,
    NothingToDo,
    Price,
    RunFailed,
    RunResult,
    RunUnfinished,
    SessionBusy,
    SetupDrifted,
    TextPart,
    tool,
)
from windlass.core.events import CallJudged, CallStarted, Fact, RunResumed, StepProposed
from windlass.core.messages import AssistantMessage, ToolResults
from windlass.journals.memory import MemoryJournal
from windlass.testing import (
    BareJournal,
    FixedGate,
    PowerCut,
    PowerCutJournal,
    ScriptedModel,
    Trace,
    VirtualClock,
    call,
    cut,
    drop,
    fail,
    length,
    refuse,
    say,
    stall,
    usage,
)
from windlass.testing.journals import append_facts

PRICED = ModelInfo("scripted:model", Price(Decimal(1), Decimal(10)), output_max=100)


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_a_run_asks_calls_and_answers(clock: VirtualClock) -> None:
    """L5: the result holds all that happened."""
    script = [
        [say("Let me see."), call("add", {"a": 2, "b": 3}), usage(input=9, output=4)],
        "Five.",
    ]
    with ScriptedModel(script) as model:
        result = await Agent(model, tools=[add], clock=clock).run("What is 2 + 3?")
    assert (result.outcome, result.output, result.text) == ("completed", "Five.", "Five.")
    assert (result.steps, result.model_calls, result.run) == (2, 2, 1)
    assert result.recorded
    assert not result.gated
    assert result.error is None
    assert [type(message).__name__ for message in result.new_messages()] == [
        "UserMessage",
        "AssistantMessage",
        "ToolResults",
        "AssistantMessage",
    ]
    assert result.all_messages() == result.messages


async def test_a_session_goes_on_where_it_was(clock: VirtualClock) -> None:
    agent = Agent(ScriptedModel(["One.", "Two."]), clock=clock)
    first = await agent.run("Count.")
    second = await agent.run("Go on.", session=first.session_id)
    assert (second.run, len(second.messages), len(second.new_messages())) == (2, 4, 2)


OUTCOMES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "completed": (["Hi."], {}),
    "max_steps": ([call("add", {"a": 1, "b": 1})], {"limits": Limits(steps=1)}),
    "budget_exceeded": (
        [[call("add", {"a": 1, "b": 1}), usage(input=900, output=90)]],
        {"limits": Limits(tokens=1_500)},
    ),
    "timed_out": ([[say("Well"), stall()]], {"limits": Limits(seconds=5)}),
    "refused": ([refuse("I will not.")], {}),
    "truncated": ([[say("So lon"), length()]], {}),
    "empty_reply": (["", ""], {}),
    "stuck": ([call("add", {"a": 1, "b": 1})] * 5, {}),
    "policy_denied": (["No."] * 3, {"gate": FixedGate(Allow(), replies=Deny("rude"))}),
}


@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_every_outcome_returns_a_whole_result(outcome: str, clock: VirtualClock) -> None:
    """L4, L5, L6: limits and the like return; nothing of the result is lost."""
    script, settings = OUTCOMES[outcome]
    events: list[Any] = []
    with ScriptedModel(script, info=PRICED) as model:
        agent = Agent(model, tools=[add], clock=clock, **settings)
        result = await agent.run("Go.", on_event=events.append)
    assert result.outcome == outcome == events[-1].outcome
    assert (result.output_or_none is None) == (outcome != "completed")
    assert result.usage is not None
    assert result.cost is not None
    assert result.duration_s == pytest.approx(clock.elapsed_s)


async def test_the_cap_of_steps_is_exact_and_keeps_the_last_text(clock: VirtualClock) -> None:
    """L7, L8."""
    step = [say("Working."), call("add", {"a": 1, "b": 1})]
    with ScriptedModel([step, step, step]) as model:
        result = await Agent(model, tools=[add], limits=Limits(steps=3), clock=clock).run("Go.")
    assert (result.outcome, result.steps, result.text) == ("max_steps", 3, "Working.")


async def test_at_the_cap_one_more_reply_may_answer(clock: VirtualClock) -> None:
    """L8: with the tools switched off."""
    with ScriptedModel([call("add", {"a": 1, "b": 1}), "In short: two."]) as model:
        agent = Agent(
            model,
            tools=[add],
            limits=Limits(steps=1),
            rules=LoopPolicy(on_limit="answer"),
            clock=clock,
        )
        result = await agent.run("Go.")
    assert (result.outcome, result.text) == ("max_steps", "In short: two.")
    assert [prompt.tool_choice for prompt in model.prompts] == ["auto", "none"]


async def test_a_provider_error_raises_and_carries_the_result(clock: VirtualClock) -> None:
    """L6."""
    script = [[say("x"), call("add", {"a": 1, "b": 1})], fail("auth")]
    with ScriptedModel(script) as model, pytest.raises(FailedByModel) as raised:
        await Agent(model, tools=[add], clock=clock).run("Go.")
    assert raised.value.fault.kind == "auth"
    assert (raised.value.result.outcome, raised.value.result.steps) == ("failed", 1)


async def test_a_bug_ends_the_run_through_the_same_door(clock: VirtualClock) -> None:
    """L3: true for bugs."""

    class Buggy(ScriptedModel):
        @override
        def stream(self, prompt: Any) -> Any:
            raise ZeroDivisionError("a bug")

    events: list[Any] = []
    with pytest.raises(FailedByBug, match="ZeroDivisionError"):
        await Agent(Buggy([]), clock=clock).run("Go.", on_event=events.append)
    assert [event.outcome for event in events if hasattr(event, "outcome")] == ["failed"]


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["steps", "tokens", "usd", "seconds"])
def test_a_limit_that_is_none_is_refused_when_it_is_built(name: str, limit: Any) -> None:
    """L7."""
    with pytest.raises(ValueError, match=name):
        Limits(**{name: limit})


def test_a_money_limit_needs_a_price() -> None:
    """P6: refused at construction."""
    with pytest.raises(ConfigError, match="price"):
        Agent(ScriptedModel([], info=ModelInfo("scripted:unpriced")), limits=Limits(usd=Decimal(1)))


async def test_an_empty_prompt_is_refused(clock: VirtualClock) -> None:
    with pytest.raises(ConfigError, match="empty"):
        await Agent(ScriptedModel([]), clock=clock).run("  ")


# ── retries ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("trouble", [fail("server"), fail("rate_limit"), cut(), drop()])
async def test_a_failure_that_nobody_saw_is_asked_again(trouble: Any, clock: VirtualClock) -> None:
    """S1, S5, S8: the text is delivered exactly once."""
    with ScriptedModel([[trouble], [say("Hel"), trouble], "Hello."]) as model:
        result = await Agent(model, clock=clock).run("Hi.")
    assert (result.text, result.model_calls, result.steps) == ("Hello.", 3, 1)


async def test_a_stalled_stream_is_asked_again(clock: VirtualClock) -> None:
    """S4: 90 s of silence between pieces of content, then the back-off."""
    clock.random_fraction = lambda: 1.0
    with ScriptedModel([[say("Hi"), stall()], "Hi."]) as model:
        result = await Agent(model, clock=clock).run("Hello")
    assert (result.text, clock.elapsed_s) == ("Hi.", 91.0)


async def watched(agent: Agent[str]) -> None:
    async with agent.stream("Tell.") as events:
        async for _ in events:
            pass


async def test_after_visible_text_the_run_fails_and_keeps_it(clock: VirtualClock) -> None:
    """S6: `on_partial="fail"`, and the error names the setting."""
    rules = LoopPolicy(on_partial="fail")
    with ScriptedModel([[say("Once upon"), drop()]]) as model, pytest.raises(RunFailed) as raised:
        await watched(Agent(model, clock=clock, rules=rules))
    assert raised.value.result.partial_text == "Once upon"
    assert 'on_partial="restart"' in str(raised.value)


@pytest.mark.contract("S5")
async def test_fragments_of_a_call_are_not_text_that_was_seen(clock: VirtualClock) -> None:
    """A watcher of a broken attempt that only began a call has read nothing that could repeat."""
    trace = Trace()
    with ScriptedModel([[call("look", '{"at": '), drop()], "Hello."]) as model:
        async with Agent(model, clock=clock).stream("Hi.") as events:
            async for event in events:
                trace(event)
    trace.check()
    assert (events.result.outcome, events.result.model_calls) == ("completed", 2)


async def test_watchers_of_a_broken_reply_are_told_to_forget(clock: VirtualClock) -> None:
    """S5, S6: what counts is shown once."""
    trace = Trace()
    with ScriptedModel([[say("Once upon"), drop()], "The end."]) as model:
        result = await Agent(model, clock=clock).run("Tell.", on_event=trace)
    trace.check()
    assert trace.shown_text() == result.text == "The end."


# ── structured output ────────────────────────────────────────────────────────


@dataclass
class Point:
    x: int
    y: int


class PointStruct(msgspec.Struct):
    x: int
    y: int


class PointDict(TypedDict):
    x: int
    y: int


class PointModel(pydantic.BaseModel):
    x: int
    y: int


@pytest.mark.parametrize("kind", [Point, PointStruct, PointDict, PointModel])
async def test_output_has_the_type_that_was_asked_for(kind: Any, clock: VirtualClock) -> None:
    with ScriptedModel(['{"x": 1, "y": 2}']) as model:
        result = await Agent(model, output_type=kind, clock=clock).run("Where?")
    output: Any = result.output
    assert (output["x"] if kind is PointDict else output.x) == 1
    assert "schema" in model.prompts[0].system


async def test_a_reply_that_does_not_fit_is_told_to_the_model(clock: VirtualClock) -> None:
    with ScriptedModel(["Here: x is 1.", '```json\n{"x": 1, "y": 2}\n```']) as model:
        result = await Agent(model, output_type=Point, clock=clock).run("Where?")
    assert result.output == Point(1, 2)
    assert result.text.startswith("```")


async def test_replies_that_never_fit_fail_the_run(clock: VirtualClock) -> None:
    with ScriptedModel(["no"] * 3) as model, pytest.raises(FailedByOutput):
        await Agent(model, output_type=Point, clock=clock).run("Where?")


def test_an_output_type_without_a_schema_is_refused() -> None:
    with pytest.raises(ConfigError, match="output_type"):
        Agent(ScriptedModel([]), output_type=threading.Lock().__class__)


# ── questions ────────────────────────────────────────────────────────────────


async def test_a_question_waits_for_days_and_another_agent_goes_on(clock: VirtualClock) -> None:
    """G6, L4: a pause, and not an end; the clock of the run stands still."""
    store, gate = MemoryJournal(), FixedGate(Ask("May I?"))
    with ScriptedModel([call("add", {"a": 1, "b": 1})]) as model:
        first = await Agent(model, tools=[add], gate=gate, journal=store, clock=clock).run("Go.")
    assert first.outcome == "suspended"
    (question,) = first.questions
    assert (question.question, question.arguments) == ("May I?", {"a": 1, "b": 1})
    await asyncio.sleep(86_400)
    with ScriptedModel(["Two."]) as model:
        other = Agent(model, tools=[add], gate=gate, journal=store, clock=clock)
        result = await other.answer(first.session_id, question.call_id, Allow(), by="ann")
    assert (result.outcome, result.text) == ("completed", "Two.")
    assert result.duration_s < 1


async def test_what_nobody_asked_cannot_be_answered(clock: VirtualClock) -> None:
    agent = Agent(ScriptedModel(["Hi."]), clock=clock)
    done = await agent.run("Hi.")
    with pytest.raises(NothingToDo):
        await agent.answer(done.session_id, "c1_0", Allow())
    with pytest.raises(NothingToDo):
        await agent.resume(done.session_id)


# ── crash, drift, two writers ────────────────────────────────────────────────


async def crashed(clock: VirtualClock, store: MemoryJournal, at: int = 5) -> str:
    """A session whose driver died at an append."""
    agent = Agent(
        ScriptedModel([call("add", {"a": 1, "b": 1})]),
        tools=[add],
        journal=PowerCutJournal(store, at),
        clock=clock,
    )
    with pytest.raises((PowerCut, RunFailed)):
        await agent.run("Go.", session="s")
    return "s"


@pytest.mark.contract("F3")
async def test_two_drivers_never_write_the_same_opening(clock: VirtualClock) -> None:
    """F3: a journal that cannot tell whose record it is would let both go on with one token."""
    store = MemoryJournal()
    session = await crashed(clock, store)
    left = await store.read(session)
    openings: list[Fact] = []
    for _ in range(2):
        copy = MemoryJournal()
        await append_facts(copy, session, left)
        # A clock that is behind the records: all facts get the time of the last one.
        behind = VirtualClock(epoch=0.0, seed=len(openings))
        agent = Agent(ScriptedModel(["Two."]), tools=[add], journal=copy, clock=behind)
        await agent.resume(session)
        openings.append((await copy.read(session))[len(left)])
    first, second = openings
    assert isinstance(first, RunResumed)
    assert isinstance(second, RunResumed)
    assert first.driver != second.driver
    assert replace(first, driver="") == replace(second, driver="")


async def test_a_crashed_run_is_finished_by_another_agent(clock: VirtualClock) -> None:
    """J3, L1: the reply that was recorded is not paid for again."""
    store = MemoryJournal()
    session = await crashed(clock, store)
    with ScriptedModel(["Two."]) as model:
        result = await Agent(model, tools=[add], journal=store, clock=clock).resume(session)
    assert (result.outcome, result.text, result.steps) == ("completed", "Two.", 2)


async def test_an_open_run_must_be_dealt_with_first(clock: VirtualClock) -> None:
    store = MemoryJournal()
    session = await crashed(clock, store)
    agent = Agent(ScriptedModel(["Hi."]), tools=[add], journal=store, clock=clock)
    with pytest.raises(RunUnfinished):
        await agent.run("Again.", session=session)
    assert (await agent.abandon(session)).outcome == "cancelled"
    assert (await agent.run("Again.", session=session)).outcome == "completed"


async def test_a_resume_with_another_setup_needs_consent(clock: VirtualClock) -> None:
    """J9, L13."""
    store = MemoryJournal()
    session = await crashed(clock, store)
    agent = Agent(
        ScriptedModel(["Two."]), instructions="Be kind.", tools=[add], journal=store, clock=clock
    )
    with pytest.raises(SetupDrifted, match="instructions"):
        await agent.resume(session)
    assert (await agent.resume(session, consent=True)).outcome == "completed"


async def test_a_second_driver_is_refused(clock: VirtualClock) -> None:
    """L14: in the same agent by the agent, elsewhere by the journal; never merged."""
    store = MemoryJournal()
    slow = Agent(ScriptedModel([[say("x"), stall()]]), journal=store, clock=clock)
    running = asyncio.create_task(slow.run("Go.", session="s"))
    await asyncio.sleep(1)
    other = Agent(ScriptedModel([]), journal=store, clock=clock)
    with pytest.raises(SessionBusy, match="another driver"):
        await other.resume("s")
    slow.cancel("s")
    assert (await running).recorded


async def test_a_second_driver_is_fenced_off_by_the_numbers_where_nobody_holds_a_session(
    clock: VirtualClock,
) -> None:
    """L14: a journal without leases lets two of them begin, and only one of them write."""
    store = BareJournal(MemoryJournal())
    slow = Agent(ScriptedModel([[say("x"), stall()]]), journal=store, clock=clock)
    running = asyncio.create_task(slow.run("Go.", session="s"))
    await asyncio.sleep(1)
    other = Agent(ScriptedModel(["Mine."]), journal=store, clock=clock)
    assert (await other.resume("s")).text == "Mine."
    slow.cancel("s")
    result = await running
    assert not result.recorded
    ends = [fact for fact in await store.read("s") if type(fact).__name__ == "RunEnded"]
    assert len(ends) == 1


async def test_two_runs_of_one_session_at_once_are_refused(clock: VirtualClock) -> None:
    """L14."""
    agent = Agent(ScriptedModel([[stall()]]), clock=clock)
    running = asyncio.create_task(agent.run("Go.", session="s"))
    await asyncio.sleep(1)
    with pytest.raises((SessionBusy, RunUnfinished)):
        await agent.run("Go.", session="s")
    agent.cancel("s")
    assert (await running).outcome == "cancelled"


# ── without async ────────────────────────────────────────────────────────────


@pytest.mark.realtime
def test_run_sync_works_where_there_is_no_loop() -> None:
    assert Agent(ScriptedModel(["Hi."])).run_sync("Hello").text == "Hi."


@pytest.mark.realtime
async def test_run_sync_works_inside_a_running_loop() -> None:
    agent = Agent(ScriptedModel([call("add", {"a": 1, "b": 1}), "Hi."]), tools=[add])
    assert agent.run_sync([TextPart("Hello")]).text == "Hi."


@pytest.mark.realtime
@pytest.mark.slow
def test_ctrl_c_ends_the_run_before_it_goes_on() -> None:
    """C5: once cancels; the end is on record."""
    program = """
import os, signal, threading
from windlass import Agent
from windlass.journals.memory import MemoryJournal
from windlass.testing import ScriptedModel, stall
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored above us
store = MemoryJournal()
agent = Agent(ScriptedModel([[stall()]]), journal=store)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    agent.run_sync("Hi.", session="s")
except KeyboardInterrupt:
    print(store._sessions["s"][-1].outcome)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.strip() == "cancelled"


# ── events ───────────────────────────────────────────────────────────────────


async def test_calls_are_announced_in_order_before_any_runs(clock: VirtualClock) -> None:
    """E6: and history keeps the model's order, whoever is ready first."""

    @tool(effect="read")
    async def wait(seconds: int) -> str:
        await asyncio.sleep(seconds)
        return str(seconds)

    events: list[Any] = []
    with ScriptedModel([[call("wait", {"seconds": at}) for at in (3, 1, 2)], "Done."]) as model:
        result = await Agent(model, tools=[wait], clock=clock).run("Go.", on_event=events.append)
    kinds = [type(event) for event in events]
    assert kinds.index(StepProposed) < kinds.index(CallJudged) < kinds.index(CallStarted)
    ended = [event.call_id for event in events if type(event).__name__ == "CallFinished"]
    assert ended == ["c1_1", "c1_2", "c1_0"]
    (results,) = [message for message in result.messages if isinstance(message, ToolResults)]
    assert [item.result.text for item in results.items] == ["3", "1", "2"]
    (step,) = [m for m in result.messages if isinstance(m, AssistantMessage) and m.calls]
    assert [one.id for one in step.calls] == ["c1_0", "c1_1", "c1_2"]


def result_is_typed(result: RunResult[Point]) -> Point:
    """Checked by pyright: the output has the type that the agent was given."""
    return result.output
