"""The conformance suites for journals with session leases and with append signals."""

import asyncio

from windlass.core.errors import SessionBusy
from windlass.core.events import Fact
from windlass.ports import Journal
from windlass.testing.journals import (
    SESSION,
    JournalSuite,
    append_facts,
    error_of,
    on_two_journals,
)
from windlass.testing.samples import note_facts

PATIENCE_S = 30.0
"""Seconds that a test waits for an event. Only a failing journal makes a test wait that long."""


class SessionLeasesConformance(JournalSuite):
    """One driver for a session at a time, in any process."""

    @on_two_journals
    async def test_a_leased_session_is_refused_at_once(self, one: Journal, two: Journal) -> None:
        """By the journal that leased it, and by another on the same store."""
        assert not await one.is_leased(SESSION)
        lease = await one.lease(SESSION)
        for journal in (one, two):
            assert await journal.is_leased(SESSION)
            busy = await error_of(journal.lease(SESSION))
            assert isinstance(busy, SessionBusy)
            assert SESSION in str(busy)
        lease.release()
        for journal in (one, two):
            assert not await journal.is_leased(SESSION)
            (await journal.lease(SESSION)).release()

    @on_two_journals
    async def test_letting_go_twice_frees_nobody_else(self, one: Journal, two: Journal) -> None:
        for holder, other in ((one, two), (one, one)):
            first = await holder.lease(SESSION)
            first.release()
            second = await other.lease(SESSION)
            first.release()
            assert await one.is_leased(SESSION)
            assert await two.is_leased(SESSION)
            second.release()
            assert not await one.is_leased(SESSION)

    @on_two_journals
    async def test_a_lease_is_for_its_session_alone(self, one: Journal, two: Journal) -> None:
        names = [f"session {at}" for at in range(50)]
        leases = [await one.lease(name) for name in names[::2]]
        others = [await two.lease(name) for name in names[1::2]]
        for name in names:
            assert await one.is_leased(name)
            assert await two.is_leased(name)
        for lease in (*leases, *others):
            lease.release()
        assert not any([await one.is_leased(name) for name in names])

    @on_two_journals
    async def test_of_many_who_want_it_one_has_it(self, one: Journal, two: Journal) -> None:
        for _ in range(20):
            wanted = (journal.lease(SESSION) for journal in (one, two) * 5)
            ends = await asyncio.gather(*wanted, return_exceptions=True)
            got = [end for end in ends if not isinstance(end, BaseException)]
            refused = [end for end in ends if isinstance(end, SessionBusy)]
            assert (len(got), len(refused)) == (1, 9)
            got[0].release()

    @on_two_journals
    async def test_a_later_lease_has_a_higher_token(self, one: Journal, two: Journal) -> None:
        """F6: or all have none, where a lease cannot be lost while its holder lives."""
        epochs: list[int] = []
        for journal in (one, two, one):
            lease = await journal.lease(SESSION)
            assert lease.is_certain()
            assert await lease.confirm()
            epochs.append(lease.epoch)
            lease.release()
            assert not lease.is_certain()
            assert not await lease.confirm()
        assert epochs in ([0, 0, 0], sorted(set(epochs)))

    @on_two_journals
    async def test_a_lease_is_no_fact(self, one: Journal, two: Journal) -> None:
        """A lease changes nothing for writing by its holder, and anybody may read."""
        lease = await one.lease(SESSION)
        assert list(await two.read(SESSION)) == []
        await append_facts(one, SESSION, note_facts(1, 3))
        assert list(await two.read(SESSION)) == note_facts(1, 3)
        lease.release()
        assert list(await one.read(SESSION)) == note_facts(1, 3)


class AppendSignalsConformance(JournalSuite):
    """A follower of a session is woken for each record, no matter which process wrote it."""

    @on_two_journals
    async def test_what_is_there_already_is_news_at_once(self, one: Journal, two: Journal) -> None:
        await append_facts(one, SESSION, note_facts(1, 3))
        async with asyncio.timeout(PATIENCE_S):
            for journal in (one, two):
                for after in (0, 2):
                    await journal.wait_for_append(SESSION, after)

    @on_two_journals
    async def test_an_append_is_news_whoever_wrote_it(self, one: Journal, two: Journal) -> None:
        """Also the first one of a session that is not there yet."""
        for seq, (writer, reader) in enumerate(((one, one), (one, two), (two, one)), 1):
            waiting = asyncio.create_task(reader.wait_for_append(SESSION, seq - 1))
            await asyncio.sleep(0.01)  # The follower should be waiting before the append.
            await append_facts(writer, SESSION, note_facts(seq, seq))
            async with asyncio.timeout(PATIENCE_S):
                await waiting
                await wait_until_visible(reader, seq)

    @on_two_journals
    async def test_a_follower_misses_nothing(self, one: Journal, two: Journal) -> None:
        """No gap and no repeat, however reading and writing fall together."""
        last = 60

        async def write() -> None:
            for fact in note_facts(1, last):
                await append_facts(one, SESSION, [fact])
                await append_facts(one, "another", [fact])
                await asyncio.sleep(0.002 if fact.seq % 7 else 0)

        async def follow(journal: Journal) -> list[Fact]:
            seen = list[Fact]()
            while len(seen) < last:
                await journal.wait_for_append(SESSION, len(seen))
                seen.extend(await journal.read(SESSION, len(seen)))
            return seen

        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            followers = [group.create_task(follow(journal)) for journal in (one, two, two)]
            group.create_task(write())
        assert [task.result() for task in followers] == [note_facts(1, last)] * 3

    @on_two_journals
    async def test_who_no_longer_wants_to_hear_is_gone(self, one: Journal, two: Journal) -> None:
        """A cancel ends the waiting, and the journal keeps serving others."""
        await append_facts(one, SESSION, note_facts(1, 1))
        for journal in (one, two):
            waiting = [asyncio.create_task(journal.wait_for_append(SESSION, 1)) for _ in range(5)]
            await asyncio.sleep(0.01)
            for task in waiting:
                task.cancel()
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.wait(waiting)
            assert all(task.cancelled() for task in waiting)
        async with asyncio.timeout(PATIENCE_S):
            await append_facts(one, SESSION, note_facts(2, 2))
            await wait_until_visible(two, 2)


async def wait_until_visible(journal: Journal, seq: int) -> None:
    """Wait until the journal shows a record: look again after each signal."""
    while len(await journal.read(SESSION)) < seq:
        await journal.wait_for_append(SESSION, seq - 1)
