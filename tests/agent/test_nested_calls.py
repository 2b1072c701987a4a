"""Calls that code makes: judged, recorded and run like any other, in a session of their own."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from windlass import (
    Agent,
    Allow,
    AllowAlways,
    CallFinished,
    Deny,
    Event,
    Limits,
    LoopPolicy,
    Modify,
    NestedEvent,
    RunEnded,
    RunResult,
    RunStarted,
    ToolResults,
    tool,
)
from windlass.agent.handover import hand_over_tool
from windlass.core.audit.replay import replay
from windlass.core.events import CallJudged, CallStarted
from windlass.core.fold.run import fold
from windlass.core.mail import CancelMail, PauseMail, SteerMail
from windlass.core.messages import TextPart, ToolResult
from windlass.gates.combined import all_of
from windlass.gates.data_flow import flow_guard
from windlass.gates.presets import allow_all, ask
from windlass.journals.memory import MemoryJournal
from windlass.ports import CallerRun, GateRequest, NestedCall
from windlass.testing import FixedGate, PowerCutJournal, ScriptedModel, VirtualClock, call
from windlass.tools import RunContext, Tool
from windlass.tools.shell.interpreter import add_nested, nest_calls, reconcile_code

SCHEMA = {
    "type": "object",
    "properties": {"code": {"type": "string"}},
    "required": ["code"],
    "additionalProperties": False,
}
Calls = Sequence[tuple[str, dict[str, Any]]]


class ListedCalls:
    """Stands in for code: makes the calls of a list, whatever their results are."""

    def __init__(self, code: str, heard: list[ToolResult]) -> None:
        self._calls = json.loads(code)
        self._heard = heard

    async def next_call(self, last: ToolResult | None) -> NestedCall | None:
        if last is not None:
            self._heard.append(last)
        if not self._calls:
            return None
        name, arguments = self._calls.pop(0)
        return NestedCall(name, json.dumps(arguments))


def code_tool(heard: list[ToolResult] | None = None, timeout: float = 60.0) -> Tool[..., Any]:
    """A tool whose code is a list of calls in JSON."""

    async def unbound(context: RunContext, code: str) -> str:
        raise AssertionError((context, code))

    def bind_run(run: CallerRun) -> Any:
        async def run_code(context: RunContext, code: str) -> ToolResult:
            nested = nest_calls(run, context, code)
            assert nested is not None
            await nested.run(ListedCalls(code, [] if heard is None else heard))
            return await add_nested(ToolResult.from_text("value", "Ran."), nested)

        return run_code

    built = Tool[..., Any].from_schema("python", "Runs code.", SCHEMA, unbound, timeout=timeout)
    return replace(
        built, bind_run=bind_run, bind_reconcile=lambda run: partial(reconcile_code, run)
    )


def run_code(calls: Calls) -> Any:
    return call("python", {"code": json.dumps(calls)})


def results(result: RunResult[Any]) -> list[ToolResult]:
    return [
        item.result
        for message in result.messages
        if isinstance(message, ToolResults)
        for item in message.items
    ]


class Till:
    """A tool whose effects are counted."""

    def __init__(self) -> None:
        self.paid: list[int] = []

        @tool
        def pay(amount: int) -> str:
            """Pay an amount."""
            self.paid.append(amount)
            return f"paid {amount}"

        self.tool = pay


@tool(effect="read", untrusted=True)
def fetch(page: str) -> str:
    """Fetch a page."""
    return f"text of {page}"


@tool(effect="read", private=True)
def diary() -> str:
    """Read the diary."""
    return "Dear diary"


@tool(external=True)
def post(text: str) -> str:
    """Post a text."""
    return f"posted {text}"


@pytest.mark.contract("G1", "M1")
async def test_a_call_of_code_is_a_fact_of_a_session_that_works_for_the_run() -> None:
    """Judged by the gate of the run, under the name of its agent, with the arguments as given."""
    till, journal, heard = Till(), MemoryJournal(), list[ToolResult]()
    requests: list[GateRequest] = []

    def judge(request: GateRequest) -> Allow | Deny | Modify:
        requests.append(request)
        if request.arguments.get("amount") == 7:
            return Deny("not seven", "no-sevens")
        if request.arguments.get("amount") == 8:
            return Modify({"amount": 80}, "rather more")
        return Allow()

    calls = [("pay", {"amount": 6}), ("pay", {"amount": 7}), ("pay", {"amount": 8})]
    agent = Agent(
        ScriptedModel([run_code(calls), "Done."]),
        name="clerk",
        tools=[code_tool(heard), till.tool],
        gate=FixedGate(judge),
        journal=journal,
    )
    seen: list[Event] = []
    result = await agent.run("Go.", session="s", caller="ada", on_event=seen.append)
    assert result.text == "Done."
    assert till.paid == [6, 80]
    assert [one.kind for one in heard] == ["value", "denied", "value"]
    assert "not seven" in heard[1].text
    assert [(one.tool.name, one.agent, one.caller) for one in requests] == [
        ("python", "clerk", "ada"),
        *[("pay", "clerk", "ada")] * 3,
    ]
    facts = await journal.read("s/c1_0")
    assert isinstance(facts[0], RunStarted)
    assert facts[0].parent == "s/c1_0"
    assert isinstance(facts[-1], RunEnded)
    assert facts[-1].outcome == "completed"
    started = [fact.key for fact in facts if isinstance(fact, CallStarted)]
    assert started == ["s/c1_0/c1_0", "s/c1_0/c3_0"]
    verdicts = [type(fact.verdict) for fact in facts if isinstance(fact, CallJudged)]
    assert verdicts == [Allow, Deny, Modify]
    nested = [one for one in seen if isinstance(one, NestedEvent)]
    assert [one.event.seq for one in nested if isinstance(one.event, CallFinished)]
    listed = await journal.sessions(parent="s")
    assert [one.session for one in listed] == ["s/c1_0"]
    for session in ("s", "s/c1_0"):
        assert replay(session, await journal.read(session)).is_same
    # It stands in for a model, and costs nothing.
    assert {one.model for one in result.ledger.charges} == {"scripted:model"}


@pytest.mark.contract("T3", "R1")
async def test_arguments_of_code_are_checked_against_the_schema_and_names_against_the_tools() -> (
    None
):
    till, heard = Till(), list[ToolResult]()
    calls = [("pay", {"amount": "a lot"}), ("pay", {}), ("buy", {"amount": 1})]
    with ScriptedModel([run_code(calls), "Done."]) as model:
        await Agent(model, tools=[code_tool(heard), till.tool]).run("Go.")
    assert till.paid == []
    assert [one.kind for one in heard] == ["invalid"] * 3
    assert "expected integer" in heard[0].text
    assert "There is no tool 'buy'" in heard[2].text


@pytest.mark.contract("G2", "G6")
async def test_what_would_be_asked_is_denied_with_the_advice_to_call_the_tool_directly() -> None:
    """Also if somebody could answer at once. What was granted to the run counts."""
    till, heard, asked = Till(), list[ToolResult](), list[str]()

    def approve(question: Any) -> bool:
        asked.append(question.tool)
        return True

    with ScriptedModel([run_code([("pay", {"amount": 6})]), "Done."]) as model:
        agent = Agent(model, tools=[code_tool(heard), till.tool], gate=ask(), approver=approve)
        await agent.run("Go.")
    assert asked == ["python"]
    assert till.paid == []
    assert heard[0].kind == "denied"
    assert "Call pay directly, not from python" in heard[0].text


@pytest.mark.contract("G6")
async def test_what_a_person_granted_to_the_run_is_allowed_in_code() -> None:
    till, heard = Till(), list[ToolResult]()

    def approve(question: Any) -> Any:
        return AllowAlways(question.tool)

    script = [call("pay", {"amount": 1}), run_code([("pay", {"amount": 6})]), "Done."]
    with ScriptedModel(script) as model:
        agent = Agent(model, tools=[code_tool(heard), till.tool], gate=ask(), approver=approve)
        await agent.run("Go.")
    assert till.paid == [1, 6]


@pytest.mark.contract("G7")
async def test_labels_of_what_code_called_are_labels_of_its_result() -> None:
    """Private and untrusted text that only code has read is held by the session all the same."""
    heard: list[ToolResult] = []
    script = [
        run_code([("fetch", {"page": "a"}), ("diary", {}), ("post", {"text": "leak"})]),
        call("post", {"text": "leak"}),
        "Done.",
    ]
    journal = MemoryJournal()
    agent = Agent(
        ScriptedModel(script),
        tools=[code_tool(heard), fetch, diary, post],
        gate=all_of(allow_all(), flow_guard()),
        journal=journal,
    )
    result = await agent.run("Go.", session="s")
    # In code it would have to be asked about, so it is denied; the direct call is a question.
    assert [one.kind for one in heard] == ["value", "value", "denied"]
    assert result.outcome == "suspended"
    assert [one.tool for one in result.questions] == ["post"]
    state = fold("s", await journal.read("s"))
    assert {"untrusted", "private"} <= state.labels
    assert dict(state.sources)["private"] == "python (c1_0)"


@pytest.mark.contract("G7")
async def test_what_the_session_holds_already_counts_in_code() -> None:
    heard: list[ToolResult] = []
    script = [
        call("fetch", {"page": "a"}),
        call("diary", {}),
        run_code([("post", {"text": "leak"})]),
        "Done.",
    ]
    with ScriptedModel(script) as model:
        tools = [code_tool(heard), fetch, diary, post]
        await Agent(model, tools=tools, gate=all_of(allow_all(), flow_guard())).run("Go.")
    assert [one.kind for one in heard] == ["denied"]


async def test_code_that_calls_nothing_untrusted_brings_no_label_along() -> None:
    journal = MemoryJournal()
    with ScriptedModel([run_code([]), "Done."]) as model:
        await Agent(model, tools=[code_tool(), fetch, diary], journal=journal).run(
            "Go.", session="s"
        )
    assert fold("s", await journal.read("s")).labels == frozenset()


async def test_tools_that_only_a_model_can_call_are_left_out() -> None:
    """The interpreter itself, sub-agents and the hand-over: code must not be nested or replaced."""
    heard: list[ToolResult] = []
    clerk = Agent(ScriptedModel([]), name="clerk").as_tool()
    names = ("python", "clerk", "hand_over")
    arguments = [{"code": "[]"}, {"task": "Go."}, {"to": "ada", "task": "Go."}]
    calls = list(zip(names, arguments, strict=True))
    with ScriptedModel([run_code(calls), "Done."]) as model:
        tools = [code_tool(heard), clerk, hand_over_tool({"ada": "knows all"}), diary]
        await Agent(model, tools=tools).run("Go.")
    assert [one.kind for one in heard] == ["invalid"] * 3


@pytest.mark.contract("T7")
async def test_code_gets_a_long_result_whole() -> None:
    heard: list[ToolResult] = []

    @tool(effect="read")
    def book() -> str:
        """Read a book."""
        return "word " * 20_000

    with ScriptedModel([run_code([("book", {})]), "Done."]) as model:
        await Agent(model, tools=[code_tool(heard), book]).run("Go.")
    assert heard[0].text == "word " * 20_000


async def test_what_code_did_can_be_undone_in_its_own_session() -> None:
    journal, taken_back = MemoryJournal(), list[int]()

    def take_back(context: RunContext, amount: int) -> str:
        assert context.undoes is not None
        taken_back.append(amount)
        return "taken back"

    @tool(undo=take_back)
    def pay(amount: int) -> str:
        """Pay an amount."""
        return f"paid {amount}"

    calls = [("pay", {"amount": 1}), ("pay", {"amount": 2})]
    model = ScriptedModel([run_code(calls), "Done."])
    agent = Agent(model, tools=[code_tool(), pay], journal=journal)
    await agent.run("Go.", session="s")
    await agent.undo("s/c1_0")
    assert taken_back == [2, 1]


@pytest.mark.contract("D5", "D12")
@pytest.mark.parametrize(
    ("mail", "texts"),
    [
        (SteerMail(run=1, prompt=(TextPart("Hurry."),)), ["1", "2"]),
        (PauseMail(run=1), []),
        (CancelMail(run=1), []),
    ],
)
async def test_what_is_said_to_the_session_of_code_confuses_nobody(
    clock: VirtualClock, mail: Any, texts: list[str]
) -> None:
    """Code can be ended from outside, but neither steered nor continued later."""
    journal, heard = MemoryJournal(now=clock.now), list[ToolResult]()

    @tool
    async def mark(amount: int) -> int:
        """Mark an amount."""
        if amount == 1:
            await journal.post_mail("s/c1_0", mail, by="ann")
            await asyncio.sleep(5)
        return amount

    calls = [("mark", {"amount": 1}), ("mark", {"amount": 2})]
    model = ScriptedModel([run_code(calls), "Done."])
    agent = Agent(model, tools=[code_tool(heard), mark], journal=journal, clock=clock)
    result = await agent.run("Go.", session="s")
    assert result.text == "Done."
    assert [one.text for one in heard] == texts
    assert isinstance((await journal.read("s/c1_0"))[-1], RunEnded)


@pytest.mark.contract("C4", "C6")
@pytest.mark.parametrize("how", ["cancel", "time-out", "limit"])
async def test_the_end_of_the_call_ends_the_calls_of_its_code(
    clock: VirtualClock, how: str
) -> None:
    journal, began, ended = MemoryJournal(), asyncio.Event(), list[str]()

    @tool
    async def work() -> None:
        """Work for long."""
        began.set()
        try:
            await asyncio.sleep(1_000)
        finally:
            ended.append("work")

    model = ScriptedModel([run_code([("work", {})]), "Done."])
    python = code_tool(timeout=5.0 if how == "time-out" else 60.0)
    limits = Limits(seconds=5.0 if how == "limit" else None)
    agent = Agent(model, tools=[python, work], journal=journal, clock=clock, limits=limits)
    running = asyncio.create_task(agent.run("Go.", session="s"))
    await began.wait()
    if how == "cancel":
        agent.cancel("s")
    await asyncio.wait({running})
    await agent.aclose()
    assert ended == ["work"]
    last = (await journal.read("s/c1_0"))[-1]
    assert isinstance(last, RunEnded)
    assert last.outcome == "cancelled"


@pytest.mark.contract("J2", "J4")
@pytest.mark.parametrize("on_unknown", ["tell", "ask"])
async def test_no_effect_of_code_happens_twice_after_a_crash(
    clock: VirtualClock, on_unknown: Any
) -> None:
    """At each record of both sessions in turn, before and after it is written."""

    def make_agent(till: Till, journal: Any) -> Agent[str]:
        def say(prompt: Any) -> Any:
            given = any(isinstance(one, ToolResults) for one in prompt.messages)
            return "Done." if given else run_code([("pay", {"amount": 1}), ("pay", {"amount": 2})])

        return Agent(
            ScriptedModel([say] * 9),
            tools=[code_tool(), till.tool],
            journal=journal,
            clock=clock,
            rules=LoopPolicy(on_unknown=on_unknown),
        )

    told = 0
    for at in range(2, 60):
        for when in ("before", "after"):
            store, till = MemoryJournal(), Till()
            cut = PowerCutJournal(store, at, when)
            try:
                await make_agent(till, cut).run("Go.", session="s")
            except BaseException:
                if not cut.dead:
                    raise
            if not cut.dead:
                assert told > 5
                return
            await asyncio.sleep(5)
            facts = await store.read("s")
            if not facts or isinstance(facts[-1], RunEnded):
                continue
            result = await make_agent(till, store).resume("s")
            paid = till.paid
            assert len(paid) == len(set(paid)), (at, when)
            if on_unknown == "ask" and not paid:
                continue  # Nothing had happened in it: a person is asked, as for any write.
            assert result.completed, (at, when)
            (outcome,) = results(result)
            if outcome.kind == "unknown" and paid:
                told += 1
                assert 'pay({"amount": 1})' in outcome.text, (at, when)
            child = await store.read("s/c1_0")
            # No session is left open behind the run.
            assert not child or isinstance(child[-1], RunEnded), (at, when)
            assert {one.model for one in result.ledger.charges} == {"scripted:model"}
    raise AssertionError("the run never came to its end")
