"""What a running call asks for: an answer of a person, and a reply of the run's model."""

import asyncio
from decimal import Decimal
from typing import Any, Literal

import pytest

from windlass import (
    Agent,
    Allow,
    Budget,
    Deny,
    Limits,
    ModelInfo,
    Modify,
    NestedEvent,
    Price,
    Question,
    RunContext,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolResults,
    tool,
)
from windlass.core.events import Fact
from windlass.core.fold.run import fold
from windlass.core.mail import PauseMail
from windlass.core.messages import ToolSpec
from windlass.gates.presets import allow_all, read_only
from windlass.journals.memory import MemoryJournal
from windlass.ports import ModelRequest
from windlass.testing import (
    FixedGate,
    PowerCutJournal,
    ScriptedModel,
    ScriptedReply,
    VirtualClock,
    call,
    drop,
    pause,
    say,
    stall,
)

SPEC = ToolSpec(
    "ask_model",
    "Asks a model.",
    {
        "type": "object",
        "properties": {
            "prompt": {"type": "string"},
            "instructions": {"type": "string"},
            "max_tokens": {"type": "integer"},
        },
        "required": ["prompt"],
        "additionalProperties": False,
    },
)


def request(prompt: str = "Write a line.", occurrence: int = 1, **more: Any) -> ModelRequest:
    arguments = {"prompt": prompt, **more}
    return ModelRequest(tool=SPEC, arguments=arguments, question="May it?", occurrence=occurrence)


def make_tool(
    *requests: ModelRequest, effect: Literal["read", "idempotent", "write"] = "idempotent"
) -> Any:
    @tool(effect=effect, retries=0)
    async def poem(context: RunContext[None]) -> str:
        """Have something written."""
        assert context.call is not None
        replies = [await context.call.ask_model(one) for one in requests]
        return "; ".join(reply.refusal or f"{reply.model}: {reply.text}" for reply in replies)

    return poem


def results(messages: Any) -> list[str]:
    given = [one for one in messages if isinstance(one, ToolResults)]
    return [item.result.text for one in given for item in one.items]


@pytest.mark.contract("M1")
async def test_a_model_writes_for_a_call_in_a_session_of_its_own(clock: VirtualClock) -> None:
    """The run pays, the words are not in its transcript, and watchers see who writes."""
    journal = MemoryJournal()
    events: list[Any] = []
    script = [call("poem"), "A line.", "Done."]
    asked = request(instructions="Rhyme.", max_tokens=50)
    with ScriptedModel(script, truthful=True) as model:
        agent = Agent(
            model, tools=[make_tool(asked)], gate=allow_all(), journal=journal, clock=clock
        )
        result = await agent.run("Go.", session="s", on_event=events.append)
    assert results(result.messages) == [f"{model.info.name}: A line."]
    nested = fold("s/c1_0.model1", await journal.read("s/c1_0.model1"))
    assert nested.setup is not None
    assert (nested.setup.instructions, nested.setup.tools) == ("Rhyme.", ())
    assert nested.setup.model.output_max == 50
    paid = [charge.usage for charge in result.ledger.charges if charge.purpose == "subagent"]
    assert paid == [nested.ledger.usage]
    assert {one.agent for one in events if isinstance(one, NestedEvent)} == {"ask_model"}
    started = (await journal.read("s/c1_0.model1"))[0]
    assert isinstance(started, RunStarted)
    assert started.parent == "s/c1_0"
    assert "allow" in started.context["allowed_by"]


@pytest.mark.contract("G1")
@pytest.mark.parametrize(
    ("gate", "answer", "expected"),
    [
        (None, None, "nobody could be asked for permission"),
        (None, Deny("not this"), "not this"),
        (None, Allow(), "scripted:model: A line."),
        (None, Modify({"prompt": "Better."}, "so"), "scripted:model: A line."),
        (None, Modify({"prompt": 1}, "so"), "the arguments that were put in do not fit"),
        (FixedGate(Deny("the policy says no")), Allow(), "the policy says no"),
        (FixedGate(Modify({"nonsense": 1}, "so")), Allow(), "do not fit"),
    ],
)
async def test_a_model_writes_only_if_somebody_allows_it(
    clock: VirtualClock, gate: Any, answer: Any, expected: str
) -> None:
    """Without a gate, a person is asked; if there is nobody, nothing is written."""
    asked: list[Question] = []

    async def approver(question: Question) -> Any:
        asked.append(question)
        return answer if question.is_live else True

    class OnlyRequests:
        """Judges what the call asks for, and lets the call itself run."""

        name = "only-requests"
        judges_replies = False

        async def judge(self, request: Any) -> Any:
            return Allow() if request.tool.name == "poem" else await gate.judge(request)

        async def judge_reply(self, session: str, text: str) -> Any:
            return Allow()

    refuses = "A line." not in expected
    model = ScriptedModel([call("poem"), *([] if refuses else ["A line."]), "Done."])
    chosen: dict[str, Any] = {"approver": approver}
    if gate is not None:
        chosen = {"approver": approver, "gate": OnlyRequests()}
    agent = Agent(model, tools=[make_tool(request())], clock=clock, **chosen)
    result = await agent.run("Go.")
    assert expected in results(result.messages)[0]
    live = [question for question in asked if question.is_live]
    assert len(live) == (gate is None)
    if isinstance(answer, Modify) and not refuses:
        assert "Better." in str(model.prompts[1].messages)


