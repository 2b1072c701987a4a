"""Shared records in Postgres.

With keys, a record that gives a right counts only if a service signed it: its kind, its name, its
version and its data. One that no service signed is read as if it were not there. Without keys, the
login of the database is the boundary.
"""

import secrets
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from typing_extensions import override

from windlass.core.errors import ConfigError
from windlass.core.text_clip import printable_line
from windlass.journals.mail_rules import MailLimits
from windlass.journals.postgres.config import PostgresConfig, PostgresConnection
from windlass.journals.postgres.mailbox import PostgresMailbox
from windlass.journals.postgres.repeating import (
    ERASURE_KIND,
    KeptDeletion,
    KeptRecord,
    Repeaters,
)
from windlass.journals.record_rules import (
    SIGNED_KINDS,
    check_record_data,
    check_record_key,
    clamp_page,
    record_conflict_error,
)
from windlass.journals.service_keys import ServiceKeys
from windlass.logs import get_logger
from windlass.ports.records import SharedRecord

_PURPOSE = "record"
REPORTED_MAX = 10_000
"""Records that are logged because they do not count: a login could insert any number of them."""
_log = get_logger(__name__)


class RecordChange(NamedTuple):
    """A record to write. The nonce distinguishes the change of this call from that of another."""

    kind: str
    name: str
    data: bytes
    version: int
    nonce: str


class SignedRecords:
    """Decides which records count, by their signatures and by what this process has seen before.

    A row that was replaced or deleted keeps its signature. If it is put back, a process that knew a
    later version, or that it was gone, does not use it.
    """

    def __init__(self, location: str, keys: ServiceKeys) -> None:
        self._location = location
        self._keys = keys
        self._lowest: dict[str, dict[str, int]] = {}
        """The lowest version that can still be the current one, by kind and name."""
        self._reported: set[tuple[str, str, int]] = set()

    def covers(self, kind: str) -> bool:
        """Whether records of a kind need a signature."""
        return self._keys.is_configured and kind in SIGNED_KINDS

    def check_writer(self, kind: str) -> None:
        """Raise ConfigError if this process cannot sign a record of a kind."""
        if self.covers(kind) and not self._keys.can_sign:
            raise ConfigError(
                f"a {kind} in this journal is signed by the service, and this process does not "
                "have its key: use the service, or set WINDLASS_SIGNING_KEY_FILE"
            )

    def read_lowest(self, kind: str) -> Mapping[str, int]:
        """Return the lowest versions of a kind. Ask before the rows are read.

        Then a change that comes meanwhile is not taken for a row that was put back.
        """
        return dict(self._lowest.get(kind, {})) if self.covers(kind) else {}

    def note_version(self, record: SharedRecord) -> None:
        """Note the version of a record that this process read or wrote."""
        if self.covers(record.kind):
            self._raise_lowest(record.kind, record.name, record.version)

    def note_absence(self, kind: str, name: str, lowest: int) -> None:
        """Note that a record was gone, whose lowest version was this one."""
        if self.covers(kind) and lowest:
            self._raise_lowest(kind, name, lowest + 1)

    def sign(self, record: SharedRecord) -> str:
        """Return the signature of a record."""
        return self._keys.sign(_PURPOSE, *_values(record))

    def is_signed(self, record: SharedRecord, signature: str) -> bool:
        """Whether a service that is trusted signed a record."""
        return self._keys.is_valid(signature, _PURPOSE, *_values(record))

    def counts(self, record: SharedRecord, signature: str, lowest: int) -> bool:
        """Whether a row is used. One that is not is logged once."""
        if not self.covers(record.kind):
            return True
        problem = ""
        if not self.is_signed(record, signature):
            problem = "is not signed by a service that is trusted here"
        elif record.version < lowest:
            problem = "was put back after it was changed or deleted"
        place = (record.kind, record.name, record.version)
        if problem and place not in self._reported and len(self._reported) < REPORTED_MAX:
            self._reported.add(place)
            name = printable_line(record.name)
            _log.warning(
                "%s: %s %r %s, and is not used", self._location, record.kind, name, problem
            )
        if not problem:
            self.note_version(record)
        return not problem

    def _raise_lowest(self, kind: str, name: str, version: int) -> None:
        known = self._lowest.setdefault(kind, {})
        known[name] = max(version, known.get(name, 0))


def _values(record: SharedRecord) -> tuple[str, str, int, bytes]:
    return (record.kind, record.name, record.version, record.data)


