"""Power cuts at every append: all ends are compared, and a cut is one kind of error."""

from collections.abc import Callable
from typing import Any, Literal

import pytest

from windlass import NOT_DONE, Agent, RunContext, RunFailed, tool
from windlass.journals import MemoryJournal
from windlass.ports import GivenJournal
from windlass.testing import (
    PowerCut,
    PowerCutJournal,
    ScriptedModel,
    call,
    cut_power_everywhere,
)

Bank = list[str]


def reply(prompt: Any) -> Any:
    return "Done." if len(prompt.messages) > 1 else call("pay", {"euros": 5})


def make_agent(journal: GivenJournal, bank: Bank, find: Callable[..., object]) -> Agent[str]:
    @tool(reconcile=find)
    def pay(context: RunContext, euros: int) -> str:
        """Pay."""
        bank.append(context.idempotency_key)
        return "paid"

    return Agent(ScriptedModel([reply] * 9), tools=[pay], journal=journal)


async def pay_once(journal: GivenJournal, bank: Bank) -> tuple[str, int]:
    def was_paid(context: RunContext, euros: int) -> object:
        return "paid" if context.idempotency_key in bank else NOT_DONE

    result = await make_agent(journal, bank, was_paid).run("Pay.", session="s", key="k")
    return result.text, len(bank)


async def pay_carelessly(journal: GivenJournal, bank: Bank) -> int:
    def was_paid(context: RunContext, euros: int) -> object:
        return NOT_DONE

    await make_agent(journal, bank, was_paid).run("Pay.", session="s", key="k")
    return len(bank)


async def test_a_scenario_ends_the_same_wherever_it_is_cut() -> None:
    ends = await cut_power_everywhere(pay_once, world=Bank)
    assert {cut.end for cut in ends} == {("Done.", 1)}
    assert len(ends) == 2 * ends[-1].at
    assert [(cut.at, cut.when) for cut in ends[:3]] == [(1, "before"), (1, "after"), (2, "before")]


async def test_an_effect_that_happens_twice_is_found() -> None:
    with pytest.raises(AssertionError, match=r"uncut, it ends as 1; cut before append \d: 2"):
        await cut_power_everywhere(pay_carelessly, world=Bank)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(1, 7))
async def test_a_cut_raises_one_kind_of_error_from_its_block(
    at: int, when: Literal["before", "after"]
) -> None:
    with pytest.raises(PowerCut), PowerCutJournal(MemoryJournal(), at, when) as dying:
        await pay_once(dying, [])
    assert dying.dead


async def test_other_errors_leave_the_block_as_they_are() -> None:
    with pytest.raises(RunFailed), PowerCutJournal(MemoryJournal(), 99) as journal:
        await Agent(ScriptedModel([]), journal=journal).run("Pay.")
    dead = PowerCutJournal(MemoryJournal(), 1)
    dead.dead = True
    with pytest.raises(ZeroDivisionError), dead:
        _ = 1 / 0
