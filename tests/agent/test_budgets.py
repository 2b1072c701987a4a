"""Money and time in a run: per session, shared by many, and when nothing happens."""

import asyncio
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass import (
    Agent,
    Allow,
    Budget,
    ConfigError,
    Limits,
    LoopPolicy,
    ModelInfo,
    Price,
    Question,
    SessionLimits,
    tool,
)
from windlass.core.events import BudgetAllotted
from windlass.core.view import Prompt
from windlass.journals.memory import MemoryJournal
from windlass.models.openai.chat import OpenAIChat
from windlass.models.options import ModelOptions
from windlass.models.vendors import ChatQuirks
from windlass.testing import ScriptedModel, VirtualClock, call, say, stall, usage

PRICED = ModelInfo("scripted:model", Price(Decimal(1), Decimal(10)), output_max=100)
CENT = Decimal("0.01")


@tool(effect="read")
async def look(seconds: float = 0) -> str:
    """Look, for a while."""
    await asyncio.sleep(seconds)
    return "seen"


@tool(effect="read")
def n(i: int) -> int:
    """N."""
    return i


def priced(*replies: object) -> ScriptedModel:
    return ScriptedModel(list(replies), info=PRICED)  # type: ignore[arg-type]


def paid(text: str) -> list[object]:
    return [say(text), usage(input=100, output=90)]


async def test_a_session_has_limits_of_its_own(clock: VirtualClock) -> None:
    """B1: over all its runs."""
    limits = SessionLimits(usd=Decimal("0.003"))
    agent = Agent(
        priced(*map(paid, ("One.", "Two.", "Three.", "Four."))), session_limits=limits, clock=clock
    )
    outcomes = [(await agent.run("Go on.", session="s")).outcome for _ in range(4)]
    assert outcomes == [*["completed"] * 3, "budget_exceeded"]
    assert (await agent.run("Go on.", session="another")).completed


@pytest.mark.contract("B3")
async def test_the_reply_that_ends_a_budget_is_returned(clock: VirtualClock) -> None:
    """What was paid for is in the result, with what its calls brought."""
    reply = [say("Let me look."), call("look"), usage(input=4_000, output=1_000)]
    with ScriptedModel([reply]) as model:
        agent = Agent(model, tools=[look], limits=Limits(tokens=5_000), clock=clock)
        result = await agent.run("Go.")
    assert (result.outcome, result.text) == ("budget_exceeded", "Let me look.")
    assert [type(message).__name__ for message in result.new_messages()] == [
        "UserMessage",
        "AssistantMessage",
        "ToolResults",
    ]


async def test_a_session_may_have_a_cap_of_steps(clock: VirtualClock) -> None:
    """B1, L4."""
    model = ScriptedModel([call("look", {})] * 2 + ["Done.", call("look", {})])
    agent = Agent(model, tools=[look], session_limits=SessionLimits(steps=4), clock=clock)
    assert (await agent.run("Look.", session="s")).completed
    result = await agent.run("Look.", session="s")
    assert (result.outcome, result.steps) == ("max_steps", 1)
    assert "session" in result.reason


async def test_a_session_may_have_a_limit_of_time(clock: VirtualClock) -> None:
    """B1, C5: a deadline is a cancel with a reason."""
    slow = call("look", {"seconds": 6})
    model = ScriptedModel([slow, "Done.", slow])
    agent = Agent(model, tools=[look], session_limits=SessionLimits(seconds=10), clock=clock)
    assert (await agent.run("Look.", session="s")).completed
    result = await agent.run("Look.", session="s")
    assert (result.outcome, round(clock.elapsed_s, 1)) == ("timed_out", 10.0)
    assert "session" in result.reason


async def test_many_runs_share_a_budget(clock: VirtualClock) -> None:
    """B1, B2: a day's money for all, whoever comes first."""
    journal, budget = MemoryJournal(now=clock.now), Budget("team", usd=Decimal("0.004"), per="day")

    async def one(number: int) -> str:
        model = priced(paid(f"Reply {number}."))
        agent = Agent(model, budgets=[budget], journal=journal, clock=clock)
        return (await agent.run("Go.", session=f"s{number}")).outcome

    outcomes = await asyncio.gather(*map(one, range(8)))
    assert set(outcomes) == {"completed", "budget_exceeded"}
    spent = await journal.read_spending(budget)
    assert spent.usd is not None
    assert spent.usd <= Decimal("0.004")
    assert spent.usd == outcomes.count("completed") * Decimal("0.001")
    await asyncio.sleep(86_400)
    assert await one(9) == "completed", "a new day"


async def test_what_a_run_does_not_need_goes_back(clock: VirtualClock) -> None:
    """B2: reserved before, settled after."""
    journal, budget = MemoryJournal(), Budget("team", usd=CENT)
    agent = Agent(priced(paid("Done.")), budgets=[budget], journal=journal, clock=clock)
    result = await agent.run("Go.", session="s")
    drawn = [fact for fact in await journal.read("s") if isinstance(fact, BudgetAllotted)]
    assert [fact.budget for fact in drawn] == ["team"]
    assert drawn[0].amount.usd is not None
    assert result.cost is not None
    assert drawn[0].amount.usd > result.cost
    assert (await journal.read_spending(budget)).usd == result.cost


