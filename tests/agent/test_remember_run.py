"""Remembering at the end: a run of its own, gated, with provenance, and once."""

from pathlib import Path

import pytest

from windlass import Agent, Limits, RunStarted, knowledge_tools, remember_run, tool
from windlass.gates import Rule, RuleGate
from windlass.journals.memory import MemoryJournal
from windlass.knowledge import Memory, Scope, SqliteKnowledge
from windlass.testing import ScriptedModel, call

NOTE = call("remember", {"text": "Ann wants tonnes.", "scope": "user"})
ANN = Scope("user", "ann")


@tool(effect="read", untrusted=True)
def browse() -> str:
    """Browse."""
    return "a page"


@pytest.mark.contract("K1")
async def test_what_is_kept_has_its_source_and_labels(tmp_path: Path) -> None:
    """K1: also those that the run itself brought in; and once, however often it is asked for."""
    journal = MemoryJournal()
    with SqliteKnowledge(tmp_path / "k.db") as store:
        tools = [*knowledge_tools(Memory(store, user="ann", project="crane")), browse]
        model = ScriptedModel([call("browse"), "Two tonnes.", NOTE, "Done."])
        agent = Agent(model, tools=tools, journal=journal)
        result = await agent.run("How heavy?", session="s")
        for _ in range(2):
            kept = await remember_run(agent, result)
            assert kept is not None
            assert kept.run == 2
        (found,) = await store.recall("tonnes", [ANN], taints=frozenset(("untrusted", "private")))
    assert "session s" in str(found.sources[0])
    assert found.labels == {"untrusted"}
    assert sum(isinstance(fact, RunStarted) for fact in await journal.read("s")) == 2


async def test_the_gate_has_the_last_word(tmp_path: Path) -> None:
    """G3."""
    with SqliteKnowledge(tmp_path / "k.db") as store:
        gate = RuleGate([Rule("deny", "remember")], default="allow")
        tools = knowledge_tools(Memory(store, user="ann", project="crane"))
        agent = Agent(ScriptedModel(["2 t.", NOTE, "Not allowed."]), tools=tools, gate=gate)
        await remember_run(agent, await agent.run("How heavy?", session="s"))
        assert await store.recall("tonnes", [ANN]) == []


async def test_a_run_that_did_not_complete_is_left_alone() -> None:
    agent = Agent(ScriptedModel([call("browse")]), tools=[browse], limits=Limits(steps=1))
    result = await agent.run("Go", session="s")
    assert await remember_run(agent, result) is None
