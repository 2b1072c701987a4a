"""Tool search: with many tools, the model is offered two that stand for all of them."""

import json
from typing import Any

import pytest

from windlass import Agent, ConfigError, LoopPolicy, tool
from windlass.agent.options import parts_of
from windlass.core.events import CallStarted, StepProposed
from windlass.core.messages import AssistantMessage, ToolCall, ToolResults
from windlass.core.tool_search import rewrap_call, unwrap_call
from windlass.core.transcript import fixed_tokens_max
from windlass.core.verdicts import Allow, Deny, Modify
from windlass.journals.memory import MemoryJournal
from windlass.ports import GateRequest
from windlass.testing import ScriptedModel, call
from windlass.testing.gates import FixedGate
from windlass.tools import Tool, Toolbox
from windlass.tools.search import ToolIndex

SCHEMA = {
    "type": "object",
    "properties": {"number": {"type": "integer", "description": "Which one."}},
    "required": ["number"],
}
ran: list[tuple[str, int]] = []


def make_tools(count: int) -> list[Tool[..., Any]]:
    """Make tools that record their calls."""
    ran.clear()

    def make(name: str) -> Tool[..., Any]:
        def work(number: int) -> str:
            ran.append((name, number))
            return f"{name} {number}"

        description = f"Works on the {name.split('_')[1]} of a plant, and reports on it at length."
        return Tool.from_schema(name, description, SCHEMA, work)

    parts = ("pump", "valve", "crane", "boiler", "winch")
    return [make(f"get_{parts[at % 5]}_{at}") for at in range(count)]


def wrapped(name: str, **arguments: object) -> object:
    return call("call_tool", {"name": name, "arguments": arguments})


async def test_a_model_with_many_tools_is_offered_two_that_never_change() -> None:
    script = [call("search_tools", {"query": "winch 44"}), wrapped("get_winch_44", number=7), "Ok."]
    model = ScriptedModel(script)
    agent = Agent(model, tools=make_tools(50), journal=MemoryJournal())
    result = await agent.run("Go.", session="s")
    offered = [[spec.name for spec in prompt.tools] for prompt in model.prompts]
    assert offered == [["search_tools", "call_tool"]] * 3
    assert ran == [("get_winch_44", 7)]
    found = result.messages[2]
    assert isinstance(found, ToolResults)
    first = json.loads(found.items[0].result.text.splitlines()[1])
    assert first["name"] == "get_winch_44"
    assert first["parameters"] == SCHEMA


async def test_few_tools_are_offered_as_they_are_and_the_bound_can_be_set() -> None:
    for count, rules, offers in (
        (40, LoopPolicy(), 40),
        (41, LoopPolicy(), 2),
        (41, LoopPolicy(tools_offered_max=0), 41),
        (5, LoopPolicy(tools_offered_max=4), 2),
    ):
        model = ScriptedModel(["Ok."])
        tools = Toolbox(make_tools(count))
        await Agent(model, tools=tools, rules=rules).run("Go.")
        shown = [spec for spec in model.prompts[0].tools if spec.name != "read_artifact"]
        assert len(shown) == offers, count


@pytest.mark.contract("G1", "G2")
async def test_the_gate_sees_the_inner_call_and_can_change_it() -> None:
    judged: list[tuple[str, object]] = []

    def judge(request: GateRequest) -> Allow | Deny | Modify:
        judged.append((request.tool.name, request.arguments))
        if request.tool.name == "get_valve_1":
            return Deny("not that one")
        return Modify({"number": 9}, "safer") if request.tool.name == "get_pump_0" else Allow()

    script = [wrapped("get_valve_1", number=1), wrapped("get_pump_0", number=2), "Ok."]
    agent = Agent(
        ScriptedModel(script),
        tools=make_tools(41),
        gate=FixedGate(judge),
        journal=MemoryJournal(),
    )
    result = await agent.run("Go.", session="s")
    assert judged == [("get_valve_1", {"number": 1}), ("get_pump_0", {"number": 2})]
    assert ran == [("get_pump_0", 9)]
    calls = [
        (made.name, json.loads(made.arguments))
        for message in result.messages
        if isinstance(message, AssistantMessage)
        for made in message.calls
    ]
    assert calls[1] == ("call_tool", {"name": "get_pump_0", "arguments": {"number": 9}})