async def test_a_call_without_gate_and_person_has_nothing_written(clock: VirtualClock) -> None:
    """G1: no gate allows every call of a tool, and yet nothing that a call asks a model for."""
    model = ScriptedModel([call("poem"), "Done."])
    agent = Agent(model, tools=[make_tool(request())], clock=clock)
    result = await agent.run("Go.")
    assert results(result.messages) == ["nobody could be asked for permission"]


@pytest.mark.contract("J2")
@pytest.mark.parametrize("effect", ["idempotent", "write"])
async def test_nothing_that_was_written_is_paid_twice(
    clock: VirtualClock, effect: Literal["idempotent", "write"]
) -> None:
    """A power cut at each record in turn: each request has one session, and the run pays for it."""
    requests = [request("one"), request("two"), request("one", occurrence=2)]

    def says(prompt: Any) -> ScriptedReply:
        if not prompt.tools:
            return f"Wrote {prompt.messages[0].parts[0].text}."
        given = any(isinstance(one, ToolResults) for one in prompt.messages)
        return "Done." if given else call("poem")

    def make_agent(journal: Any) -> Agent[str]:
        model = ScriptedModel([says] * 30, truthful=True)
        tools = [make_tool(*requests, effect=effect)]
        return Agent(model, tools=tools, gate=allow_all(), journal=journal, clock=clock)

    crashes = 0
    for at in range(2, 60):
        for when in ("before", "after"):
            store = MemoryJournal()
            cut = PowerCutJournal(store, at, when)
            try:
                await make_agent(cut).run("Go.", session="s")
            except BaseException:
                if not cut.dead:
                    raise
            if not cut.dead:
                assert crashes > 15
                return
            crashes += 1
            await asyncio.sleep(5)
            facts = await store.read("s")
            if not facts or isinstance(facts[-1], RunEnded):
                continue
            result = await make_agent(store).resume("s")
            assert result.completed, (at, when)
            names = [f"s/c1_0.model{nth}" for nth in (1, 2, 3, 4)]
            children = [fold(name, await store.read(name)) for name in names]
            begun = [child for child in children if child.seq]
            assert all(not child.is_active for child in begun), (at, when)
            if effect == "idempotent":
                wrote = "Wrote one.; scripted:model: Wrote two.; scripted:model: Wrote one."
                assert results(result.messages) == [f"scripted:model: {wrote}"], (at, when)
                assert len(begun) == 3, (at, when)
            paid = [one.usage for one in result.ledger.charges if one.purpose == "subagent"]
            spent = [child.ledger.usage for child in begun if child.ledger.usage]
            total = sum((one.total for one in paid if one), 0)
            assert total == sum(one.total for one in spent), (at, when)
    raise AssertionError("the run never came to its end")


@pytest.mark.contract("L1")
async def test_a_call_asks_within_what_the_run_may_spend(clock: VirtualClock) -> None:
    """Each reply lowers what is left; when nothing is left, the call is told so."""
    price = Price(Decimal(10), Decimal(10))
    info = ModelInfo("scripted:model", price=price, output_max=100)
    requests = [request("x" * 400, occurrence=nth) for nth in range(1, 9)]
    script: list[ScriptedReply] = [call("poem"), *["y" * 100] * 8, "Done."]
    model = ScriptedModel(script, info=info, truthful=True)
    agent = Agent(
        model,
        tools=[make_tool(*requests)],
        gate=allow_all(),
        limits=Limits(usd="0.014"),
        clock=clock,
    )
    result = await agent.run("Go.")
    assert result.cost is not None
    assert result.cost <= Decimal("0.014")
    (told,) = results(result.messages)
    written = told.count("scripted:model")
    assert 0 < written < 8
    assert told.count("the model wrote nothing: budget") == 8 - written


