"""A conversation that changes hands: one session, and the right agent after a crash."""

from collections.abc import Sequence
from typing import Any

import pytest

from windlass import Agent, ConfigError, hand_over_tool, run_with_handover
from windlass.agent.handover import find_hand_over
from windlass.core.events import RunStarted
from windlass.gates import Rule, RuleGate, ask
from windlass.journals.memory import MemoryJournal
from windlass.testing import ScriptedModel, call

TOOL = hand_over_tool({"clerk": "knows the parts", "smith": "welds"})


def hand_over(to: str, task: str = "Go on.") -> Any:
    return call("hand_over", {"to": to, "task": task})


def team(journal: MemoryJournal, **scripts: Sequence[Any]) -> dict[str, Agent[str]]:
    return {
        name: Agent(ScriptedModel(script), name=name, tools=[TOOL], journal=journal)
        for name, script in scripts.items()
    }


async def test_the_next_agent_sees_the_whole_conversation() -> None:
    """M1: one session, and the last agent has the last word."""
    journal = MemoryJournal()
    members = team(journal, desk=[hand_over("clerk", "Weigh it."), "One moment."], clerk=["2 t."])
    ended = await run_with_handover(members, "How heavy?", start="desk", session="s")
    assert (ended.agent, ended.result.text, ended.session) == ("clerk", "2 t.", "s")
    started = [fact for fact in await journal.read("s") if isinstance(fact, RunStarted)]
    prompts = [getattr(fact.prompt[0], "text", "") for fact in started]
    assert prompts == ["How heavy?", "Weigh it."]
    assert len(ended.result.messages) == 6


@pytest.mark.contract("J3")
async def test_a_program_that_died_goes_on_with_the_right_agent() -> None:
    """J3, M1: no run twice. The first program dies between two agents, the second one finishes."""
    journal = MemoryJournal()
    first = team(journal, desk=[hand_over("clerk"), "One moment."])
    with pytest.raises(ConfigError, match="no agent 'clerk'"):
        await run_with_handover(first, "How heavy?", start="desk", key="k")
    second = team(journal, desk=[], clerk=["2 t."])
    for _ in range(2):
        ended = await run_with_handover(second, "How heavy?", start="desk", key="k")
        assert (ended.agent, ended.result.text) == ("clerk", "2 t.")
    assert sum(isinstance(fact, RunStarted) for fact in await journal.read("k")) == 2


async def test_it_does_not_go_round_for_ever() -> None:
    """L7."""
    round_trip = [hand_over("smith"), "Yours.", hand_over("smith"), "Yours."]
    back = [hand_over("clerk"), "Yours.", hand_over("clerk"), "Yours."]
    members = team(MemoryJournal(), clerk=round_trip, smith=back)
    with pytest.raises(ConfigError, match="handed over 3 times"):
        await run_with_handover(members, "Hi", start="clerk", handovers_max=3)


async def test_a_hand_over_that_was_denied_is_none() -> None:
    """G3."""
    gate = RuleGate([Rule("deny", "hand_over")], default="allow")
    model = ScriptedModel([hand_over("clerk"), "I do it myself."])
    alone = {"desk": Agent(model, tools=[TOOL], gate=gate)}
    ended = await run_with_handover(alone, "Hi", start="desk")
    assert (ended.agent, ended.result.text) == ("desk", "I do it myself.")


async def test_a_run_that_waits_is_returned() -> None:
    from windlass import tool  # noqa: PLC0415

    @tool
    def weld() -> str:
        """Weld."""
        return "done"

    desk = Agent(ScriptedModel([call("weld")]), tools=[TOOL, weld], gate=ask())
    ended = await run_with_handover({"desk": desk}, "Hi", start="desk")
    assert ended.result.outcome == "suspended"
    assert find_hand_over(ended.result) is None


def test_it_needs_somebody_to_hand_over_to() -> None:
    with pytest.raises(ConfigError, match="at least one"):
        hand_over_tool({})
    assert "knows the parts" in TOOL.spec.description
