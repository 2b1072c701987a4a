"""The gates in a run: what they decide is on record, and the model hears of it."""

import pytest

from windlass import Agent
from windlass.core.events import CallJudged
from windlass.core.messages import ToolResults
from windlass.core.verdicts import Allow, AllowAlways, Deny
from windlass.gates.cedar import CedarGate
from windlass.gates.combined import all_of
from windlass.gates.presets import ask, read_only
from windlass.gates.redaction import redact
from windlass.gates.rules import Rule, RuleGate
from windlass.journals.memory import MemoryJournal
from windlass.testing import ScriptedModel, VirtualClock, call
from windlass.tools.function import tool

RAN: list[str] = []


@tool
def bash(command: str) -> str:
    """Run a command."""
    RAN.append(command)
    return "done"


@pytest.mark.contract("G2")
async def test_a_command_that_hides_another_is_denied_on_record(clock: VirtualClock) -> None:
    RAN.clear()
    journal = MemoryJournal()
    gate = RuleGate([Rule("allow", "bash(git status*)")], default="deny", name="mine")
    script = [
        call("bash", {"command": "git status"}),
        call("bash", {"command": "git status && rm -rf x"}),
        "Done.",
    ]
    with ScriptedModel(script) as model:
        agent = Agent(model, tools=[bash], gate=gate, journal=journal, clock=clock)
        result = await agent.run("Look.", session="s")
    assert (result.text, RAN) == ("Done.", ["git status"])
    verdicts = [fact.verdict for fact in await journal.read("s") if isinstance(fact, CallJudged)]
    told = "Not allowed: no rule decides `rm -rf x`."
    assert verdicts == [
        Allow("mine: allow bash(git status*)"),
        Deny(told, "mine: default deny"),
    ]
    kinds = [
        (item.result.kind, told in item.result.text)
        for message in result.messages
        if isinstance(message, ToolResults)
        for item in message.items
    ]
    assert kinds == [("value", False), ("denied", True)]


@pytest.mark.contract("G5")
async def test_read_only_lets_nothing_happen(clock: VirtualClock) -> None:
    RAN.clear()
    replies = RuleGate([], default="allow", reply=["*secret*"])
    with ScriptedModel([call("bash", {"command": "ls"}), "The secret.", "Nothing."]) as model:
        agent = Agent(model, tools=[bash], gate=all_of(read_only(), replies), clock=clock)
        result = await agent.run("Look.")
    assert (result.text, result.gated, RAN) == ("Nothing.", True, [])


@pytest.mark.contract("T4")
async def test_a_person_is_asked_about_what_is_left_and_that_is_what_runs(
    clock: VirtualClock,
) -> None:
    RAN.clear()
    gate = all_of(redact("sk-[a-z]+"), ask())
    first, second = (call("bash", {"command": f"login sk-{key}"}) for key in ("abcd", "efgh"))
    with ScriptedModel([first, second, "In."]) as model:
        agent = Agent(model, tools=[bash], gate=gate, clock=clock)
        held = await agent.run("Log in.")
        (question,) = held.questions
        assert question.arguments == {"command": "login [redacted]"}
        assert "Redacted in command." in question.question
        assert RAN == []
        result = await agent.answer(
            held.session_id, question.call_id, AllowAlways(), digest=question.digest
        )
    assert (result.text, RAN) == ("In.", ["login [redacted]"] * 2)
    assert "sk-" not in repr([one for one in result.messages if isinstance(one, ToolResults)])


@pytest.mark.contract("G4")
async def test_cedar_hears_of_the_agent_its_caller_and_the_programs_own_words(
    clock: VirtualClock,
) -> None:
    RAN.clear()
    gate = CedarGate(
        """permit (principal == Agent::"clerk", action == Action::"call", resource == Tool::"bash")
        when { context.caller == "ann" && context.trusted.desk == 4 };"""
    )
    script = [call("bash", {"command": "ls"}), "Done."]
    for caller in ("ann", "bob"):
        with ScriptedModel(script) as model:
            agent = Agent(model, name="clerk", tools=[bash], gate=gate, clock=clock)
            await agent.run("Look.", caller=caller, context={"desk": 4})
    assert RAN == ["ls"]
