"""Runs that go in circles, and the landing at the cap of steps, with a full window in between."""

import asyncio
from contextlib import suppress
from decimal import Decimal

import pytest

from windlass import (
    Agent,
    CallJudged,
    Compaction,
    ContextCompacted,
    Limits,
    LoopPolicy,
    ModelInfo,
    NoteGiven,
    Price,
    RaisedLimits,
    RunFailed,
    RunResult,
    SessionLimits,
    UserMessage,
    tool,
)
from windlass.agent.control import raise_limits
from windlass.core.decide.scheduling import REPEAT_NOTE
from windlass.core.verdicts import InvalidCall
from windlass.core.view import Prompt
from windlass.journals.memory import MemoryJournal
from windlass.testing import (
    PowerCut,
    PowerCutJournal,
    ScriptedModel,
    ScriptedReply,
    VirtualClock,
    call,
    check_prompt,
    fail,
    pause,
    say,
)

SMALL = ModelInfo("scripted:model", window=2_000)
WINDOW = Compaction(strategies=("window",))


@tool(effect="read")
def poll(name: str) -> str:
    """Look whether it is done."""
    return f"{name} is not done " + "yet " * 500


@tool(effect="read")
def wait_a_bit() -> str:
    """Wait a bit."""
    return "waited"


def polls(count: int) -> list[ScriptedReply]:
    return [call("poll", {"name": "it"}) for _ in range(count)]


def notes(prompt: Prompt) -> list[str]:
    return [one.text for one in prompt.messages if isinstance(one, UserMessage) and one.note]


@pytest.mark.contract("L11")
@pytest.mark.parametrize("info", [None, SMALL], ids=["all in view", "with compaction"])
async def test_the_same_call_thrice_earns_a_note_and_two_more_the_end(
    info: ModelInfo | None, clock: VirtualClock
) -> None:
    journal = MemoryJournal()
    with ScriptedModel(polls(5), info=info) as model:
        agent = Agent(model, tools=[poll], compaction=WINDOW, journal=journal, clock=clock)
        result = await agent.run("Wait for it.", session="s")
    assert (result.outcome, result.steps) == ("stuck", 5)
    assert "poll gave the same result 5 times" in result.reason
    told = [REPEAT_NOTE in notes(prompt) for prompt in model.prompts]
    assert told[:3] == [False] * 3
    assert told[3]
    facts = await journal.read("s")
    assert sum(isinstance(one, NoteGiven) for one in facts) == 1
    assert any(isinstance(one, ContextCompacted) for one in facts) == (info is not None)


async def test_both_numbers_are_settings_and_another_call_starts_anew(clock: VirtualClock) -> None:
    """L11."""
    rules = LoopPolicy(same_call_note=2, same_call_stop=1)
    script: list[ScriptedReply] = [*polls(1), call("poll", {"name": "that"}), *polls(3)]
    with ScriptedModel(script) as model:
        result = await Agent(model, tools=[poll], rules=rules, clock=clock).run("Wait.")
    assert (result.outcome, result.steps) == ("stuck", 5)


@pytest.mark.contract("L11")
@pytest.mark.parametrize("search", [False, True], ids=["offered", "searched for"])
async def test_the_same_write_is_executed_twice_at_most(
    search: bool,  # noqa: FBT001
    clock: VirtualClock,
) -> None:
    """L11: the second one earns a note, and further ones are refused until the run is stuck."""
    added: list[str] = []

    @tool
    def add_item(name: str) -> str:
        """Add an item to the list."""
        added.append(name)
        return "added"

    rules = LoopPolicy(tools_offered_max=1 if search else 0)
    arguments: dict[str, object] = {"name": "apple"}
    again = call("add_item", arguments)
    if search:
        again = call("call_tool", {"name": "add_item", "arguments": arguments})
    journal = MemoryJournal()
    with ScriptedModel([again] * 4) as model:
        agent = Agent(model, tools=[add_item, poll], rules=rules, journal=journal, clock=clock)
        result = await agent.run("Put an apple on the list.", session="s")
    assert (result.outcome, added) == ("stuck", ["apple"] * 2)
    refused = [fact.verdict for fact in await journal.read("s") if isinstance(fact, CallJudged)]
    codes = [verdict.code for verdict in refused if isinstance(verdict, InvalidCall)]
    assert codes == ["repeated_call"] * 2