@pytest.mark.contract("L2")
async def test_a_shared_budget_covers_what_calls_ask_for(clock: VirtualClock) -> None:
    journal = MemoryJournal()
    budget = Budget("team", usd="1")
    info = ModelInfo("scripted:model", price=Price(Decimal(10), Decimal(10)), output_max=100)
    model = ScriptedModel([call("poem"), "A line.", "Done."], info=info, truthful=True)
    agent = Agent(
        model,
        tools=[make_tool(request())],
        gate=allow_all(),
        budgets=[budget],
        journal=journal,
        clock=clock,
    )
    result = await agent.run("Go.")
    assert (await journal.read_spending(budget)).usd == result.cost


async def test_a_call_has_only_so_many_replies_written(clock: VirtualClock) -> None:
    """L1: a tool, or the server behind it, cannot keep a model busy for ever."""
    requests = [request(str(nth)) for nth in range(11)]
    model = ScriptedModel([call("poem"), *["A line."] * 10, "Done."])
    agent = Agent(model, tools=[make_tool(*requests)], gate=allow_all(), clock=clock)
    result = await agent.run("Go.")
    assert results(result.messages)[0].endswith("a call may ask a model at most 10 times")


@pytest.mark.contract("C6")
async def test_what_a_model_writes_for_a_call_ends_with_the_run(clock: VirtualClock) -> None:
    journal = MemoryJournal()
    model = ScriptedModel([call("poem"), [say("Half a "), stall()]], truthful=True)
    agent = Agent(
        model, tools=[make_tool(request())], gate=allow_all(), journal=journal, clock=clock
    )
    running = asyncio.create_task(agent.run("Go.", session="s"))
    while len(model.prompts) < 2:  # noqa: ASYNC110 - a model tells nobody
        await asyncio.sleep(0.01)
    agent.cancel("s", "enough")
    assert (await running).outcome == "cancelled"
    await asyncio.sleep(1)
    last = (await journal.read("s/c1_0.model1"))[-1]
    assert isinstance(last, RunEnded)
    assert last.outcome == "cancelled"


@pytest.mark.contract("D12")
async def test_a_late_watcher_is_shown_what_a_model_writes_from_its_first_fact(
    clock: VirtualClock,
) -> None:
    """D12: a watcher that comes while the model writes misses nothing of that session."""
    journal = MemoryJournal()
    model = ScriptedModel([call("poem"), [say("A "), pause(2), say("line.")], "Done."])
    agent = Agent(
        model, tools=[make_tool(request())], gate=allow_all(), journal=journal, clock=clock
    )
    running = asyncio.create_task(agent.run("Go.", session="s"))
    while len(model.prompts) < 2:  # noqa: ASYNC110 - a model tells nobody
        await asyncio.sleep(0.01)
    await asyncio.sleep(1)
    shown = [one.event async for one in agent.watch("s") if isinstance(one, NestedEvent)]
    await running
    facts = await journal.read("s/c1_0.model1")
    assert [one for one in shown if isinstance(one, Fact)] == list(facts)
    assert "".join(one.text for one in shown if isinstance(one, TextDelta)) == "A line."


@pytest.mark.contract("D3")
async def test_a_request_that_is_paused_from_outside_ends_with_its_call(
    clock: VirtualClock,
) -> None:
    """D3: the call gets a refusal and is over, so that no run would come for an open session."""
    journal = MemoryJournal()
    model = ScriptedModel([call("poem"), [say("A "), pause(2), drop()], "Done."])
    agent = Agent(
        model, tools=[make_tool(request())], gate=allow_all(), journal=journal, clock=clock
    )
    running = asyncio.create_task(agent.run("Go.", session="s"))
    while len(model.prompts) < 2:  # noqa: ASYNC110 - a model tells nobody
        await asyncio.sleep(0.01)
    await journal.post_mail("s/c1_0.model1", PauseMail(run=1, reason="lunch"))
    result = await running
    assert results(result.messages)[0].startswith("the model wrote nothing: paused")
    assert isinstance((await journal.read("s/c1_0.model1"))[-1], RunEnded)


async def test_a_question_of_a_call_goes_to_the_approver_of_the_run(clock: VirtualClock) -> None:
    """G5: whoever answers the questions of a run answers those of its calls; a failure is a no."""
    given: list[Any] = []

    @tool(effect="read")
    async def look(context: RunContext[None]) -> str:
        assert context.call is not None
        question = Question("s", "q", "look", {}, "Which?", "", is_live=True)
        given.append(await context.call.ask_person(question))
        return "looked"

    def fails(question: Question) -> bool:
        raise ValueError(question.question)

    for approver in (None, fails, lambda question: question.question == "Which?"):
        model = ScriptedModel([call("look"), "Done."])
        options: dict[str, Any] = {} if approver is None else {"approver": approver}
        agent = Agent(model, tools=[look], gate=read_only(), clock=clock, **options)
        await agent.run("Go.")
    nobody, failed, answered = given
    assert nobody is None
    assert isinstance(failed, Deny)
    assert isinstance(answered, Allow)
