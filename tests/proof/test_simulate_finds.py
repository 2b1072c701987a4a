"""What the simulator has found, once each, in plain words."""

import asyncio
from collections.abc import Callable
from decimal import Decimal

import pytest

from proof.simulate import check_rules, draw_plan, play_plan
from proof.simulate.outside import IntruderJournal, OutsideWorld, ProcessPower, SimJournal
from proof.simulate.people import reply_to_question
from windlass import Agent, Allow, Budget, Question, RunFailed, SessionBusy, tool
from windlass.core.events import (
    AttemptDiscarded,
    AttemptFailed,
    CallStarted,
    Event,
    MailRefused,
    RunEnded,
    TextDelta,
)
from windlass.core.messages import AssistantMessage
from windlass.core.setup import LoopPolicy, ModelInfo, Price
from windlass.core.verdicts import Modify
from windlass.gates import ask
from windlass.journals.memory import MemoryJournal
from windlass.testing import (
    FailingJournal,
    ScriptedModel,
    Trace,
    VirtualClock,
    WaitingJournal,
    call,
    cut,
    pause,
    say,
    usage,
)
from windlass.testing.journals import append_facts

PRICED = ModelInfo("scripted:model", Price(Decimal(1), Decimal(10)), output_max=100)
ANSWER = 5
"""The append of an answer: after the start, the request, the reply and its verdict."""

SHOWN_BY_CALLERS = (
    7101647,
    7111038,
    7120881,
    7125201,
    7125780,
    7125806,
    8002139,
    8003196,
    8005808,
    8006218,
)
"""A run ends, or its process dies, while a sub-agent streams or works."""
STEERED_WHILE_UNDONE = (7100165, 7124794)
"""A person speaks to a session while its run is undone."""
RESUMED_WHILE_STEERED = (7112115, 7113353, 8000977)
"""A run is resumed in the moment in which a message to it is written."""
PAUSED_BEFORE_ITS_REPLY_IS_JUDGED = (8011028,)
"""A run with a gate on replies is paused after an attempt that broke off."""
STOPPED_IN_A_STALLED_REPLY = (8008466,)
"""A run ends after the stream of its reply has fallen silent."""
SPOKEN_TO_AS_IT_BEGINS_TO_WAIT = (7104186,)
"""A message comes while a driver lets go of a run that waits for an answer."""
UNDONE_BEFORE_IT_BEGAN = (8004140,)
"""A run is undone whose sub-agent was called and had not begun when the process died."""
MODIFIED_WITH_ITS_NUMBER = (8102892,)
"""A person is asked about code that shares its number with a call whose arguments are changed."""
ANSWERED_BEFORE_UNDOING_RESUMED = (
    8102698,
    8103408,
    8103752,
    8104043,
    8104702,
    8105369,
    8105879,
    8106119,
    8106646,
)
"""A process that undoes a run dies after its answer was accepted, and before it was taken."""
SPOKEN_TO_AFTER_ITS_RELEASE = (8106282,)
"""A message comes after a driver let go of a run, while it looks for more to do."""
WORKING_WHILE_IT_WAITS = (8141710,)
"""A call is left to do when the sub-agent of another one waits."""
STOPPED_BEFORE_ITS_NEXT_ATTEMPT = (8146249,)
"""A run is stopped after the failure of an attempt that was seen, before the next is announced."""
ANSWERED_WHILE_STEERED = (8149864,)
"""A question is answered in the moment in which a message to its run is written."""
RELEASED_BEFORE_ITS_REPLY_IS_JUDGED = (8151899,)
"""A run whose replies are withheld is released between a reply and its judgement."""
DOUBTED_WHILE_ITS_SUB_AGENT_WAITS = (1585,)
"""A call is judged again whose sub-agent waits for an answer."""
STOPPED_WHILE_ITS_REPLY_IS_WRITTEN = (8317044, 8331555)
"""A run, or one that works for it, is stopped after its reply came and before it is on record."""
SPOKEN_TO_BEHIND_ITS_END = (8314783,)
"""A driver refuses messages after the end of its run, and a second process looks for the run."""
DOUBTED_AFTER_IT_WAS_MODIFIED = (8301987, 8312255, 8315621)
"""A write whose arguments the gate changed had not happened, and is judged again."""
DOUBTED_BEFORE_IT_WAS_DONE = (8719473,)
"""A write had not happened, and the arguments that are judged again are those of its model."""
CANCELLED_WHILE_DOUBTED = (8734060,)
"""A run is cancelled before the call of a sub-agent that waits is judged again."""
SPOKEN_TO_WHILE_PAUSED = (8336496,)
"""A driver takes an answer for a sub-agent of a run that is paused."""
SPOKEN_TO_BEFORE_IT_IS_CUT_OFF = (8502056,)
"""A person speaks to a run whose reply hits the output limit before its first word."""
COUNTED_BY_A_BUDGET = (7120656, 7126423, 8004565, 8005230)
"""A message cancels or releases a run while it waits for a reply."""