@pytest.mark.contract("T4", "R3")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": "get_winch_99", "arguments": {}}, "There is no tool 'get_winch_99'."),
        ({"name": "get_pump_0", "arguments": {"number": "x"}}, "number"),
        ({"name": "get_pump_0"}, "pass one JSON object"),
        ({"arguments": {"number": 1}}, "pass one JSON object"),
        ({"name": "call_tool", "arguments": {"name": "get_pump_0"}}, "pass one JSON object"),
    ],
)
async def test_a_call_that_names_no_tool_or_does_not_fit_runs_nothing(
    arguments: dict[str, object], says: str
) -> None:
    agent = Agent(
        ScriptedModel([call("call_tool", arguments), "I see."]),
        tools=make_tools(41),
        journal=MemoryJournal(),
    )
    result = await agent.run("Go.", session="s")
    assert ran == []
    outcome = result.messages[2]
    assert isinstance(outcome, ToolResults)
    assert outcome.items[0].result.kind == "invalid"
    assert says in outcome.items[0].result.text


async def test_the_record_names_the_tool_that_ran() -> None:
    journal = MemoryJournal()
    script = [wrapped("get_pump_0", number=2), "Ok."]
    agent = Agent(ScriptedModel(script), tools=make_tools(41), journal=journal)
    await agent.run("Go.", session="s")
    facts = await journal.read("s")
    assert [fact.name for fact in facts if isinstance(fact, CallStarted)] == ["get_pump_0"]
    (proposed,) = [fact for fact in facts if isinstance(fact, StepProposed)][:1]
    assert proposed.reply.calls[0].name == "call_tool"


async def test_what_was_called_through_the_search_can_be_undone() -> None:
    booked: list[str] = []

    def give_back(_context: object, room: str) -> None:
        booked.remove(room)

    @tool(undo=give_back)
    def book(room: str) -> str:
        """Book a room."""
        booked.append(room)
        return room

    script = [wrapped("book", room="a"), "Ok."]
    agent = Agent(ScriptedModel(script), tools=[book, *make_tools(41)], journal=MemoryJournal())
    await agent.run("Go.", session="s")
    assert booked == ["a"]
    assert (await agent.undo("s")).completed
    assert booked == []


def test_tokens_of_the_first_request_with_200_tools() -> None:
    """A bound on tokens, as the runtime reserves them: what is offered costs a hundredth."""
    tools = make_tools(200)
    searched = parts_of(Agent(ScriptedModel([]), tools=tools)).setup
    rules = LoopPolicy(tools_offered_max=0)
    whole = parts_of(Agent(ScriptedModel([]), tools=tools, rules=rules)).setup
    few = fixed_tokens_max(searched, has_artifacts=False)
    all_of_them = fixed_tokens_max(whole, has_artifacts=False)
    assert few < 1_100
    assert all_of_them > 35 * few


def test_a_tool_with_the_name_of_the_search_is_refused() -> None:
    own = Tool.from_schema("search_tools", "Mine.", SCHEMA, lambda number: number)
    with pytest.raises(ConfigError, match="two tools are called 'search_tools'"):
        Agent(ScriptedModel([]), tools=[own, *make_tools(41)])


def test_the_search_finds_by_rare_words_names_first() -> None:
    specs = [each.spec for each in make_tools(50)]
    index = ToolIndex(specs)
    assert index.search("cranes")[0].name.startswith("get_crane_")
    assert len(index.search("plant")) == 8
    assert index.search("getBoiler13")[0].name == "get_boiler_13"
    assert index.search("xylophone") == []
    assert "No tool fits 'xylophone'." in index.describe("xylophone")


@pytest.mark.parametrize(
    "arguments", ['{"name":"a","arguments":{"x":1}}', '{"name":"a","arguments":"{\\"x\\":1}"}']
)
def test_a_call_is_unwrapped_and_comes_back_as_it_was(arguments: str) -> None:
    outer = ToolCall("c1", "call_tool", arguments, provider_id="p", signature="s")
    inner = unwrap_call(outer)
    assert (inner.id, inner.name, json.loads(inner.arguments)) == ("c1", "a", {"x": 1})
    assert rewrap_call(outer, inner, inner.arguments) is outer
    changed = rewrap_call(outer, inner, '{"x":2}')
    assert json.loads(changed.arguments) == {"name": "a", "arguments": {"x": 2}}
    assert (changed.id, changed.provider_id, changed.signature) == ("c1", "p", "s")
