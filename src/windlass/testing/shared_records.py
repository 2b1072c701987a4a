"""The conformance suite for journals that keep small documents which many programs share."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from windlass.core.errors import ConfigError, RecordConflict
from windlass.core.rate_limits import LimitReport, RateLimits
from windlass.ports import SharedRecords
from windlass.runtime.shared_limits import SharedQuota
from windlass.testing.journals import JournalSuite, error_of, on_a_journal, on_two_journals

WRITERS = 8
ROUNDS = 5
QUOTA = 40


class SharedRecordsConformance(JournalSuite):
    """A record is changed by compare and set: of many who change it at once, one does."""

    @on_two_journals
    async def test_what_one_program_wrote_another_reads(
        self, one: SharedRecords, two: SharedRecords
    ) -> None:
        assert await two.get_record("token", "a") is None
        made = await one.put_record("token", "a", b"\x00\xffsome data", 0)
        assert (made.kind, made.name, made.data) == ("token", "a", b"\x00\xffsome data")
        assert made.version > 0
        assert await two.get_record("token", "a") == made
        changed = await two.put_record("token", "a", b"", made.version)
        assert changed.version > made.version
        assert await one.get_record("token", "a") == changed
        assert await one.get_record("schedule", "a") is None

    @on_two_journals
    async def test_only_the_version_that_was_read_can_be_changed(
        self, one: SharedRecords, two: SharedRecords
    ) -> None:
        first = await one.put_record("k", "n", b"1", 0)
        second = await two.put_record("k", "n", b"2", first.version)
        for wrong in (0, first.version, second.version + 1):
            error = await error_of(one.put_record("k", "n", b"3", wrong))
            assert isinstance(error, RecordConflict)
        assert isinstance(await error_of(one.put_record("k", "none", b"", 1)), RecordConflict)
        assert await one.get_record("k", "n") == second
        assert await one.get_record("k", "none") is None

    @on_two_journals
    async def test_a_record_can_be_deleted(self, one: SharedRecords, two: SharedRecords) -> None:
        made = await one.put_record("k", "n", b"1", 0)
        error = await error_of(two.delete_record("k", "n", made.version + 1))
        assert isinstance(error, RecordConflict)
        assert await two.delete_record("k", "n", made.version)
        assert await one.get_record("k", "n") is None
        assert not await one.delete_record("k", "n")
        assert not await one.delete_record("k", "n", made.version)

    @on_a_journal
    async def test_a_version_is_never_used_again(self, journal: SharedRecords) -> None:
        """A reader of a record that was deleted and made again must not change the new one."""
        first = await journal.put_record("k", "n", b"1", 0)
        await journal.delete_record("k", "n")
        again = await journal.put_record("k", "n", b"2", 0)
        assert again.version > first.version
        error = await error_of(journal.put_record("k", "n", b"3", first.version))
        assert isinstance(error, RecordConflict)

    @on_a_journal
    async def test_records_are_listed_by_name_in_pages(self, journal: SharedRecords) -> None:
        names = ["B", "a", "a/b", "b", "é", "😀", "\uffff"]
        for name in names:
            await journal.put_record("listed", name, name.encode(), 0)
        await journal.put_record("other", "c", b"", 0)
        found: list[str] = []
        after = ""
        while page := await journal.list_records("listed", after, 2):
            assert len(page) <= 2  # noqa: PLR2004
            found += [record.name for record in page]
            assert all(record.data == record.name.encode() for record in page)
            after = page[-1].name
        assert found == sorted(names)
        assert await journal.list_records("listed", limit=0) == []
        assert await journal.list_records("none") == []

    @on_a_journal
    async def test_what_cannot_be_kept_is_refused(self, journal: SharedRecords) -> None:
        for wrong in ("", "x" * 1_001, "a\0b", "\ud800"):
            assert isinstance(await error_of(journal.put_record("k", wrong, b"", 0)), ConfigError)
            assert isinstance(await error_of(journal.put_record(wrong, "n", b"", 0)), ConfigError)
        too_long = bytes(1_000_001)
        assert isinstance(await error_of(journal.put_record("k", "n", too_long, 0)), ConfigError)
        assert await journal.list_records("k") == []

    @on_two_journals
    async def test_of_many_who_change_a_record_at_once_one_does(
        self, one: SharedRecords, two: SharedRecords
    ) -> None:
        """Each round has one winner, and nothing that was counted is lost."""

        async def count_up(journal: SharedRecords) -> int:
            known = await journal.get_record("k", "counter")
            data = b"%d" % (int(known.data) + 1 if known else 1)
            try:
                await journal.put_record("k", "counter", data, known.version if known else 0)
            except RecordConflict:
                return 0
            return 1

        wins = 0
        for _ in range(ROUNDS):
            tries = (count_up((one, two)[at % 2]) for at in range(WRITERS))
            won = sum(await asyncio.gather(*tries))
            assert won >= 1
            wins += won
        counter = await one.get_record("k", "counter")
        assert counter is not None
        assert int(counter.data) == wins

    def test_records_outlive_the_journal(self, tmp_path: Path) -> None:
        if not self.durable:
            return

        async def put(journal: SharedRecords) -> None:
            await journal.put_record("k", "n", b"kept", 0)

        async def get(journal: SharedRecords) -> None:
            record = await journal.get_record("k", "n")
            assert record is not None
            assert record.data == b"kept"

        self.run_scenario(tmp_path, put)
        self.run_scenario(tmp_path, get)


class SharedQuotaConformance(JournalSuite):
    """Processes that share the quota of a provider through a journal never lend a part twice."""

    @on_two_journals
    async def test_two_borrowers_never_get_the_same_part(
        self, one: SharedRecords, two: SharedRecords
    ) -> None:
        quotas = [SharedQuota("p", records, FixedClock(self.now)) for records in (one, two)]
        # It refills so slowly that nothing comes back in the meantime.
        quotas[0].take_report(RateLimits(LimitReport(2 * QUOTA, QUOTA, reset_s=1e9)))
        await quotas[0].synchronize()

        async def borrow_all(quota: SharedQuota) -> float:
            lent = 0.0
            while (loan := await quota.borrow(3, 0)).requests:
                lent += loan.requests
            return lent

        lent = await asyncio.gather(*(borrow_all(quotas[nth % 2]) for nth in range(WRITERS)))
        assert QUOTA - 1 < sum(lent) < QUOTA + 0.01

    @on_two_journals
    async def test_what_the_provider_says_to_one_holds_for_the_other(
        self, one: SharedRecords, two: SharedRecords
    ) -> None:
        teller = SharedQuota("p", one, FixedClock(self.now))
        listener = SharedQuota("p", two, FixedClock(self.now))
        assert (await listener.borrow(1, 10)).is_unlimited
        teller.close(30.0)
        await teller.synchronize()
        assert (await listener.borrow(1, 10)).closed_s > 0
        other = SharedQuota("another provider", two, FixedClock(self.now))
        assert (await other.borrow(1, 10)).is_unlimited


class FixedClock:
    """The time of a suite; its random numbers never vary."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def random_fraction(self) -> float:
        return 0.5
