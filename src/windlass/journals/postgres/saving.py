"""Save the tables of a Postgres journal while they are in use, and load them into empty ones.

A backup is a tar file: what it is, each table as `COPY` writes it, and at the end how many rows
each has. All tables are read in one transaction, so they are those of one moment, and every record
is checked in it. The file gets its name last, so what looks like a backup is whole.
"""

import io
import tarfile
import time
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from windlass.core.errors import ConfigError, JournalCorrupt, JournalFailed
from windlass.journals.postgres.config import PostgresConnection
from windlass.journals.postgres.queries import PostgresQueries
from windlass.journals.postgres.schema import MIGRATIONS
from windlass.journals.saved_journal import SavedJournal

FORMAT = "windlass-postgres"
LEFT_OUT = ("failovers", "graves", "windlass", "work", "workers")
"""Tables that say who uses the journal now, and what follows from the others."""
FIRST = ("meta", "sessions")
"""Tables that others refer to."""


class _SavedTables(msgspec.Struct, frozen=True):
    """The first file of a backup: what the backup is."""

    format: str
    version: int
    """The steps that made the tables."""
    at: float
    columns: dict[str, list[str]]
    sequences: dict[str, int]


class _SavedEnd(msgspec.Struct, frozen=True):
    """The last file of a backup."""

    sessions: int
    records: int


class TableSaver:
    """Saves and loads the tables of one schema."""

    def __init__(self, queries: PostgresQueries) -> None:
        self._config = queries.config
        self._queries = queries

    async def save(self, server: PostgresConnection, path: Path) -> SavedJournal:
        """Write all tables to a new file, as they are at one moment, and check every record."""
        draft = path.with_name(f".{path.name}.part")
        _require_free(path)
        try:
            with draft.open("xb") as file, tarfile.open(fileobj=file, mode="w") as archive:
                draft.chmod(0o600)
                async with server.transaction(isolation="repeatable_read", readonly=True):
                    saved = await self._save_tables(server, archive)
            draft.rename(path)
        except OSError as error:
            raise JournalFailed(f"{path} cannot be written: {error.strerror}") from None
        finally:
            draft.unlink(missing_ok=True)
        return saved

    async def _save_tables(
        self, server: PostgresConnection, archive: tarfile.TarFile
    ) -> SavedJournal:
        columns = await self._read_columns(server)
        at = time.time()
        sequences = await self._read_sequences(server)
        head = _SavedTables(FORMAT, len(MIGRATIONS), at, columns, sequences)
        _add_file(archive, "about.json", msgspec.json.encode(head))
        for table, names in columns.items():
            data = io.BytesIO()
            quoted = ", ".join(f'"{name}"' for name in names)
            query = f"SELECT {quoted} FROM {self._config.quoted_schema}.{table}"  # noqa: S608 - our own names
            await cast("Any", server).copy_from_query(query, output=data, format="binary")
            _add_file(archive, f"tables/{table}", data.getvalue())
        sessions, records, problems = await self._queries.verify_all(server)
        if problems:
            raise JournalCorrupt(f"{self._config.location}: {problems[0]}; nothing was saved")
        _add_file(archive, "end.json", msgspec.json.encode(_SavedEnd(sessions, records)))
        return SavedJournal(at, sessions, records)

    async def _read_columns(self, server: PostgresConnection) -> dict[str, list[str]]:
        """Return the columns of each table, those that others refer to first."""
        query = """SELECT table_name, column_name FROM information_schema.columns
            WHERE table_schema = $1 ORDER BY table_name, ordinal_position"""
        found: dict[str, list[str]] = {name: [] for name in FIRST}
        for table, column in await server.fetch(query, self._config.schema):
            if table not in LEFT_OUT:
                found.setdefault(table, []).append(column)
        return found

    async def _read_sequences(self, server: PostgresConnection) -> dict[str, int]:
        query = """SELECT sequencename, coalesce(last_value, 0) FROM pg_sequences
            WHERE schemaname = $1"""
        return {row[0]: row[1] for row in await server.fetch(query, self._config.schema)}

    async def load(self, server: PostgresConnection, path: Path) -> SavedJournal:
        """Load a backup into empty tables, all of it or nothing.

        Raises ConfigError if it is no backup or the tables hold something, and JournalCorrupt if
        the backup is not whole or a record of it was changed.
        """
        try:
            with tarfile.open(path) as archive:
                head = _read_file(archive, "about.json", _SavedTables)
                end = _read_file(archive, "end.json", _SavedEnd)
                self._check_head(head, path)
                async with server.transaction():
                    await self._require_empty(server)
                    await self._load_tables(server, archive, head)
                    sessions, records, problems = await self._queries.verify_all(server)
                    if (sessions, records) != (end.sessions, end.records):
                        problems = ["some of its records are missing", *problems]
                    if problems:
                        raise JournalCorrupt(f"{path}: {problems[0]}; nothing was restored")
        except (OSError, tarfile.TarError, KeyError, msgspec.MsgspecError):
            raise ConfigError(
                f"{path} is not a whole backup of a Postgres journal, as `windlass backup` makes it"
            ) from None
        return SavedJournal(head.at, sessions, records)

    def _check_head(self, head: _SavedTables, path: Path) -> None:
        if head.format != FORMAT or head.version != len(MIGRATIONS):
            raise ConfigError(
                f"{path} has tables of version {head.version}, and this Windlass makes version "
                f"{len(MIGRATIONS)}: restore it with the Windlass that made it, then upgrade"
            )

    async def _require_empty(self, server: PostgresConnection) -> None:
        schema = self._config.quoted_schema
        query = f"""SELECT (SELECT count(*) FROM {schema}.sessions)
            + (SELECT count(*) FROM {schema}.shared_records)"""  # noqa: S608 - our own names
        if await server.fetchval(query):
            raise ConfigError(
                f"{self._config.location} holds a journal: restore into an empty database, and "
                "let the services use that one"
            )

    async def _load_tables(
        self, server: PostgresConnection, archive: tarfile.TarFile, head: _SavedTables
    ) -> None:
        schema = self._config.quoted_schema
        await server.execute(f"DELETE FROM {schema}.meta")  # noqa: S608 - our own names
        for table, names in head.columns.items():
            data = archive.extractfile(f"tables/{table}")
            await cast("Any", server).copy_to_table(
                table,
                schema_name=self._config.schema,
                columns=names,
                source=cast("IO[bytes]", data),
                format="binary",
            )
        for name, value in head.sequences.items():
            if value:
                place = f"{schema}.{name}"
                await server.fetchval("SELECT setval($1::text::regclass, $2)", place, value)
        # The sessions came before their mail, which says whose work they are.
        await server.execute(f"SELECT {schema}.keep_work(sessions) FROM {schema}.sessions")  # noqa: S608 - our own names
        # No process of the journal that was saved drives anything here.
        await server.execute(f"UPDATE {schema}.sessions SET worker = NULL, doubt = false")  # noqa: S608 - as above


def _require_free(path: Path) -> None:
    if path.exists():
        raise ConfigError(f"{path} exists already: name another file for the backup")


def _add_file(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    head = tarfile.TarInfo(name)
    head.size = len(data)
    head.mtime = int(time.time())
    archive.addfile(head, io.BytesIO(data))


def _read_file(archive: tarfile.TarFile, name: str, kind: type[Any]) -> Any:  # noqa: ANN401 - of `kind`
    file = archive.extractfile(name)
    return msgspec.json.decode(b"" if file is None else file.read(), type=kind)