class PostgresRecords:
    """The statements for the shared records of one schema.

    Each may be run again when its connection breaks: the nonce finds what the first run wrote.
    """

    def __init__(self, config: PostgresConfig, signed: SignedRecords) -> None:
        self._schema = config.quoted_schema
        self._table = f"{config.quoted_schema}.shared_records"
        self._versions = f"{config.quoted_schema}.record_versions"
        self._signed = signed

    async def get_record(
        self, server: PostgresConnection, kind: str, name: str
    ) -> SharedRecord | None:
        """Return a record, if there is one that counts."""
        lowest = self._signed.read_lowest(kind).get(name, 0)
        query = f"""SELECT kind, name, version, data, signature FROM {self._table}
            WHERE kind = $1 AND name = $2"""  # noqa: S608 - the table is a constant
        row = await server.fetchrow(query, kind, name)
        if row is None:
            self._signed.note_absence(kind, name, lowest)
            return None
        return self._read_row(row, lowest)

    async def list_records(
        self, server: PostgresConnection, kind: str, after: str, limit: int
    ) -> Sequence[SharedRecord]:
        """Return the records of a kind after a name that count, in the order of names.

        Rows that do not count are passed over, so that no page but the last one is empty.
        """
        found: list[SharedRecord] = []
        while len(found) < limit:
            lowest = self._signed.read_lowest(kind)
            rows = await self.list_rows(server, kind, after, limit)
            for row in rows:
                record = self._read_row(row, lowest.get(row[1], 0))
                if record is not None:
                    found.append(record)
            if len(rows) < limit:
                break
            after = rows[-1][1]
        return found[:limit]

    async def list_rows(
        self, server: PostgresConnection, kind: str, after: str, limit: int
    ) -> Sequence[Sequence[Any]]:
        """Return the records of a kind with their signatures, whether they count or not."""
        query = f"""SELECT kind, name, version, data, signature FROM {self._table}
            WHERE kind = $1 AND name > $2 ORDER BY name LIMIT $3"""  # noqa: S608 - as above
        return await server.fetch(query, kind, after, limit)

    def _read_row(self, row: Sequence[Any], lowest: int) -> SharedRecord | None:
        record = SharedRecord(*row[:4])
        return record if self._signed.counts(record, row[4], lowest) else None

    async def find_first(self, server: PostgresConnection, session: str) -> bytes | None:
        """Return the hash of the first record of a session; None if there is none."""
        query = f"""SELECT hash FROM {self._schema}.sessions
            JOIN {self._schema}.records USING (number) WHERE session = $1 AND seq = 1"""  # noqa: S608 - as above
        return await server.fetchval(query, session)

    async def find_version(self, server: PostgresConnection, kind: str, name: str) -> int:
        """Return the version of a record, whether it counts or not; 0 if there is none."""
        query = f"SELECT version FROM {self._table} WHERE kind = $1 AND name = $2"  # noqa: S608 - as above
        return await server.fetchval(query, kind, name) or 0

    async def put_record(self, server: PostgresConnection, change: RecordChange) -> SharedRecord:
        """Write a change, if the record still has the version that it changes."""
        kind, name, data, version, nonce = change
        following, signature = await self._sign_change(server, change)
        # DEFAULT takes the next number by itself; a signature needs to know it before.
        number = "DEFAULT" if following is None else "$6"
        values: list[object] = [kind, name, data, nonce, signature]
        values += [] if following is None else [following]
        if version:
            values.append(version)
            query = f"""UPDATE {self._table}
                SET version = {number}, data = $3, nonce = $4, signature = $5
                WHERE kind = $1 AND name = $2 AND version = ${len(values)} RETURNING version"""  # noqa: S608 - as above
        else:
            query = f"""INSERT INTO {self._table} (kind, name, data, nonce, signature, version)
                VALUES ($1, $2, $3, $4, $5, {number})
                ON CONFLICT DO NOTHING RETURNING version"""  # noqa: S608 - as above
        written = await server.fetchval(query, *values)
        if written is None:
            query = f"""SELECT version FROM {self._table}
                WHERE kind = $1 AND name = $2 AND nonce = $3"""  # noqa: S608 - as above
            written = await server.fetchval(query, kind, name, nonce)
        if written is None:
            raise record_conflict_error(kind, name, version)
        record = SharedRecord(kind, name, written, data)
        self._signed.note_version(record)
        return record

    async def replace_record(
        self, server: PostgresConnection, kind: str, name: str, data: bytes
    ) -> None:
        """Write a record, whatever is there. Call it in a transaction."""
        delete = f"DELETE FROM {self._table} WHERE kind = $1 AND name = $2"  # noqa: S608 - as above
        await server.execute(delete, kind, name)
        await self.put_record(server, RecordChange(kind, name, data, 0, secrets.token_hex(16)))

    async def _sign_change(
        self, server: PostgresConnection, change: RecordChange
    ) -> tuple[int | None, str]:
        """Return the version that a record gets, and its signature; None if it needs none."""
        if not self._signed.covers(change.kind):
            return None, ""
        version: int = await server.fetchval("SELECT nextval($1::text::regclass)", self._versions)
        record = SharedRecord(change.kind, change.name, version, change.data)
        return version, self._signed.sign(record)

    async def delete_record(
        self, server: PostgresConnection, kind: str, name: str, version: int | None
    ) -> int:
        """Delete a record, whether it counts or not. Returns its version; 0 if there was none."""
        query = f"""DELETE FROM {self._table}
            WHERE kind = $1 AND name = $2 AND version = coalesce($3, version) RETURNING version"""  # noqa: S608 - as above
        deleted = await server.fetchval(query, kind, name, version)
        if deleted is not None:
            self._signed.note_absence(kind, name, deleted)
            return deleted
        if version is not None and await self.get_record(server, kind, name) is not None:
            raise record_conflict_error(kind, name, version)
        return 0