@pytest.mark.slow
@pytest.mark.contract("V2")
@pytest.mark.parametrize(
    "seed",
    [
        *SHOWN_BY_CALLERS,
        *STEERED_WHILE_UNDONE,
        *RESUMED_WHILE_STEERED,
        *PAUSED_BEFORE_ITS_REPLY_IS_JUDGED,
        *STOPPED_IN_A_STALLED_REPLY,
        *SPOKEN_TO_AS_IT_BEGINS_TO_WAIT,
        *UNDONE_BEFORE_IT_BEGAN,
        *MODIFIED_WITH_ITS_NUMBER,
        *ANSWERED_BEFORE_UNDOING_RESUMED,
        *SPOKEN_TO_AFTER_ITS_RELEASE,
        *WORKING_WHILE_IT_WAITS,
        *STOPPED_BEFORE_ITS_NEXT_ATTEMPT,
        *ANSWERED_WHILE_STEERED,
        *RELEASED_BEFORE_ITS_REPLY_IS_JUDGED,
        *DOUBTED_WHILE_ITS_SUB_AGENT_WAITS,
        *STOPPED_WHILE_ITS_REPLY_IS_WRITTEN,
        *SPOKEN_TO_BEHIND_ITS_END,
        *DOUBTED_AFTER_IT_WAS_MODIFIED,
        *DOUBTED_BEFORE_IT_WAS_DONE,
        *CANCELLED_WHILE_DOUBTED,
        *SPOKEN_TO_WHILE_PAUSED,
        *SPOKEN_TO_BEFORE_IT_IS_CUT_OFF,
        *COUNTED_BY_A_BUDGET,
    ],
)
def test_a_session_that_once_broke_a_rule_holds_to_all_of_them(seed: int) -> None:
    check_rules(play_plan(draw_plan(seed)))


@pytest.mark.contract("V2")
@pytest.mark.parametrize(
    ("name", "arguments", "modified"),
    [
        ("put", {"number": 2}, {"number": 4002}),
        ("code", {"code": "Code 2"}, None),
        ("helper", {"task": "Task 2"}, None),
    ],
)
def test_a_simulated_person_changes_only_arguments_that_have_a_number(
    name: str, arguments: dict[str, object], modified: dict[str, object] | None
) -> None:
    """Calls with one number share its plan, and code or a task cannot be changed to a number."""
    plan = draw_plan(MODIFIED_WITH_ITS_NUMBER[0])
    assert plan.calls[2].answer == "modify"
    outside = OutsideWorld(plan, MemoryJournal(), plan.calls)
    question = Question("s", "c1_0", name, arguments, "May I?", digest="")
    reply = reply_to_question(outside, question)
    assert reply == (
        Allow("a person") if modified is None else Modify(modified, "rather this", "a person")
    )


