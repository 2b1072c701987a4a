"""Documents that belong to callers, such as schedules and webhooks, as shared records.

Invariant: the document of another owner does not exist for a caller. The name of a record begins
with its owner, so a list of one owner's documents reads no others. A record is changed by compare
and set, so that a change is made to what is there, and by one program.
"""

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Annotated, Generic, Protocol, TypeVar

import msgspec
from msgspec import Meta

from windlass.core.errors import ConfigError, NothingToDo, RecordConflict
from windlass.logs import get_logger
from windlass.ports import Journal, SharedRecord, SharedRecords
from windlass.server.access import OWNER_MARK, Caller, owner_prefix
from windlass.server.errors import ApiError

NAME_CHARS_MAX = 80
PAGE_MAX = 1_000
CONFLICTS_MAX = 50
"""How often a change is tried again because another program was faster."""
_log = get_logger(__name__)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_FULL_NAME = re.compile(r"[A-Za-z0-9_@=.-]{1,800}")
"""With the owner before it, as `owner_prefix` writes it."""


class PageQuery(msgspec.Struct, frozen=True):
    """Which page of a list."""

    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 100
    cursor: str = ""


class OwnedDocument(Protocol):
    """What a document must say about itself."""

    @property
    def owner(self) -> str: ...

    @property
    def name(self) -> str: ...


DocumentT = TypeVar("DocumentT", bound=OwnedDocument)


