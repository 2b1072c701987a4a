"""A wrapper can what its journal can, beside reading and writing; a dead one holds nothing."""

import asyncio
from collections.abc import Callable

import pytest

from windlass.core.errors import SessionBusy
from windlass.core.limits import Amount, Budget
from windlass.journals.completing import CompletedJournal, complete_journal
from windlass.journals.memory import MemoryJournal
from windlass.ports import GivenJournal, Journal
from windlass.testing import (
    BareJournal,
    FailingJournal,
    HungJournal,
    PowerCut,
    PowerCutJournal,
    RealTimeJournal,
    VirtualClock,
    WaitingJournal,
)
from windlass.testing.journals import append_facts
from windlass.testing.samples import note_facts

WRAPPERS: list[Callable[[GivenJournal], Journal]] = [
    lambda journal: PowerCutJournal(journal, 99),
    WaitingJournal,
    lambda journal: FailingJournal(journal, 99),
    lambda journal: HungJournal(journal, 99),
    RealTimeJournal,
]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapper_can_what_its_journal_can(
    wrapper: Callable[[GivenJournal], Journal],
) -> None:
    """J5."""
    whole, bare = wrapper(MemoryJournal()), wrapper(BareJournal(MemoryJournal()))
    assert complete_journal(whole) is whole
    assert isinstance(complete_journal(bare), CompletedJournal)


@pytest.mark.parametrize("wrapper", WRAPPERS)
async def test_what_is_asked_through_a_wrapper_is_answered(
    wrapper: Callable[[Journal], Journal],
) -> None:
    """J5, L14."""
    store = MemoryJournal()
    journal, budget = wrapper(store), Budget("team", tokens=10)
    lease = await journal.lease("s")
    assert await store.is_leased("s")
    with pytest.raises(SessionBusy):
        await journal.lease("s")
    lease.release()
    assert not await journal.is_leased("s")
    await append_facts(journal, "s", note_facts(1, 1))
    assert await store.get_blob("s", await journal.put_blob("s", b"long")) == b"long"
    assert await journal.draw_budget(budget, "s", 1, Amount(tokens=99)) == Amount(tokens=10)
    await journal.settle_budget(budget, "s", 1, Amount(tokens=4))
    assert (
        await journal.read_spending(budget) == await store.read_spending(budget) == Amount(tokens=4)
    )


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_dead_process_holds_no_session(when: str) -> None:
    """L14: and it can ask for nothing any more."""
    store = MemoryJournal()
    journal = PowerCutJournal(store, 1, when)  # pyright: ignore[reportArgumentType]
    await journal.lease("s")
    with pytest.raises(PowerCut):
        await append_facts(journal, "s", note_facts(1, 1))
    (await store.lease("s")).release()
    with pytest.raises(PowerCut):
        await journal.lease("s")
    assert not await store.is_leased("s")


async def test_a_hung_journal_hangs_in_all_that_needs_its_disk(clock: VirtualClock) -> None:
    journal = HungJournal(MemoryJournal(), 0)
    (await journal.lease("s")).release()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await journal.read_spending(Budget("team", tokens=1))
    assert clock.elapsed_s == 60
