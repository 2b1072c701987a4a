"""Answers that change the arguments of a call: they cannot bring in what was never shown (G6)."""

from typing import Any

import pytest

from windlass import Agent, tool
from windlass.core.errors import ConfigError, NothingToDo
from windlass.core.verdicts import Allow, AllowAlways, Ask, Modify
from windlass.journals.memory import MemoryJournal
from windlass.testing import FixedGate, ScriptedModel, call, say

pytestmark = pytest.mark.contract("G6")
paid: list[tuple[str, int]] = []


@tool
def pay(to: str, cents: int) -> str:
    """Pay somebody."""
    paid.append((to, cents))
    return "paid"


@pytest.fixture(autouse=True)
def _forget() -> None:
    paid.clear()


async def ask() -> tuple[Agent, str, str]:
    journal = MemoryJournal()
    script = [[call("pay", {"to": "ann", "cents": 5})], say("Done.")]
    agent = Agent(
        ScriptedModel(script), tools=[pay], gate=FixedGate(Ask("May it?")), journal=journal
    )
    (question,) = (await agent.run("Pay.", session="s")).questions
    return agent, question.call_id, question.digest


@pytest.mark.parametrize(
    "arguments",
    [
        {"to": "ann"},
        {"to": "ann", "cents": "5"},
        {"to": "ann", "cents": 5, "twice": True},
        {"to": ["ann", "bob"], "cents": 5},
        {"to": "ann", "cents": 5.5},
        {"to": "ann", "cents": None},
        {},
    ],
)
async def test_arguments_that_the_tool_does_not_take_are_refused(arguments: dict[str, Any]) -> None:
    agent, call_id, digest = await ask()
    with pytest.raises(ConfigError):
        await agent.answer("s", call_id, Modify(arguments, "edited"), digest=digest)
    assert paid == []
    # The question still waits for an answer.
    await agent.answer("s", call_id, Allow(), digest=digest)
    assert paid == [("ann", 5)]


async def test_an_edit_is_bound_to_the_arguments_that_were_shown() -> None:
    agent, call_id, _ = await ask()
    edit = Modify({"to": "bob", "cents": 5}, "edited")
    with pytest.raises(ConfigError, match="other arguments"):
        await agent.answer("s", call_id, edit, digest="0" * 64)
    assert paid == []


async def test_only_the_edited_call_runs_and_only_once() -> None:
    agent, call_id, digest = await ask()
    await agent.answer("s", call_id, Modify({"to": "ann", "cents": 3}, "less"), digest=digest)
    assert paid == [("ann", 3)]
    with pytest.raises(NothingToDo):
        await agent.answer("s", call_id, Modify({"to": "bob", "cents": 9}, "more"), digest=digest)
    assert paid == [("ann", 3)]


@pytest.mark.parametrize("pattern", ["bash(*)", "pay(", "other(*)", "pay(bob*)"])
async def test_an_always_for_another_call_than_the_one_that_was_shown_is_refused(
    pattern: str,
) -> None:
    agent, call_id, digest = await ask()
    with pytest.raises(ConfigError):
        await agent.answer("s", call_id, AllowAlways(pattern), digest=digest)
    assert paid == []