async def test_what_a_dead_process_held_counts_until_its_session_goes_on(
    clock: VirtualClock,
) -> None:
    """B2, J4: never overdrawn, and made good by the resume."""
    journal, budget = MemoryJournal(), Budget("team", usd=CENT)
    dying = Agent(priced(paid("Lost.")), budgets=[budget], journal=journal, clock=clock)
    drive = asyncio.create_task(dying.run("Go.", session="s"))
    while len(await journal.read("s")) < 2:
        await journal.wait_for_append("s", 1)
    held = (await journal.read_spending(budget)).usd
    assert held is not None
    assert held > 0
    drive.cancel()
    await asyncio.wait({drive})
    again = Agent(priced(paid("Done.")), budgets=[budget], journal=journal, clock=clock)
    result = await again.run("Go.", session="s")
    assert result.completed
    assert ((await journal.read_spending(budget)).usd or 0) <= CENT


async def test_a_budget_of_tokens_needs_no_price(clock: VirtualClock) -> None:
    journal, budget = MemoryJournal(), Budget("team", tokens=160)
    script = [[say("One."), usage(input=40, output=90)], [say("Two."), usage(input=40, output=90)]]
    info = ModelInfo("scripted:model", output_max=100)
    agent = Agent(ScriptedModel(script, info=info), budgets=[budget], journal=journal, clock=clock)
    assert (await agent.run("Go.", session="a")).completed
    assert (await agent.run("Go.", session="b")).outcome == "budget_exceeded"
    assert (await journal.read_spending(budget)).tokens == 130


def test_a_budget_that_cannot_be_held_is_refused() -> None:
    """P6: before anything is spent."""
    with pytest.raises(ConfigError, match="price"):
        Agent(
            ScriptedModel([], info=ModelInfo("scripted:unpriced")),
            budgets=[Budget("team", usd=CENT)],
        )
    with pytest.raises(ConfigError, match="the same name"):
        Agent(priced(), budgets=[Budget("team", usd=CENT), Budget("team", tokens=5)])
    for usd, tokens in ((None, None), (Decimal(0), None), (Decimal(-1), None), (None, 0)):
        with pytest.raises(ValueError, match="Budget"):
            Budget("team", usd, tokens)
    with pytest.raises(ValueError, match="hour, day or month"):
        Budget("team", usd=CENT, per="week")  # type: ignore[arg-type]


async def test_a_run_in_which_nothing_happens_is_ended(clock: VirtualClock) -> None:
    """C5: an idle limit is a cancel with a reason; what is heard in between counts."""
    model = ScriptedModel([[say("Wait"), stall()]])
    agent = Agent(model, limits=Limits(idle_seconds=30), clock=clock)
    result = await agent.run("Go.")
    assert (result.outcome, result.partial_text) == ("timed_out", "Wait")
    assert "nothing happened for 30 s" in result.reason
    assert round(clock.elapsed_s) == 30


async def test_a_busy_run_is_not_idle_and_a_person_may_take_their_time(
    clock: VirtualClock,
) -> None:
    """C5, G6."""

    @tool
    async def report(seconds: float) -> str:
        """Report."""
        await asyncio.sleep(seconds)
        return "reported"

    async def approver(question: Question) -> Allow:
        await asyncio.sleep(3_600)
        return Allow()

    calls = [call("report", {"seconds": seconds}) for seconds in (20, 21, 22, 23)]
    model = ScriptedModel([*calls, "Done."])
    agent = Agent(
        model, tools=[report], limits=Limits(idle_seconds=30), approver=approver, clock=clock
    )
    assert (await agent.run("Go.")).completed


async def test_a_tool_that_hangs_is_idle(clock: VirtualClock) -> None:
    """C4, C5."""

    @tool(timeout=None)
    async def hang() -> None:
        """Hang."""
        await asyncio.sleep(10**9)

    agent = Agent(
        ScriptedModel([call("hang", {})]), tools=[hang], limits=Limits(idle_seconds=30), clock=clock
    )
    result = await agent.run("Go.")
    assert (result.outcome, round(clock.elapsed_s)) == ("timed_out", 30)


def count_chat_tokens(prompt: Prompt) -> int:
    """Count what a server of chat completions gets, a token for three characters."""
    request = OpenAIChat(ChatQuirks(), "openai").encode_request(prompt, "model", ModelOptions())
    return len(request.body) // 3


def truthful(name: str, *replies: object) -> ScriptedModel:
    info = ModelInfo(name, Price(Decimal(10), Decimal(10)), output_max=100)
    return ScriptedModel(list(replies), info=info, count=count_chat_tokens, truthful=True)  # type: ignore[arg-type]


@pytest.mark.contract("B2")
@settings(max_examples=80, deadline=None)
@given(
    micro_usd=st.integers(5_000, 60_000),
    steps=st.integers(1, 6),
    calls=st.integers(1, 8),
    provider_id=st.none() | st.just("call_" + 24 * "x"),
    helper_steps=st.integers(0, 3),
)
def test_the_money_edge_is_hard_for_tiny_steps_and_through_sub_agents(
    *, micro_usd: int, steps: int, calls: int, provider_id: str | None, helper_steps: int
) -> None:
    """B2: money spent never exceeds the limit when usage is reported truthfully."""
    tiny = [call("n", {"i": at}, id=provider_id and f"{provider_id}{at}") for at in range(calls)]
    helper_model = truthful("test:helper", *[[*tiny]] * (3 * helper_steps), *["Done."] * 3)
    helper = Agent(helper_model, name="helper", tools=[n])
    script: list[object] = []
    for step in range(steps):
        script.append([*tiny])
        if step < helper_steps:
            script.append(call("helper", {"task": f"{step}"}))
    model = truthful("test:main", *script, "Done.")
    limit = Decimal(micro_usd) / 1_000_000
    agent = Agent(
        model,
        tools=[n, helper.as_tool()],
        limits=Limits(usd=limit, steps=None),
        rules=LoopPolicy(same_call_note=99),
    )
    result = asyncio.run(agent.run("Go."))
    spent = (model.billed_usd or 0) + (helper_model.billed_usd or 0)
    assert spent <= limit, result
