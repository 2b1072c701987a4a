"""What a tool can reach of its run: data and functions, and none of the run's own objects."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from windlass import Agent, RunContext, tool
from windlass.core.messages import ToolResults
from windlass.gates.presets import allow_all
from windlass.journals.memory import MemoryJournal
from windlass.runtime.driver import RunDriver
from windlass.runtime.publisher import EventPublisher
from windlass.runtime.recorder import Recorder
from windlass.testing import ScriptedModel, VirtualClock, call

DEPTH_MAX = 8


def members(value: object) -> Iterator[object]:
    """Whatever an attribute or an item of a value leads to, and the owner of a bound method."""
    if inspect.ismethod(value):
        yield value.__self__
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from value
    for name in dir(value):
        if not name.startswith("__"):
            try:
                yield getattr(value, name)
            except Exception:  # noqa: BLE001 - a property that raises leads nowhere
                continue


def reachable(value: object) -> Iterator[object]:
    """Everything of ours that can be reached from a value by its attributes, in a few steps."""
    seen = {id(value)}
    layer = [value]
    for _ in range(DEPTH_MAX):
        following: list[object] = []
        for one in layer:
            for found in members(one):
                if id(found) not in seen:
                    seen.add(id(found))
                    yield found
                    if type(found).__module__.startswith("windlass") or inspect.ismethod(found):
                        following.append(found)
        layer = following


async def run_with_context(clock: VirtualClock, *agents: Agent[Any]) -> list[RunContext[None]]:
    contexts: list[RunContext[None]] = []

    @tool
    async def look(context: RunContext[None]) -> str:
        """Look around."""
        contexts.append(context)
        return "Seen."

    model = ScriptedModel([call("look", {}), "Done."])
    tools = [look, *(agent.as_tool(f"helper{n}") for n, agent in enumerate(agents))]
    journal = MemoryJournal()
    agent = Agent(model, tools=tools, gate=allow_all(), journal=journal, clock=clock)
    result = await agent.run("Go.", session="s")
    assert result.text == "Done."
    return contexts


@pytest.mark.contract("G1")
async def test_a_tool_reaches_no_journal_gate_or_model(clock: VirtualClock) -> None:
    [context] = await run_with_context(clock)
    for found in reachable(context):
        assert not isinstance(found, MemoryJournal | ScriptedModel | Recorder | RunDriver)
        assert not hasattr(type(found), "judge")
    assert context.blobs is not None
    assert not hasattr(context.blobs, "read")


async def test_a_tool_beside_a_sub_agent_reaches_no_more(clock: VirtualClock) -> None:
    helper = Agent(ScriptedModel(["Helped."]), name="helper")
    [context] = await run_with_context(clock, helper)
    assert not any(
        isinstance(found, MemoryJournal | ScriptedModel | EventPublisher)
        for found in reachable(context)
    )


async def test_a_sub_agent_still_has_the_journal_of_its_caller(clock: VirtualClock) -> None:
    journal = MemoryJournal()
    clerk = Agent(ScriptedModel(["The jib is built."]), name="clerk")
    model = ScriptedModel([call("clerk", {"task": "Build a jib."}), "Done."])
    boss = Agent(model, tools=[clerk.as_tool()], journal=journal, clock=clock)
    result = await boss.run("A crane.", session="s")
    told = [
        item.result.text
        for message in result.messages
        if isinstance(message, ToolResults)
        for item in message.items
    ]
    assert told == ["The jib is built."]
    assert await journal.read("s/c1_0")


async def test_a_sub_agent_outside_of_a_run_says_so() -> None:
    clerk = Agent(ScriptedModel([]), name="clerk")
    context: RunContext[None] = RunContext(deps=None)
    result = await clerk.as_tool()(context, task="Build a jib.")
    assert (result.kind, result.text) == ("error", "clerk can only work within a run")
