"""Shared budgets that are given with a run: they stay with it, whoever drives it."""

from decimal import Decimal
from typing import Any

import pytest

from windlass import Agent, Budget
from windlass.core.errors import ConfigError
from windlass.core.fold.run import fold
from windlass.core.limits import Amount
from windlass.core.setup import ModelInfo, Price
from windlass.journals.memory import MemoryJournal
from windlass.testing import ScriptedModel, say, usage

pytestmark = pytest.mark.contract("B1")
PRICED = ModelInfo("test:model", price=Price(Decimal(1), Decimal(1)))
TEAM = Budget("team", Decimal(5), per="day")
MINE = Budget("mine", Decimal(2), per="day")


def make_agent(journal: Any, *replies: Any, **options: Any) -> Agent[str]:
    model = ScriptedModel([*replies], info=PRICED)
    return Agent(model, journal=journal, **options)


def reply(text: str = "Done.") -> list[Any]:
    return [say(text), usage(input=1_000, output=1_000)]


async def names(journal: MemoryJournal, session: str = "s") -> list[str]:
    state = fold(session, await journal.read(session))
    assert state.setup is not None
    return [budget.name for budget in state.setup.budgets]


async def test_a_run_draws_on_its_own_budget_and_on_that_of_the_agent() -> None:
    journal = MemoryJournal()
    agent = make_agent(journal, reply(), budgets=[TEAM])
    await agent.run("Go.", session="s", budgets=[MINE])
    await agent.aclose()
    assert await names(journal) == ["team", "mine"]
    for budget in (TEAM, MINE):
        spent = await journal.read_spending(budget)
        assert spent.usd is not None
        assert spent.usd > 0


async def test_a_budget_that_is_used_up_ends_the_run() -> None:
    journal = MemoryJournal()
    await journal.settle_budget(MINE, "other", 1, Amount(Decimal(2)))
    agent = make_agent(journal)
    result = await agent.run("Go.", session="s", budgets=[MINE])
    assert result.outcome == "budget_exceeded"


async def test_the_budget_stays_with_the_run_when_another_driver_takes_over() -> None:
    """A driver that knows nothing of it goes on within it."""
    journal = MemoryJournal()
    agent = make_agent(journal, reply(), budgets=[TEAM])
    handle = await agent.start("Go.", session="s", budgets=[MINE])
    handle.release()
    await handle.result()
    other = make_agent(journal, reply(), budgets=[TEAM])
    await other.drive("s")
    await other.aclose()
    assert await names(journal) == ["team", "mine"]
    spent = await journal.read_spending(MINE)
    assert spent.usd is not None
    assert spent.usd > 0
    await agent.aclose()


async def test_the_next_run_of_the_session_does_not_have_it() -> None:
    journal = MemoryJournal()
    agent = make_agent(journal, reply(), reply())
    await agent.run("Go.", session="s", budgets=[MINE])
    await agent.run("Go on.", session="s")
    assert await names(journal) == []


async def test_a_prompt_in_the_queue_keeps_its_budget() -> None:
    journal = MemoryJournal()
    agent = make_agent(journal, reply(), reply())
    await agent.start("Go.", session="s")
    queued = await agent.start("Then this.", session="s", on_busy="queue", budgets=[MINE])
    await queued.result()
    assert await names(journal) == ["mine"]
    await agent.aclose()


async def test_a_budget_that_could_not_be_held_is_refused() -> None:
    unpriced = Agent(ScriptedModel([], info=ModelInfo("a:b")), journal=MemoryJournal())
    with pytest.raises(ConfigError, match="price"):
        await unpriced.run("Go.", budgets=[MINE])
    with pytest.raises(ConfigError, match="same name"):
        await make_agent(MemoryJournal(), budgets=[TEAM]).run("Go.", budgets=[TEAM])