@pytest.mark.contract("L11")
async def test_a_read_that_is_searched_for_counts_as_a_read(clock: VirtualClock) -> None:
    """L11: what is called decides, not by which way."""
    again = call("call_tool", {"name": "poll", "arguments": {"name": "it"}})
    rules = LoopPolicy(tools_offered_max=1)
    with ScriptedModel([again] * 5) as model:
        agent = Agent(model, tools=[poll, wait_a_bit], rules=rules, clock=clock)
        result = await agent.run("Wait for it.")
    assert (result.outcome, result.steps) == ("stuck", 5)


@pytest.mark.contract("L11")
async def test_a_write_that_differs_is_executed_after_a_note(clock: VirtualClock) -> None:
    """L11: other arguments, or another call in between, are work and not a repetition."""
    added: list[str] = []

    @tool
    def add_item(name: str) -> str:
        """Add an item to the list."""
        added.append(name)
        return "added"

    apple, pear = call("add_item", {"name": "apple"}), call("add_item", {"name": "pear"})
    with ScriptedModel([apple, apple, pear, apple, "Done."]) as model:
        result = await Agent(model, tools=[add_item], clock=clock).run("Go.")
    assert (result.text, added) == ("Done.", ["apple", "apple", "pear", "apple"])


async def test_the_next_run_starts_anew(clock: VirtualClock) -> None:
    """L11: a person who asks again wants it tried again."""
    journal = MemoryJournal()
    with ScriptedModel([*polls(5), *polls(2), "Not done."]) as model:
        agent = Agent(model, tools=[poll], journal=journal, clock=clock)
        assert (await agent.run("Wait.", session="s")).outcome == "stuck"
        assert (await agent.run("Try again.", session="s")).text == "Not done."


@pytest.mark.contract("L8")
async def test_at_the_cap_one_more_reply_without_tools(clock: VirtualClock) -> None:
    journal = MemoryJournal()
    script: list[ScriptedReply] = [call("poll", {"name": f"part {at}"}) for at in range(4)]
    with ScriptedModel([*script, "Four parts are not done."], info=SMALL) as model:
        agent = Agent(
            model,
            tools=[poll],
            rules=LoopPolicy(on_limit="answer"),
            limits=Limits(steps=4),
            compaction=WINDOW,
            journal=journal,
            clock=clock,
        )
        result = await agent.run("Look at all parts.", session="s")
    assert (result.outcome, result.text) == ("max_steps", "Four parts are not done.")
    assert result.steps == 5
    assert [prompt.tool_choice for prompt in model.prompts] == ["auto"] * 4 + ["none"]
    assert any(isinstance(one, ContextCompacted) for one in await journal.read("s"))
    for prompt in model.prompts:
        check_prompt(prompt)


@pytest.mark.contract("L8")
@pytest.mark.parametrize(
    ("last", "text"),
    [
        ([say("Wait. "), call("poll", {"name": "more"})], "Wait. "),
        ([say(" ")], "Let me see. "),
        ([say("Half an ans"), fail("bad_request")], "Let me see. "),
    ],
    ids=["calls all the same", "says nothing", "breaks off"],
)
async def test_whatever_the_landing_is_it_is_the_last(
    last: ScriptedReply, text: str, clock: VirtualClock
) -> None:
    script: list[ScriptedReply] = [[say("Let me see. "), call("poll", {"name": "it"})], last]
    with ScriptedModel(script) as model:
        agent = Agent(
            model,
            tools=[poll],
            rules=LoopPolicy(on_limit="answer"),
            limits=Limits(steps=1),
            clock=clock,
        )
        result = await _ended(agent)
    assert result.outcome in ("max_steps", "failed")
    assert result.text == text
    assert model.requests == 2


async def _ended(agent: Agent[str]) -> RunResult[str]:
    try:
        return await agent.run("Look.")
    except RunFailed as failed:
        return failed.result


@pytest.mark.contract("L8")
async def test_the_landing_is_held_by_money_too(clock: VirtualClock) -> None:
    """B2: one more reply is made only if it can be paid for."""
    info = ModelInfo("scripted:model", price=Price(Decimal(1), Decimal(1)), output_max=50)
    script: list[ScriptedReply] = [call("poll", {"name": "it"})]
    with ScriptedModel(script, info=info, truthful=True) as model:
        agent = Agent(
            model,
            tools=[poll],
            rules=LoopPolicy(on_limit="answer"),
            limits=Limits(steps=1, usd=Decimal("0.0014")),
            clock=clock,
        )
        result = await agent.run("Look.")
    assert result.outcome == "budget_exceeded"
    assert result.cost is not None
    assert result.cost <= Decimal("0.0014")