class OwnedRecords(Generic[DocumentT]):
    """The documents of one kind in a journal, shared by all programs that use it."""

    def __init__(self, journal: Journal, kind: str, document: type[DocumentT]) -> None:
        """Use a journal. Raises ConfigError if it keeps no shared records."""
        self.records: SharedRecords = journal
        self._kind = kind
        self._document = document

    async def add(self, document: DocumentT) -> None:
        """Keep a new document. Raises ConfigError if its owner has one of that name."""
        name = document.name
        if len(name) > NAME_CHARS_MAX or _NAME.fullmatch(name) is None:
            raise ConfigError(
                f"{name[:NAME_CHARS_MAX]!r} cannot be the name of a {self._kind}: it has 1 to "
                f"{NAME_CHARS_MAX} letters, digits, dashes and underscores, and begins with a "
                "letter or digit"
            )
        try:
            data = msgspec.json.encode(document)
            await self.records.put_record(self._kind, record_name(full_name(document)), data, 0)
        except RecordConflict:
            raise ConfigError(
                f"there is a {self._kind} {name!r} already; delete it first, or choose another name"
            ) from None

    async def check_count(self, document: DocumentT, count_max: int) -> None:
        """Raise ApiError 409 and delete a new document if its owner has more than `count_max`.

        It is counted after it was kept, so that requests at the same time cannot exceed the bound.
        """
        count = 0
        async for _ in self.walk(document.owner):
            count += 1
        if count <= count_max:
            return
        await self.remove(document)
        raise ApiError(
            409,
            f"{self._kind}s_full",
            f"You have {count_max} {self._kind}s, which is the most that one caller may have.",
            f"Delete one that you no longer need: GET /{self._kind}s lists them.",
        )

    async def get(self, name: str, owner: str | None = None) -> DocumentT:
        """Return a document by its full name, or by an owner's own short one.

        Raises NothingToDo if it does not exist, and ConfigError if it cannot be read.
        """
        return self.decode(await self._get_record(name, owner))

    async def find(self, caller: Caller, name: str) -> DocumentT:
        """Return the document that a path names. Raises ApiError 404 if it is not the caller's."""
        for owner in _owners_for(caller):
            with suppress(NothingToDo):
                return await self.get(name, owner)
        raise self._not_found(name)

    async def delete_for(self, caller: Caller, name: str) -> None:
        """Delete the document that a path names. Raises ApiError 404 if it is not the caller's."""
        for owner in _owners_for(caller):
            with suppress(NothingToDo):
                return await self.delete(name, owner)
        raise self._not_found(name)

    async def list_for(
        self, caller: Caller, query: PageQuery
    ) -> tuple[list[DocumentT], str | None]:
        """Return a page of the caller's documents, or of all for an admin, and its cursor."""
        owner = None if caller.is_admin else caller.name
        return await self.list_page(owner, query.cursor, query.limit)

    def decode(self, record: SharedRecord) -> DocumentT:
        """Return the document in a record. Raises ConfigError if it cannot be read."""
        try:
            return msgspec.json.decode(record.data, type=self._document)
        except (msgspec.DecodeError, ValueError) as error:
            raise ConfigError(
                f"the record of the {self._kind} {document_name(record)!r} cannot be read "
                f"({error}): delete it, and make it again"
            ) from None

    async def list_records(self, after: str = "", limit: int = 100) -> list[SharedRecord]:
        """Return the records of all owners after a name of a record."""
        return list(await self.records.list_records(self._kind, after, limit))

    async def walk(self, owner: str | None = None, after: str = "") -> AsyncGenerator[DocumentT]:
        """Yield the documents of an owner, or of all, without those that cannot be read.

        They come in the order of their records' names, from the one that follows `after`.
        """
        prefix = "" if owner is None else _record_prefix(owner)
        after = max(after, prefix)
        while records := await self.list_records(after):
            for record in records:
                if not record.name.startswith(prefix):
                    return
                try:
                    document = self.decode(record)
                except ConfigError as error:
                    # One record that is broken, or of a later version, must not hide the others.
                    _log.warning("%s", error)
                    continue
                yield document
            after = records[-1].name

    async def list_page(
        self, owner: str | None, after: str = "", limit: int = 100
    ) -> tuple[list[DocumentT], str | None]:
        """Return some documents of an owner, or of all, and where the next page begins."""
        found: list[DocumentT] = []
        async for document in self.walk(owner, after):
            if len(found) == limit:
                return found, record_name(full_name(found[-1]))
            found.append(document)
        return found, None

    async def replace(self, record: SharedRecord, document: DocumentT) -> SharedRecord | None:
        """Write a document in place of the record that it was read from.

        Returns None, and writes nothing, if another program was faster.
        """
        try:
            return await self.records.put_record(
                self._kind, record.name, msgspec.json.encode(document), record.version
            )
        except RecordConflict:
            return None

    async def change(
        self, name: str, change: Callable[[DocumentT], DocumentT | None]
    ) -> DocumentT | None:
        """Change a document as it is then. Returns None if it is gone, or no change is wanted."""
        for _ in range(CONFLICTS_MAX):
            record = await self.records.get_record(self._kind, record_name(name))
            if record is None:
                return None
            known = self.decode(record)
            changed = change(known)
            if changed is None or changed == known or await self.replace(record, changed):
                return changed
        raise RecordConflict(f"{self._kind} {name!r} is changed all the time; try again")

    async def delete(self, name: str, owner: str | None = None) -> None:
        """Delete a document by its full name, or by an owner's own short one.

        One that cannot be read is deleted too. Raises NothingToDo if it does not exist.
        """
        record = await self._get_record(name, owner)
        try:
            document = self.decode(record)
        except ConfigError:
            await self.records.delete_record(self._kind, record.name)
            return
        await self.remove(document)

    async def remove(self, document: DocumentT) -> None:
        """Delete a document, and all that is kept for it. Raises NothingToDo if it is gone."""
        name = full_name(document)
        if not await self.records.delete_record(self._kind, record_name(name)):
            raise self._no_document(name)

    async def _get_record(self, name: str, owner: str | None) -> SharedRecord:
        if owner is None:
            wanted = record_name(name)
        else:
            # Whatever the name is, the record is one of this owner's.
            prefix = _record_prefix(owner)
            wanted = name if name.startswith(prefix) else prefix + name
        record = None
        if _FULL_NAME.fullmatch(wanted):
            record = await self.records.get_record(self._kind, wanted)
        if record is None:
            raise self._no_document(name)
        return record

    def _no_document(self, name: str) -> NothingToDo:
        return NothingToDo(f"there is no {self._kind} {name[:NAME_CHARS_MAX]!r}")

    def _not_found(self, name: str) -> ApiError:
        return ApiError(
            404,
            f"{self._kind}_not_found",
            f"There is no {self._kind} {name[:100]!r} of yours.",
            f"GET /{self._kind}s lists them.",
        )


def full_name(document: OwnedDocument) -> str:
    """Return the name that distinguishes the documents of all owners."""
    return owner_prefix(document.owner) + document.name


def record_name(name: str) -> str:
    """Return the name of a document's record, from the full name of the document.

    The full names of the local owner have no owner in them. Their records begin with the mark, so
    that they too follow one another.
    """
    return name if OWNER_MARK in name else OWNER_MARK + name


def document_name(record: SharedRecord) -> str:
    """Return the full name of the document in a record."""
    return record.name.removeprefix(OWNER_MARK)


def _record_prefix(owner: str) -> str:
    """Return what the names of an owner's records begin with."""
    return owner_prefix(owner) or OWNER_MARK


def _owners_for(caller: Caller) -> tuple[str | None, ...]:
    """Return as whose document a name is looked for. None: as the full name of any owner."""
    return (None, caller.name) if caller.is_admin else (caller.name,)
