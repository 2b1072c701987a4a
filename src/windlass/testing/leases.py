"""What a journal must do that knows who drives a session, and tells who follows one."""

import asyncio
from typing import Protocol

from windlass.core.errors import SessionBusy
from windlass.core.events import Fact
from windlass.ports import Following, Journal, Leasing
from windlass.testing.journals import SESSION, Stage, on_a_journal, on_two_journals, refusal
from windlass.testing.samples import notes

PATIENCE_S = 30.0
"""How long a test waits for what must come; only a journal that fails is waited for so long."""


class LeasingJournal(Journal, Leasing, Protocol):
    """Knows who drives a session."""


class FollowingJournal(Journal, Following, Protocol):
    """Tells when somebody wrote."""


class LeasingConformance(Stage):
    """One driver for a session at a time, wherever they are."""

    @on_a_journal
    async def test_it_is_one_that_leases(self, journal: LeasingJournal) -> None:
        assert isinstance(journal, Leasing)

    @on_two_journals
    async def test_a_leased_session_is_refused_at_once(
        self, one: LeasingJournal, two: LeasingJournal
    ) -> None:
        """L14: by the journal that leased it, and by another on the same store."""
        assert not await one.leased(SESSION)
        lease = await one.lease(SESSION)
        for journal in (one, two):
            assert await journal.leased(SESSION)
            busy = await refusal(journal.lease(SESSION))
            assert isinstance(busy, SessionBusy)
            assert SESSION in str(busy)
        lease.release()
        for journal in (one, two):
            assert not await journal.leased(SESSION)
            (await journal.lease(SESSION)).release()

    @on_two_journals
    async def test_letting_go_twice_frees_nobody_else(
        self, one: LeasingJournal, two: LeasingJournal
    ) -> None:
        for holder, other in ((one, two), (one, one)):
            first = await holder.lease(SESSION)
            first.release()
            second = await other.lease(SESSION)
            first.release()
            assert await one.leased(SESSION)
            assert await two.leased(SESSION)
            second.release()
            assert not await one.leased(SESSION)

    @on_two_journals
    async def test_a_lease_is_for_its_session_alone(
        self, one: LeasingJournal, two: LeasingJournal
    ) -> None:
        names = [f"session {at}" for at in range(50)]
        leases = [await one.lease(name) for name in names[::2]]
        others = [await two.lease(name) for name in names[1::2]]
        for name in names:
            assert await one.leased(name)
            assert await two.leased(name)
        for lease in (*leases, *others):
            lease.release()
        assert not any([await one.leased(name) for name in names])

    @on_two_journals
    async def test_of_many_who_want_it_one_has_it(
        self, one: LeasingJournal, two: LeasingJournal
    ) -> None:
        for _ in range(20):
            wanted = (journal.lease(SESSION) for journal in (one, two) * 5)
            ends = await asyncio.gather(*wanted, return_exceptions=True)
            got = [end for end in ends if not isinstance(end, BaseException)]
            refused = [end for end in ends if isinstance(end, SessionBusy)]
            assert (len(got), len(refused)) == (1, 9)
            got[0].release()

    @on_two_journals
    async def test_a_lease_is_no_fact(self, one: LeasingJournal, two: LeasingJournal) -> None:
        """Who holds it writes as ever, and anybody may read."""
        lease = await one.lease(SESSION)
        assert list(await two.read(SESSION)) == []
        await one.append(SESSION, notes(1, 3))
        assert list(await two.read(SESSION)) == notes(1, 3)
        lease.release()
        assert list(await one.read(SESSION)) == notes(1, 3)


class FollowingConformance(Stage):
    """Who follows a session hears of each record that anybody writes."""

    @on_a_journal
    async def test_it_is_one_that_can_be_followed(self, journal: FollowingJournal) -> None:
        assert isinstance(journal, Following)

    @on_two_journals
    async def test_what_is_there_already_is_news_at_once(
        self, one: FollowingJournal, two: FollowingJournal
    ) -> None:
        await one.append(SESSION, notes(1, 3))
        async with asyncio.timeout(PATIENCE_S):
            for journal in (one, two):
                for after in (0, 2):
                    await journal.news(SESSION, after)

    @on_two_journals
    async def test_an_append_is_news_whoever_wrote_it(
        self, one: FollowingJournal, two: FollowingJournal
    ) -> None:
        """E5: also the first one of a session that is not there yet."""
        for seq, (writer, reader) in enumerate(((one, one), (one, two), (two, one)), 1):
            heard = asyncio.create_task(reader.news(SESSION, seq - 1))
            await asyncio.sleep(0.01)
            await writer.append(SESSION, notes(seq, seq))
            async with asyncio.timeout(PATIENCE_S):
                await heard
                await caught_up(reader, seq)

    @on_two_journals
    async def test_a_follower_misses_nothing(
        self, one: FollowingJournal, two: FollowingJournal
    ) -> None:
        """E5: no gap and no repeat, however reading and writing fall together."""
        last = 60

        async def write() -> None:
            for fact in notes(1, last):
                await one.append(SESSION, [fact])
                await one.append("another", [fact])
                await asyncio.sleep(0.002 if fact.seq % 7 else 0)

        async def follow(journal: FollowingJournal) -> list[Fact]:
            seen = list[Fact]()
            while len(seen) < last:
                await journal.news(SESSION, len(seen))
                seen.extend(await journal.read(SESSION, len(seen)))
            return seen

        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            followers = [group.create_task(follow(journal)) for journal in (one, two, two)]
            group.create_task(write())
        assert [task.result() for task in followers] == [notes(1, last)] * 3

    @on_two_journals
    async def test_who_no_longer_wants_to_hear_is_gone(
        self, one: FollowingJournal, two: FollowingJournal
    ) -> None:
        """C1: a cancel ends the waiting, and the journal goes on for others."""
        await one.append(SESSION, notes(1, 1))
        for journal in (one, two):
            waiting = [asyncio.create_task(journal.news(SESSION, 1)) for _ in range(5)]
            await asyncio.sleep(0.01)
            for task in waiting:
                task.cancel()
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.wait(waiting)
            assert all(task.cancelled() for task in waiting)
        async with asyncio.timeout(PATIENCE_S):
            await one.append(SESSION, notes(2, 2))
            await caught_up(two, 2)


async def caught_up(journal: FollowingJournal, seq: int) -> None:
    """Wait until the journal shows a record; each time there is news, look."""
    while len(await journal.read(SESSION)) < seq:
        await journal.news(SESSION, seq - 1)