@tool
def send(to: str) -> str:
    """Send something."""
    return f"sent to {to}"


async def _yes(_question: Question) -> Allow:
    return Allow()


async def test_an_answer_that_cannot_be_written_down_ends_the_run(clock: VirtualClock) -> None:
    """L3, J1: with one terminal event, and the call is not made."""
    trace = Trace()
    agent = Agent(
        ScriptedModel([call("send", {"to": "ann"})]),
        tools=[send],
        approver=_yes,
        journal=FailingJournal(MemoryJournal(), at=ANSWER),
        clock=clock,
    )
    with pytest.raises(RunFailed, match=f"append {ANSWER} was not kept") as failed:
        await agent.run("Write to ann.", on_event=trace)
    trace.check()
    assert (failed.value.result.outcome, failed.value.result.recorded) == ("failed", False)
    assert not trace.of_type(CallStarted)


@pytest.mark.contract("V2", "D2")
@pytest.mark.parametrize("moment", ["released", "waiting", "ended", "working"])
async def test_a_simulated_intruder_may_have_the_lease_once_the_driver_has_no_use_for_it(
    clock: VirtualClock, moment: str
) -> None:
    """A run that was released, waits for a person or has ended is free; one at work is not."""
    plan, journal = draw_plan(0), MemoryJournal(now=clock.now)
    reply = {"waiting": [call("send", {"to": "ann"})], "ended": [say("Done.")]}
    model = ScriptedModel([reply.get(moment, [pause(60), say("Done.")])])
    agent = Agent(model, tools=[send], gate=ask(), journal=journal, clock=clock)
    running = asyncio.create_task(agent.run("Go.", session=plan.session))
    await asyncio.sleep(1)
    if moment == "released":
        agent.release(plan.session)
    await asyncio.sleep(1)
    # The same facts in a store that gave nobody a lease, as if the driver had lost its own.
    store = MemoryJournal(now=clock.now)
    await append_facts(store, plan.session, await journal.read(plan.session))
    outside = OutsideWorld(plan, store, plan.calls)
    intruder = IntruderJournal(outside, ProcessPower(has_run=True, has_written=True))
    with pytest.raises(SessionBusy):
        await intruder.lease(plan.session)
    assert len(outside.problems) == (moment == "working")
    await running


@pytest.mark.contract("V2")
async def test_a_simulated_process_has_no_run_behind_the_end_of_it(clock: VirtualClock) -> None:
    """Also if it still refuses messages: then a second process is right to find nothing to do."""
    plan, made = draw_plan(0), MemoryJournal(now=clock.now)
    await Agent(ScriptedModel(["Done."]), journal=made, clock=clock).run("Go.", session="sim")
    facts = await made.read("sim")
    refused = MailRefused(1, "cancel", "the run has ended", seq=facts[-1].seq + 1, at=facts[-1].at)
    power = ProcessPower(has_run=True)
    journal = SimJournal(OutsideWorld(plan, MemoryJournal(now=clock.now), plan.calls), power)
    await append_facts(journal, "sim", facts[:-1])
    assert power.has_written
    for fact in (facts[-1], refused):
        await append_facts(journal, "sim", [fact])
        assert not power.has_written


async def test_a_shared_budget_counts_a_sub_agent_once(clock: VirtualClock) -> None:
    """B1, M1: who works for a run draws on its budgets itself."""
    journal, budget = MemoryJournal(now=clock.now), Budget("team", usd=Decimal(1))
    clerk = Agent(
        ScriptedModel([[say("Filed."), usage(input=100, output=90)]], info=PRICED), name="clerk"
    )
    boss = Agent(
        ScriptedModel(
            [
                [call("clerk", {"task": "File it."}), usage(input=100, output=90)],
                [say("Done."), usage(input=100, output=90)],
            ],
            info=PRICED,
        ),
        tools=[clerk.as_tool()],
        budgets=[budget],
        journal=journal,
        clock=clock,
    )
    result = await boss.run("Have it filed.")
    await asyncio.sleep(1)
    assert result.cost == Decimal("0.003")
    assert (await journal.read_spending(budget)).usd == Decimal("0.003")


