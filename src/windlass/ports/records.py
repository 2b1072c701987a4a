"""What a journal keeps beside the facts of sessions: blobs, shared records, tombstones, proofs."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol

import msgspec
from typing_extensions import override

from windlass.core.verdicts import Grant


class BlobStore(Protocol):
    """A journal that keeps data beside the facts of a session, by its hash."""

    async def put_blob(self, session: str, data: bytes) -> str:
        """Keep data for as long as the session. Returns its name once it is durable."""
        ...

    async def get_blob(self, session: str, name: str) -> bytes | None:
        """Return what the session keeps under a name; the first 16 characters are enough."""
        ...


class SharedRecord(msgspec.Struct, frozen=True):
    """A small document that all programs with the journal share."""

    kind: str
    name: str
    version: int
    """Grows with each change. No version is used again, also not after the record was deleted."""
    data: bytes


class SharedRecords(Protocol):
    """A journal that keeps small documents beside its sessions: tokens, schedules, cursors.

    A record is changed by compare and set, so that of many programs exactly one makes a change.
    """

    async def get_record(self, kind: str, name: str) -> SharedRecord | None:
        """Return a record, or None if no record has this name."""
        ...

    async def put_record(self, kind: str, name: str, data: bytes, version: int) -> SharedRecord:
        """Replace the record with this version, and return the new one once it is durable.

        Version 0 makes a new record. Raises RecordConflict, and changes nothing, if the record has
        another version, or none.
        """
        ...

    async def delete_record(self, kind: str, name: str, version: int | None = None) -> bool:
        """Delete a record. Returns whether there was one.

        Raises RecordConflict if a version is given, and the record has another one.
        """
        ...

    async def list_records(
        self, kind: str, after: str = "", limit: int = 100
    ) -> Sequence[SharedRecord]:
        """Return the records of a kind whose names come after a name, in the order of names."""
        ...


class RecordProblem(msgspec.Struct, frozen=True):
    """What is wrong with a record of a session; `str()` gives it as a message."""

    seq: int
    what: str

    @override
    def __str__(self) -> str:
        return f"record {self.seq}: {self.what}"


class Tombstone(msgspec.Struct, frozen=True):
    """What stays of a session that was deleted."""

    at: float
    """When, in seconds since the epoch."""
    erased: bool = False
    """Whether it must not come back: an import of it is refused."""

    def describe(self) -> str:
        """Return in words what happened, and when."""
        moment = datetime.fromtimestamp(self.at, UTC)
        return f"{'erased' if self.erased else 'deleted'} on {moment:%Y-%m-%d at %H:%M} UTC"


class ProvenAnswers(msgspec.Struct, frozen=True):
    """What the signed answers of a session prove to a driver that takes it over."""

    calls: frozenset[str]
    """The calls whose last answer is signed."""
    grants: Sequence[Grant]
    """What signed answers allowed for the rest of the session."""
