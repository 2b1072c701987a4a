"""Limits of one run: stricter than the agent's, and kept by whoever drives the run."""

import pytest

from windlass import Agent, Allow, ConfigError, Limits, tool
from windlass.agent.openings import LIMITS_KEY
from windlass.core.setup import ModelInfo
from windlass.gates import ask
from windlass.journals import MemoryJournal
from windlass.testing import ScriptedModel, call


@tool(effect="read")
def look(at: int) -> str:
    """Look at something."""
    return f"saw {at}"


@tool
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


@pytest.mark.contract("B1")
async def test_a_run_may_be_limited_more_strictly_than_its_agent() -> None:
    looks = [[call("look", {"at": number})] for number in range(3)]
    with ScriptedModel([looks[0], looks[0], looks[1], looks[2]]) as model:
        agent = Agent(model, tools=[look], limits=Limits(steps=3))
        strict = await agent.run("Look around.", limits=Limits(steps=1))
        assert (strict.outcome, strict.steps) == ("max_steps", 1)
        loose = await agent.run("Look around.", limits=Limits(steps=30))
        assert (loose.outcome, loose.steps) == ("max_steps", 3)


@pytest.mark.contract("B1")
async def test_the_limits_of_a_run_hold_for_the_next_driver() -> None:
    journal = MemoryJournal()
    ask_and_look = [[call("send", {"text": "hi"})], [call("look", {"at": 1})]]
    with ScriptedModel(ask_and_look) as model:
        options = {"tools": [look, send], "gate": ask(), "journal": journal}
        first = Agent(model, **options)
        waiting = await first.run("Send it.", session="s", limits=Limits(steps=2))
        assert waiting.outcome == "suspended"
        # Another driver, whose agent has the default limits of 25 steps.
        second = Agent(model, **options)
        call_id = waiting.questions[0].call_id
        ended = await second.answer("s", call_id, Allow())
        assert (ended.outcome, ended.steps) == ("max_steps", 2)


async def test_a_limit_in_the_context_is_not_loosened() -> None:
    with ScriptedModel([[call("look", {"at": 1})]]) as model:
        agent = Agent(model, tools=[look])
        context = {LIMITS_KEY: {"steps": 1}}
        ended = await agent.run("Look.", context=context, limits=Limits(steps=5))
        assert ended.steps == 1


async def test_money_is_not_limited_without_a_price() -> None:
    with ScriptedModel([], info=ModelInfo("scripted:unpriced")) as model:
        agent = Agent(model)
        with pytest.raises(ConfigError, match="price"):
            await agent.run("Hi", limits=Limits(usd=1))