@pytest.mark.parametrize("stop", [Agent[str].cancel, Agent[str].release])
async def test_a_shared_budget_counts_a_request_that_was_cut_short_as_it_is_on_record(
    clock: VirtualClock, stop: Callable[[Agent[str], str], bool]
) -> None:
    """B3: a provider may bill it, so it counts as the most that it can have cost by then."""
    journal, budget = MemoryJournal(now=clock.now), Budget("team", usd=Decimal(1))
    agent = Agent(
        ScriptedModel([[say("Half"), pause(60), say("Whole")]], info=PRICED),
        budgets=[budget],
        journal=journal,
        clock=clock,
    )
    running = asyncio.create_task(agent.run("Go.", session="s"))
    await asyncio.sleep(1)
    assert stop(agent, "s")
    result = await running
    await asyncio.sleep(1)
    [charge] = result.ledger.charges
    assert charge.usage is not None
    assert charge.usage.estimated
    assert (await journal.read_spending(budget)).usd == charge.usd == result.cost


async def test_text_that_was_seen_is_kept_if_the_run_is_stopped_while_its_failure_is_written(
    clock: VirtualClock,
) -> None:
    """C2, S6: it was not taken back, so that it is in the history too."""
    trace, session = Trace(), "s"
    journal = WaitingJournal(MemoryJournal(), delay_s=0.02)
    agent = Agent(
        ScriptedModel([[say("Half a thought"), cut()]]),
        journal=journal,
        rules=LoopPolicy(on_partial="restart"),
        clock=clock,
    )

    def watch(event: Event) -> None:
        trace(event)
        if isinstance(event, TextDelta) and trace.shown_text() == "Half a thought":
            # The stream breaks at once, and its failure is on its way to the disk.
            asyncio.get_running_loop().call_later(0.01, agent.cancel, session)

    result = await agent.run("Go.", session=session, on_event=watch)
    trace.check()
    assert trace.of_type(AttemptFailed)
    last = trace.events[-1]
    assert isinstance(last, RunEnded)
    assert last.partial == trace.shown_text() == "Half a thought"
    said = [one.text for one in result.messages if isinstance(one, AssistantMessage)]
    assert (result.outcome, said) == ("cancelled", ["Half a thought"])
    assert last.charge is None, "the failure has brought its own"


async def test_text_that_was_seen_is_kept_if_the_run_is_stopped_before_the_next_attempt(
    clock: VirtualClock,
) -> None:
    """C2, S5: a budget is drawn on first, and until then the text is not taken back."""
    trace, session = Trace(), "s"
    journal = WaitingJournal(MemoryJournal(), delay_s=0.02)
    agent = Agent(
        ScriptedModel([[say("Half a thought"), cut()]], info=PRICED),
        journal=journal,
        budgets=[Budget("team", usd=Decimal(1))],
        rules=LoopPolicy(on_partial="restart"),
        clock=clock,
    )

    def watch(event: Event) -> None:
        trace(event)
        if isinstance(event, AttemptFailed):
            asyncio.get_running_loop().call_later(0.01, agent.cancel, session)

    result = await agent.run("Go.", session=session, on_event=watch)
    await asyncio.sleep(1)  # The budget is settled.
    trace.check()
    last = trace.events[-1]
    assert isinstance(last, RunEnded)
    assert not trace.of_type(AttemptDiscarded)
    assert last.partial == trace.shown_text() == "Half a thought"
    said = [one.text for one in result.messages if isinstance(one, AssistantMessage)]
    assert (result.outcome, said) == ("cancelled", ["Half a thought"])
    assert last.charge is None, "the failure has brought its own"
