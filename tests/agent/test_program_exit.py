"""KeyboardInterrupt and SystemExit inside a run: it ends through its one door, then they go on."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from typing_extensions import override

from windlass import (
    Agent,
    Allow,
    Ask,
    CallFinished,
    Event,
    Question,
    RunEnded,
    ToolResults,
    UserMessage,
    tool,
)
from windlass.journals.memory import MemoryJournal
from windlass.ports import GateRequest
from windlass.testing import FixedGate, ScriptedModel, call, check_trace, say

pytestmark = pytest.mark.contract("L3")

EXITS = [KeyboardInterrupt(), SystemExit(3)]


@tool(effect="read")
async def wait_long() -> str:
    """Wait for something that does not come."""
    await asyncio.sleep(60)
    return "late"


def quitting_tool(error: BaseException, *, in_thread: bool) -> Callable[[], Any]:
    if in_thread:

        @tool(effect="read")
        def leave() -> str:
            """Leave."""
            raise error

        return leave

    @tool(effect="read", name="leave")
    async def aleave() -> str:
        """Leave."""
        await asyncio.sleep(0)
        raise error

    return aleave


def ends_of(journal: MemoryJournal) -> list[RunEnded]:
    facts = asyncio.run(journal.read("s"))
    assert isinstance(facts[-1], RunEnded)
    return [fact for fact in facts if isinstance(fact, RunEnded)]


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("error", EXITS, ids=lambda error: type(error).__name__)
def test_a_run_ends_on_record_before_an_exit_of_its_tool_goes_on(
    error: BaseException, *, in_thread: bool
) -> None:
    """L3: one end on record, one terminal event; then the caller gets the exception itself."""
    journal = MemoryJournal()
    events: list[Event] = []
    model = ScriptedModel([[call("leave"), call("wait_long")]])
    agent = Agent(
        model, tools=[quitting_tool(error, in_thread=in_thread), wait_long], journal=journal
    )
    with pytest.raises(type(error)) as raised:
        asyncio.run(agent.run("Go.", session="s", on_event=events.append))
    assert raised.value is error
    (end,) = ends_of(journal)
    assert end.outcome == "cancelled"
    assert end.reason == f"{type(error).__name__} was raised inside the run"
    assert [event for event in events if isinstance(event, RunEnded)] == [end]
    assert events[-1] == end
    check_trace(events)
    # What the call did is told, and the one beside it was stopped.
    (finished,) = [event for event in events if isinstance(event, CallFinished)]
    assert finished.result.text == f"{type(error).__name__}: the tool ended the program"


@pytest.mark.parametrize("error", EXITS, ids=lambda error: type(error).__name__)
def test_run_sync_and_stream_raise_it_too(error: BaseException) -> None:
    journal = MemoryJournal()
    tools = [quitting_tool(error, in_thread=False)]
    agent = Agent(ScriptedModel([call("leave"), "Going on."]), tools=tools, journal=journal)
    with pytest.raises(type(error)):
        agent.run_sync("Go.", session="s")
    assert len(ends_of(journal)) == 1
    # The agent still works: its background loop has not ended with the exception.
    assert agent.run_sync("Go on.", session="s").text == "Going on."

    seen: list[Event] = []

    async def watch() -> None:
        streamed = Agent(ScriptedModel([call("leave")]), tools=tools, journal=journal)
        async with streamed.stream("Go.", session="t") as events:
            async for event in events:
                seen.append(event)  # noqa: PERF401 - they are checked although the block raises

    with pytest.raises(type(error)):
        asyncio.run(watch())
    assert isinstance(seen[-1], RunEnded)


def test_a_sub_agent_ends_before_its_caller() -> None:
    journal = MemoryJournal()
    tools = [quitting_tool(SystemExit(3), in_thread=False)]
    clerk = Agent(ScriptedModel([call("leave")]), tools=tools, name="clerk")
    boss = Agent(
        ScriptedModel([call("clerk", {"task": "Go."})]), tools=[clerk.as_tool()], journal=journal
    )
    with pytest.raises(SystemExit):
        asyncio.run(boss.run("Go.", session="s"))
    assert len(ends_of(journal)) == 1
    nested = [one.session for one in asyncio.run(journal.sessions()) if one.session != "s"]
    assert len(nested) == 1
    assert isinstance(asyncio.run(journal.read(nested[0]))[-1], RunEnded)


def test_a_gate_an_approver_and_a_model_that_exit_end_the_run_as_well() -> None:
    class QuittingGate(FixedGate):
        @override
        async def judge(self, request: GateRequest) -> Any:
            raise SystemExit(4)

    async def quitting_approver(question: Question) -> None:
        raise KeyboardInterrupt

    def leave(prompt: Any) -> Any:
        raise SystemExit(5)

    worlds: list[tuple[dict[str, Any], list[Any]]] = [
        ({"gate": QuittingGate(Allow())}, [call("wait_long")]),
        ({"gate": FixedGate(Ask("May I?")), "approver": quitting_approver}, [call("wait_long")]),
        ({}, [leave]),
    ]
    for options, script in worlds:
        journal = MemoryJournal()
        agent = Agent(ScriptedModel(script), tools=[wait_long], journal=journal, **options)
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            asyncio.run(agent.run("Go.", session="s"))
        assert [end.outcome for end in ends_of(journal)] == ["cancelled"]


def test_the_next_run_of_the_session_is_valid() -> None:
    """X1: the call that ended the program has its result."""
    journal = MemoryJournal()
    tools = [quitting_tool(SystemExit(3), in_thread=True)]
    with ScriptedModel([[say("Bye."), call("leave")], "Back."]) as model:
        agent = Agent(model, tools=tools, journal=journal)
        with pytest.raises(SystemExit):
            agent.run_sync("Go.", session="s")
        agent.run_sync("Again.", session="s")
        kinds = [type(message) for message in model.prompts[-1].messages]
    assert kinds[-2:] == [ToolResults, UserMessage]
