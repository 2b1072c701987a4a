"""Journals that die, wait, fail and hang: each does so exactly when it should."""

import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import pytest
from typing_extensions import override

from windlass.core.errors import JournalFailed, SessionBusy
from windlass.core.events import Fact, NoteGiven
from windlass.core.session_summary import SessionSummary
from windlass.journals.memory import MemoryJournal
from windlass.ports import Journal
from windlass.testing import (
    FailingJournal,
    HungJournal,
    PowerCut,
    PowerCutJournal,
    RealTimeJournal,
    VirtualClock,
    WaitingJournal,
)
from windlass.testing.journals import start_append


def fact(seq: int) -> Fact:
    return NoteGiven(text=str(seq), why="same_call", seq=seq)


async def kept(journal: Journal) -> list[int]:
    return [one.seq for one in await journal.read("s")]


async def fill(journal: Journal, count: int) -> None:
    for seq in range(1, count + 1):
        await start_append(journal, "s", [fact(seq)])


@pytest.mark.parametrize(("when", "survived"), [("before", [1, 2]), ("after", [1, 2, 3])])
async def test_a_power_cut_at_the_nth_append(when: str, survived: list[int]) -> None:
    disk = MemoryJournal()
    journal = PowerCutJournal(disk, 3, when)  # pyright: ignore[reportArgumentType]
    with pytest.raises(PowerCut, match=f"{when} append 3"):
        await fill(journal, 5)
    assert await kept(disk) == survived
    with pytest.raises(PowerCut, match="dead since append 3"):
        await start_append(journal, "s", [fact(9)])
    with pytest.raises(PowerCut, match="dead since append 3"):
        await journal.read("s")
    assert await kept(disk) == survived


async def test_a_power_cut_is_not_to_be_handled() -> None:
    journal = PowerCutJournal(MemoryJournal(), 1)

    async def careless() -> None:
        with suppress(Exception):
            await start_append(journal, "s", [fact(1)])

    with pytest.raises(PowerCut):
        await careless()


async def test_whoever_waits_for_the_disk_in_a_power_cut_never_hears_of_it() -> None:
    disk = MemoryJournal()
    journal = PowerCutJournal(WaitingJournal(disk), 2)
    first = asyncio.ensure_future(start_append(journal, "s", [fact(1)]))
    with pytest.raises(PowerCut):
        await start_append(journal, "s", [fact(2)])
    with pytest.raises(PowerCut):
        await first
    assert await kept(disk) == [1]


async def test_without_a_cut_it_is_the_journal() -> None:
    journal = PowerCutJournal(MemoryJournal(), 99)
    await fill(journal, 3)
    assert await kept(journal) == [1, 2, 3]


async def test_a_waiting_journal_takes_its_time(clock: VirtualClock) -> None:
    journal = WaitingJournal(MemoryJournal(), 0.25)
    await fill(journal, 2)
    assert clock.elapsed_s == 0.5
    assert await kept(journal) == [1, 2]
    assert clock.elapsed_s == 0.75


async def test_a_waiting_journal_writes_in_the_order_of_the_calls() -> None:
    disk = MemoryJournal()
    journal = WaitingJournal(disk)
    writes = [start_append(journal, "s", [fact(seq)]) for seq in range(1, 20)]
    await asyncio.gather(*reversed(writes))
    assert await kept(disk) == list(range(1, 20))


async def test_what_was_handed_over_is_written_though_its_writer_is_cancelled() -> None:
    disk = MemoryJournal()
    journal = WaitingJournal(disk, 1.0)

    async def write() -> None:
        await start_append(journal, "s", [fact(1)])

    writer = asyncio.create_task(write())
    await asyncio.sleep(0.5)
    writer.cancel()
    await asyncio.wait([writer])
    assert (writer.cancelled(), await kept(disk)) == (True, [])
    await asyncio.sleep(1)
    assert await kept(disk) == [1]


async def test_a_waiting_journal_passes_errors_on() -> None:
    journal = WaitingJournal(MemoryJournal())
    await start_append(journal, "s", [fact(1)])
    with pytest.raises(SessionBusy):
        await start_append(journal, "s", [fact(1)])
    await start_append(journal, "s", [fact(2)])


@pytest.mark.parametrize(("times", "survived"), [(None, [1]), (1, [1, 2]), (2, [1])])
async def test_a_journal_that_fails(times: int | None, survived: list[int]) -> None:
    journal = FailingJournal(MemoryJournal(), 2, times)
    await start_append(journal, "s", [fact(1)])
    with pytest.raises(JournalFailed, match="append 2"):
        await start_append(journal, "s", [fact(2)])
    with suppress(JournalFailed):
        await start_append(journal, "s", [fact(2)])
    assert await kept(journal) == survived


@pytest.mark.parametrize(("at", "answered"), [(0, 0), (1, 0), (2, 1)])
async def test_a_journal_that_hangs(at: int, answered: int) -> None:
    disk = MemoryJournal()
    journal = HungJournal(disk, at)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await fill(journal, 3)
    assert len(await kept(disk)) == answered
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await journal.read("s")


async def test_a_hung_journal_reads_until_it_hangs() -> None:
    assert await kept(HungJournal(MemoryJournal(), 1)) == []


class ThreadedJournal(MemoryJournal):
    """Answers from a thread of its own, after some real time."""

    @override
    def append(
        self, session: str, facts: Sequence[Fact], row: SessionSummary
    ) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[None] = loop.create_future()

        def write() -> None:
            time.sleep(0.03)
            self._append_facts(session, facts, row)
            loop.call_soon_threadsafe(answer.set_result, None)

        threading.Thread(target=write).start()
        return answer


async def test_time_stands_still_for_a_store_outside(clock: VirtualClock) -> None:
    journal = RealTimeJournal(ThreadedJournal())
    async with asyncio.timeout(1):
        await fill(journal, 2)
    assert (clock.elapsed_s, await kept(journal)) == (0.0, [1, 2])


@pytest.mark.realtime
async def test_in_real_time_a_store_outside_is_left_alone() -> None:
    journal = RealTimeJournal(ThreadedJournal())
    await fill(journal, 2)
    assert await kept(journal) == [1, 2]