class PostgresRecordStore(PostgresMailbox):
    """Keeps the shared records of a schema."""

    def __init__(self, config: PostgresConfig, limits: MailLimits, keys: ServiceKeys) -> None:
        super().__init__(config, limits, keys)
        self._signed = SignedRecords(config.location, keys)
        self._records = PostgresRecords(config, self._signed)

    async def get_record(self, kind: str, name: str) -> SharedRecord | None:
        """Return a shared record, if there is one that counts."""
        check_record_key(kind, name)
        return await self._run_query(lambda server: self._records.get_record(server, kind, name))

    async def put_record(self, kind: str, name: str, data: bytes, version: int) -> SharedRecord:
        """Replace the shared record with this version.

        Raises RecordConflict if it has another one, and ConfigError if the record needs a signature
        and this process lacks the private key.
        """
        check_record_key(kind, name)
        check_record_data(kind, name, data)
        self._signed.check_writer(kind)
        change = RecordChange(kind, name, data, version, secrets.token_hex(16))
        record = await self._run_query(lambda server: self._records.put_record(server, change))
        self._changes.keep_record((kind, name), data, version, record.version)
        return record

    async def delete_record(self, kind: str, name: str, version: int | None = None) -> bool:
        """Delete a shared record. Returns whether there was one."""
        check_record_key(kind, name)
        deleted = await self._run_query(
            lambda server: self._records.delete_record(server, kind, name, version)
        )
        if deleted:
            self._changes.keep_record((kind, name), None, deleted, 0)
        return deleted > 0

    @abstractmethod
    async def delete(self, session: str, *, erase: bool = False) -> bool:
        """Delete a session, and those that work for it; returns whether there was one."""

    @override
    async def _repeat_changes(self) -> None:
        await self._changes.repeat(
            Repeaters(
                records=self._repeat_record,
                deletions=self._repeat_deletion,
                letters=self._repeat_letter,
            )
        )

    async def _repeat_deletion(self, kept: KeptDeletion) -> None:
        """Delete a session again that a failover brought back."""
        first = await self._run_query(lambda it: self._records.find_first(it, kept.session))
        if first == kept.first:
            await self.delete(kept.session, erase=kept.erase)

    async def _repeat_record(self, kept: KeptRecord) -> None:
        """Change a record again, if it is there as this process found it."""
        kind, name = kept.kind, kept.name
        version = await self._run_query(lambda it: self._records.find_version(it, kind, name))
        if kind == ERASURE_KIND:
            # What it had erased may be there again: it begins from the start.
            if not version and kept.first is not None:
                await self.put_record(kind, name, kept.first, 0)
        elif version != kept.version and version in kept.replaced:
            if kept.data is None:
                await self.delete_record(kind, name, version)
            else:
                await self.put_record(kind, name, kept.data, version)

    async def list_records(
        self, kind: str, after: str = "", limit: int = 100
    ) -> Sequence[SharedRecord]:
        """Return the shared records of a kind after a name, in the order of names."""
        check_record_key(kind, after or "first")
        return await self._run_query(
            lambda server: self._records.list_records(server, kind, after, clamp_page(limit))
        )

    async def find_unsigned_records(self) -> list[str]:
        """Return the records that no trusted service signed, in words; none without keys."""
        return [
            f"{printable_line(record.kind)} {printable_line(record.name)!r} is not signed by a "
            "service that is trusted here, and is not used"
            for record, is_signed in await self._read_signed_kinds()
            if not is_signed
        ]

    async def sign_records(self, *, accept: bool = False) -> int:
        """Sign the records again with the present key, so that an older key can be retired.

        Returns how many were signed. With `accept`, records that no trusted service signed count
        from then on. Raises ConfigError without the private key, and RecordConflict if one changes
        meanwhile.
        """
        if not self._keys.can_sign:
            raise ConfigError("records are signed with the private key: pass --signing-key FILE")
        count = 0
        for record, is_signed in await self._read_signed_kinds():
            if is_signed or accept:
                await self.put_record(record.kind, record.name, record.data, record.version)
                count += 1
        return count

    async def _read_signed_kinds(self) -> list[tuple[SharedRecord, bool]]:
        """Return the records that need a signature, and whether each has one."""
        found: list[tuple[SharedRecord, bool]] = []
        for kind in sorted(filter(self._signed.covers, SIGNED_KINDS)):
            after = ""
            while rows := await self._list_rows(kind, after):
                for row in rows:
                    record = SharedRecord(*row[:4])
                    found.append((record, self._signed.is_signed(record, row[4])))
                after = rows[-1][1]
        return found

    async def _list_rows(self, kind: str, after: str) -> Sequence[Sequence[Any]]:
        return await self._run_query(
            lambda server: self._records.list_rows(server, kind, after, clamp_page(1_000))
        )