@pytest.mark.contract("B1")
async def test_silence_is_a_limit_of_its_own(clock: VirtualClock) -> None:
    """Words and news of tools are no silence; waiting for neither is."""
    with ScriptedModel([[say("a"), pause(8), say("b"), pause(8), say("c")]]) as model:
        agent = Agent(model, limits=Limits(idle_seconds=10), clock=clock)
        assert (await agent.run("Go.")).text == "abc"
    assert clock.elapsed_s == 16

    @tool(effect="read")
    async def sleep() -> str:
        """Sleep."""
        await asyncio.sleep(30)
        return "slept"

    with ScriptedModel([call("sleep")]) as model:
        agent = Agent(model, tools=[sleep], limits=Limits(idle_seconds=10), clock=clock)
        result = await agent.run("Go.")
        await asyncio.sleep(5)
    assert (result.outcome, result.reason) == ("timed_out", "nothing happened for 10 s")


@pytest.mark.contract("B1")
async def test_the_session_has_limits_of_its_own(clock: VirtualClock) -> None:
    journal = MemoryJournal()
    limits = SessionLimits(steps=3, seconds=50)
    with ScriptedModel([*polls(1), "One.", [pause(20), say("Two.")]]) as model:
        agent = Agent(model, tools=[poll], session_limits=limits, journal=journal, clock=clock)
        assert (await agent.run("Go.", session="s")).completed
        assert (await agent.run("Go.", session="s")).completed
        third = await agent.run("Go.", session="s")
    assert (third.outcome, third.steps) == ("max_steps", 0)
    with ScriptedModel([[pause(20), say("One.")], [pause(40), say("Two.")]]) as model:
        agent = Agent(model, session_limits=limits, journal=journal, clock=clock)
        assert (await agent.run("Go.", session="t")).completed
        # The time between two runs is nobody's work.
        await asyncio.sleep(100)
        late = await agent.run("Go.", session="t")
    assert (late.outcome, late.reason) == ("timed_out", "the session's limit of 50 s is reached")
    assert clock.elapsed_s == pytest.approx(20 + 20 + 100 + 30, abs=0.2)


YEAR_S = 365 * 86_400.0


@pytest.mark.contract("B1")
@pytest.mark.parametrize("by_s", [YEAR_S, -YEAR_S, 3_600.0])
async def test_a_clock_that_is_set_neither_uses_up_nor_gives_back_time(
    by_s: float, clock: VirtualClock
) -> None:
    """B1: time at work is what has passed, whatever the wall clock shows: 30 of 60 s."""

    @tool(effect="read")
    async def work() -> str:
        """Work for a while, in which the clock is set."""
        await asyncio.sleep(5)
        clock.set_wall_clock(by_s)
        await asyncio.sleep(5)
        return "worked"

    journal = MemoryJournal(now=clock.now)
    script: list[ScriptedReply] = [call("work"), call("work"), call("work"), "Done."]
    with ScriptedModel(script) as model:
        limits = Limits(seconds=60)
        agent = Agent(model, tools=[work], limits=limits, journal=journal, clock=clock)
        result = await agent.run("Go.", session="s")
    assert (result.outcome, round(result.duration_s, 1)) == ("completed", 30.0)
    with ScriptedModel([call("work")] * 4) as model:
        limits = Limits(seconds=35)
        agent = Agent(model, tools=[work], limits=limits, journal=journal, clock=clock)
        result = await agent.run("Go on.", session="s")
    assert (result.outcome, round(result.duration_s, 1)) == ("timed_out", 35.0)


@pytest.mark.contract("B1")
async def test_days_without_a_driver_are_no_work_although_somebody_raised_a_limit(
    clock: VirtualClock,
) -> None:
    """B1: the fact of another process says that nobody worked since the last one."""

    @tool(effect="read")
    async def work() -> str:
        """Work for a while."""
        await asyncio.sleep(5)
        return "worked"

    store = MemoryJournal(now=clock.now)
    with ScriptedModel([call("work")]) as model:
        journal = PowerCutJournal(store, at=4)
        agent = Agent(model, tools=[work], journal=journal, clock=clock)
        with suppress(PowerCut, RunFailed):
            await agent.run("Go.", session="s")
    await asyncio.sleep(YEAR_S)
    await raise_limits(store, "s", RaisedLimits(steps=9), by="ann")
    with ScriptedModel(["Done."]) as model:
        limits = Limits(seconds=60)
        agent = Agent(model, tools=[work], limits=limits, journal=store, clock=clock)
        result = await agent.resume("s")
    assert result.completed
    assert result.duration_s < 60
