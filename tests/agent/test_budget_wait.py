"""Runs that wait for what others hold of a shared budget, in one process."""

import asyncio
from decimal import Decimal

import pytest

from windlass import Agent, Budget, ModelInfo, Price
from windlass.core.events import BudgetAwaited, BudgetWaitEnded, RunReleased
from windlass.core.limits import Amount
from windlass.core.setup import LoopPolicy
from windlass.journals.memory import MemoryJournal
from windlass.testing import ScriptedModel, VirtualClock, say, usage

PRICED = ModelInfo("scripted:model", Price(Decimal(1), Decimal(10)), output_max=100)
CENT = Decimal("0.01")
TEAM = Budget("team", usd=CENT)


def priced(*replies: object) -> ScriptedModel:
    return ScriptedModel(list(replies), info=PRICED)  # type: ignore[arg-type]


def paid(text: str) -> list[object]:
    return [say(text), usage(input=100, output=90)]


def agent_of(journal: MemoryJournal, clock: VirtualClock, wait_s: float = 600.0) -> Agent[str]:
    rules = LoopPolicy(budget_wait_s=wait_s)
    return Agent(
        priced(paid("Done."), paid("Done.")),
        budgets=[TEAM],
        journal=journal,
        clock=clock,
        rules=rules,
        name="clerk",
    )


async def wait_until_waiting(journal: MemoryJournal, session: str) -> None:
    async with asyncio.timeout(5):
        while not any(isinstance(fact, BudgetAwaited) for fact in await journal.read(session)):
            await journal.wait_for_append(session, len(await journal.read(session)))


@pytest.mark.contract("L4")
@pytest.mark.contract("B2")
async def test_a_run_continues_by_itself_when_others_give_back(clock: VirtualClock) -> None:
    """L4, B2: the whole budget is held elsewhere, and is freed long before the run is due."""
    journal = MemoryJournal(now=clock.now)
    await journal.draw_budget(TEAM, "other", 1, Amount(CENT))
    run = asyncio.create_task(agent_of(journal, clock).run("Go.", session="s"))
    await wait_until_waiting(journal, "s")
    [page] = await journal.sessions(state="awaiting_budget")
    assert (page.session, page.outcome) == ("s", None)
    await journal.settle_budget(TEAM, "other", 1, Amount(Decimal(0)))
    result = await run
    assert result.completed
    assert result.duration_s < 1.0, "the wait is not time at work"
    assert ((await journal.read_spending(TEAM)).usd or 0) <= CENT


@pytest.mark.contract("L4")
async def test_runs_that_were_refused_before_now_take_turns(clock: VirtualClock) -> None:
    """L4: a budget that has money left ends no run, however many reserve it at once."""
    journal = MemoryJournal(now=clock.now)

    small = Budget("team", usd=Decimal("0.003"))

    async def one(number: int) -> str:
        model = priced([say("Done."), usage(input=5, output=10)])
        agent = Agent(model, budgets=[small], journal=journal, clock=clock)
        return (await agent.run("Go.", session=f"s{number}")).outcome

    outcomes = await asyncio.gather(*map(one, range(18)))
    assert outcomes == ["completed"] * 18
    assert (await journal.read_spending(small)).usd == 18 * Decimal("0.000105")
    waited = [
        fact
        for number in range(18)
        for fact in await journal.read(f"s{number}")
        if isinstance(fact, BudgetAwaited)
    ]
    assert waited, "otherwise this shows nothing"
    assert not await journal.list_records("budget-wait"), "none is left in the line"


@pytest.mark.contract("L4")
async def test_a_reserve_that_never_comes_back_ends_the_run_in_time(clock: VirtualClock) -> None:
    journal = MemoryJournal(now=clock.now)
    await journal.draw_budget(TEAM, "dead", 1, Amount(CENT))
    result = await agent_of(journal, clock, 30.0).run("Go.", session="s")
    assert result.outcome == "budget_exceeded"
    assert "although the run waited" in result.reason
    assert 30.0 <= clock.elapsed_s < 33.0


async def test_a_run_does_not_wait_for_its_own_tree(clock: VirtualClock) -> None:
    """B1: its caller gives nothing back before it has ended."""
    journal = MemoryJournal(now=clock.now)
    await journal.draw_budget(TEAM, "s/c1_0", 1, Amount(CENT))
    result = await agent_of(journal, clock).run("Go.", session="s")
    assert (result.outcome, clock.elapsed_s < 1.0) == ("budget_exceeded", True)


@pytest.mark.contract("C1")
async def test_a_waiting_run_is_cancelled_at_once(clock: VirtualClock) -> None:
    journal = MemoryJournal(now=clock.now)
    await journal.draw_budget(TEAM, "other", 1, Amount(CENT))
    agent = agent_of(journal, clock)
    run = asyncio.create_task(agent.run("Go.", session="s"))
    await wait_until_waiting(journal, "s")
    agent.cancel("s", "enough")
    assert (await run).outcome == "cancelled"
    assert not await journal.list_records("budget-wait")


@pytest.mark.contract("F7")
async def test_a_sweep_gives_the_place_away_and_takes_the_run_up_when_due(
    clock: VirtualClock,
) -> None:
    """F7: a waiting run has no driver. It is taken up at its time, or when something is freed."""
    journal = MemoryJournal(now=clock.now)
    await journal.draw_budget(TEAM, "other", 1, Amount(CENT))
    agent = agent_of(journal, clock)
    await agent.start("Go.", session="s", drive=False)
    assert (await agent.sweep()).driven == ("s",)
    assert isinstance((await journal.read("s"))[-1], RunReleased)
    assert not await journal.is_leased("s")
    assert (await agent.sweep()).driven == (), "it is not due"
    await asyncio.sleep(2.5)
    assert (await agent.sweep()).driven == ("s",), "it asked again, in vain"
    await journal.settle_budget(TEAM, "other", 1, Amount(Decimal(0)))
    await asyncio.sleep(4.5)
    assert (await agent.sweep()).driven == ("s",)
    state = await journal.sessions(state="completed")
    assert [each.session for each in state] == ["s"]


async def test_an_ending_run_wakes_those_that_wait(clock: VirtualClock) -> None:
    """A message brings them forward: no poll is needed."""
    journal = MemoryJournal(now=clock.now)
    small = Budget("team", usd=Decimal("0.0015"))

    async def one(session: str) -> None:
        model = priced([say("Done."), usage(input=5, output=10)])
        agent = Agent(model, budgets=[small], journal=journal, clock=clock)
        assert (await agent.run("Go.", session=session)).completed

    await asyncio.gather(one("a"), one("b"))
    facts = [*await journal.read("a"), *await journal.read("b")]
    ends = [fact for fact in facts if isinstance(fact, BudgetWaitEnded)]
    assert ends
    assert all(fact.mail for fact in ends)
    assert clock.elapsed_s < 2.0
