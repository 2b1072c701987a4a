"""What the SQLite journal and the Postgres journal have in common.

Both keep a row for each session (the end of its chain and its summary) and a row for each record.
Only the statements and the way to the database differ.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

from windlass.core.errors import ConfigError, JournalFailed
from windlass.core.events import Fact
from windlass.core.session_summary import SessionSummary, advance_summary
from windlass.journals.chain import (
    ChainLink,
    RecordProblem,
    RecordRow,
    chain_hash,
    chain_root,
    check_order,
)
from windlass.journals.codec import FactRecord, blob_name, encode_fact, is_blob_name
from windlass.journals.stored_catalog import SESSION_COLUMNS, SUMMARY_COLUMNS, StoredCatalog
from windlass.journals.wording import blob_corrupt_error, session_corrupt_error, session_name_error

Durability = Literal["full", "relaxed"]

_summary_values = attrgetter(*SUMMARY_COLUMNS)
CHANGING_COLUMNS = tuple(name for name in SESSION_COLUMNS.split(", ") if name != "session")
"""The columns that an append may change."""


@dataclass(frozen=True, slots=True)
class PendingAppend:
    """Facts that are not durable yet, and the future of the caller who waits for them."""

    session: str
    facts: Sequence[Fact]
    records: Sequence[FactRecord]
    done: asyncio.Future[None]

    @property
    def size_bytes(self) -> int:
        blobs = (len(data) for record in self.records for _, data in record.blobs)
        return sum(len(record.body) for record in self.records) + sum(blobs)


class SessionEnd(NamedTuple):
    """Where a session ends: what the next append has to follow."""

    last_link: ChainLink
    summary: SessionSummary
    number: int = 0
    """The key of the session's row. Postgres assigns it in the database and leaves this at 0."""

    @classmethod
    def of_new_session(cls, session: str, number: int = 0) -> Self:
        """The end of a session that has no records yet."""
        return cls(chain_root(session), SessionSummary(session), number)

    @classmethod
    def from_row(cls, row: Sequence[Any], number: int = 0) -> Self:
        """Read the end of a session from the values of SESSION_COLUMNS."""
        head, *columns = row
        summary = SessionSummary(**dict(zip(SUMMARY_COLUMNS, columns, strict=True)))
        return cls(ChainLink(summary.facts, head), summary, number)

    def to_row(self) -> tuple[Any, ...]:
        """Return the values of SESSION_COLUMNS."""
        return (self.last_link.hash, *_summary_values(self.summary))

    def extend(self, append: PendingAppend) -> tuple["SessionEnd", list[RecordRow]]:
        """Return the end of the session after an append, and the rows of its records.

        Raises SessionBusy if the sequence numbers are taken, and JournalFailed if there is a gap.
        """
        link = self.last_link
        check_order(append.session, link.seq, append.facts)
        rows: list[RecordRow] = []
        for record in append.records:
            link = ChainLink(link.seq + 1, chain_hash(link.hash, record.body))
            rows.append((link.seq, record.body, link.hash))
        summary = advance_summary(self.summary, append.facts)
        return SessionEnd(link, summary, self.number), rows


class StoredJournal(StoredCatalog):
    """The part of a journal that does not depend on its database."""

    def __init__(self, location: str) -> None:
        self._location = location
        """How errors name the journal: its path, or its server without user and password."""

    @property
    def name(self) -> str:
        """How people name the journal: its path, or its URL without user and password."""
        return self._location.removeprefix("journal ")

    @abstractmethod
    def close(self) -> None:
        """Write what is waiting, then release the database."""

    @abstractmethod
    def _submit_append(self, append: PendingAppend) -> None:
        """Hand an append to the writer, which settles its future."""

    @abstractmethod
    async def _find_blob(self, session: str, prefix: str) -> bytes | None:
        """Return the session's blob whose name begins with `prefix`, unchecked."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def append(self, session: str, facts: Sequence[Fact]) -> asyncio.Future[None]:
        """Write the facts, all or none. The future is done when they are durable.

        It raises SessionBusy if another driver has taken their sequence numbers, and JournalFailed
        if they cannot be written.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not facts:
            done.set_result(None)
            return done
        try:
            name = self._check_name(session)
            records = [encode_fact(fact) for fact in facts]
            self._submit_append(PendingAppend(name, facts, records, done))
        except JournalFailed as error:
            done.set_exception(error)
        return done

    async def get_blob(self, session: str, name: str) -> bytes | None:
        """Return the data that the session keeps under a name, or the first 16 characters of it.

        Returns None if there is none, and raises JournalCorrupt if it is not what was stored.
        """
        if not is_blob_name(name):
            return None
        data = await self._find_blob(self._check_name(session), name)
        if data is not None and not blob_name(data).startswith(name):
            raise blob_corrupt_error(self._location, session, name)
        return data

    def _check_name(self, session: str) -> str:
        """Return the name of a session; raises JournalFailed if it cannot be stored."""
        try:
            session.encode()
        except UnicodeEncodeError as error:
            raise session_name_error(session, error.reason) from None
        return session

    def _require_facts(
        self, session: str, found: Iterable[Fact | RecordProblem]
    ) -> tuple[Fact, ...]:
        """Return the facts; raises JournalCorrupt at the first record that is not sound."""
        facts: list[Fact] = []
        for fact in found:
            if isinstance(fact, RecordProblem):
                raise session_corrupt_error(self._location, session, fact)
            facts.append(fact)
        return tuple(facts)


def check_durability(durability: str) -> None:
    """Raise ConfigError unless this is one of the two values of Durability."""
    if durability not in ("full", "relaxed"):
        raise ConfigError(f"durability={durability!r}: it must be 'full' or 'relaxed'")
