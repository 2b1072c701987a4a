"""Shared records in Postgres. For who may write them, the login of the database is the boundary."""

import secrets
from collections.abc import Sequence
from typing import NamedTuple

from windlass.journals.mail_rules import MailLimits
from windlass.journals.postgres.config import PostgresConfig, PostgresConnection
from windlass.journals.postgres.mailbox import PostgresMailbox
from windlass.journals.record_rules import (
    check_record_data,
    check_record_key,
    clamp_page,
    record_conflict_error,
)
from windlass.ports import SharedRecord


class RecordChange(NamedTuple):
    """A record to write. The nonce tells the change of this call from that of another."""

    kind: str
    name: str
    data: bytes
    version: int
    nonce: str


class PostgresRecords:
    """The statements for the shared records of one schema.

    Each may be run again when its connection breaks: the nonce finds what the first run wrote.
    """

    def __init__(self, config: PostgresConfig) -> None:
        self._table = f"{config.quoted_schema}.shared_records"

    async def get_record(
        self, server: PostgresConnection, kind: str, name: str
    ) -> SharedRecord | None:
        """Return a record, if there is one."""
        query = f"SELECT version, data FROM {self._table} WHERE kind = $1 AND name = $2"  # noqa: S608 - the table is a constant
        row = await server.fetchrow(query, kind, name)
        return None if row is None else SharedRecord(kind, name, *row)

    async def list_records(
        self, server: PostgresConnection, kind: str, after: str, limit: int
    ) -> Sequence[SharedRecord]:
        """Return the records of a kind after a name, in the order of names."""
        query = f"""SELECT kind, name, version, data FROM {self._table}
            WHERE kind = $1 AND name > $2 ORDER BY name LIMIT $3"""  # noqa: S608 - as above
        return [SharedRecord(*row) for row in await server.fetch(query, kind, after, limit)]

    async def put_record(self, server: PostgresConnection, change: RecordChange) -> SharedRecord:
        """Write a change, if the record still has the version that it changes."""
        kind, name, data, version, nonce = change
        if version:
            query = f"""UPDATE {self._table} SET version = DEFAULT, data = $3, nonce = $4
                WHERE kind = $1 AND name = $2 AND version = $5 RETURNING version"""  # noqa: S608 - as above
            values = (kind, name, data, nonce, version)
        else:
            query = f"""INSERT INTO {self._table} (kind, name, data, nonce)
                VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING RETURNING version"""  # noqa: S608 - as above
            values = (kind, name, data, nonce)
        written = await server.fetchval(query, *values)
        if written is None:
            query = f"""SELECT version FROM {self._table}
                WHERE kind = $1 AND name = $2 AND nonce = $3"""  # noqa: S608 - as above
            written = await server.fetchval(query, kind, name, nonce)
        if written is None:
            raise record_conflict_error(kind, name, version)
        return SharedRecord(kind, name, written, data)

    async def delete_record(
        self, server: PostgresConnection, kind: str, name: str, version: int | None
    ) -> bool:
        """Delete a record. Returns whether there was one."""
        query = f"""DELETE FROM {self._table}
            WHERE kind = $1 AND name = $2 AND version = coalesce($3, version) RETURNING version"""  # noqa: S608 - as above
        if await server.fetchval(query, kind, name, version) is not None:
            return True
        if version is not None and await self.get_record(server, kind, name) is not None:
            raise record_conflict_error(kind, name, version)
        return False


class PostgresRecordStore(PostgresMailbox):
    """Keeps the shared records of a schema."""

    def __init__(self, config: PostgresConfig, limits: MailLimits) -> None:
        super().__init__(config, limits)
        self._records = PostgresRecords(config)

    async def get_record(self, kind: str, name: str) -> SharedRecord | None:
        """Return a shared record, if there is one."""
        check_record_key(kind, name)
        return await self._run_query(lambda server: self._records.get_record(server, kind, name))

    async def put_record(self, kind: str, name: str, data: bytes, version: int) -> SharedRecord:
        """Replace the shared record with this version; raises RecordConflict if it has another."""
        check_record_key(kind, name)
        check_record_data(kind, name, data)
        change = RecordChange(kind, name, data, version, secrets.token_hex(16))
        return await self._run_query(lambda server: self._records.put_record(server, change))

    async def delete_record(self, kind: str, name: str, version: int | None = None) -> bool:
        """Delete a shared record. Returns whether there was one."""
        check_record_key(kind, name)
        return await self._run_query(
            lambda server: self._records.delete_record(server, kind, name, version)
        )

    async def list_records(
        self, kind: str, after: str = "", limit: int = 100
    ) -> Sequence[SharedRecord]:
        """Return the shared records of a kind after a name, in the order of names."""
        check_record_key(kind, after or "first")
        return await self._run_query(
            lambda server: self._records.list_records(server, kind, after, clamp_page(limit))
        )
