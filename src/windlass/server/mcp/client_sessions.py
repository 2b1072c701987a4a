"""What a client of the protocol with a handshake is known by: ids that any replica can read.

Invariant: nothing of such a client is kept in a process. Its session id holds what it said about
itself, and the id of an event says which request of it waits for which run. Neither gives any
right: the token of each request does, and a session belongs to the token that opened it.
"""

import binascii
import hashlib
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress
from typing import TypeVar

import msgspec

from windlass.core.errors import RecordConflict
from windlass.ports import Journal, SharedRecords
from windlass.server.access import Caller
from windlass.server.errors import ApiError

T = TypeVar("T")
RequestId = str | int
NOTE_KIND = "mcp-note"
NOTES_KEPT_S = 7 * 86_400.0
PRIMED_SINCE = "2025-11-25"
"""Since then streams begin with an event without data, and runs can be tasks."""


class ClientSession(msgspec.Struct, frozen=True, array_like=True):
    """What a client said of itself in the handshake."""

    version: str
    elicits: bool
    """Whether it can show a form to its user."""
    owner: str
    """A digest of the token that opened the session."""
    nonce: str

    @property
    def has_tasks(self) -> bool:
        """Whether its version of the protocol has tasks, and events without data."""
        return self.version >= PRIMED_SINCE

    def to_id(self) -> str:
        """Return the session as an opaque text."""
        return _to_text(self)


def open_session(caller: Caller, version: str, *, elicits: bool) -> ClientSession:
    """Return a new session of a caller."""
    return ClientSession(version, elicits, _owner_mark(caller), secrets.token_hex(8))


def read_session(caller: Caller, text: str) -> ClientSession:
    """Return a session by its id. Raises ApiError 404 if it is not one of this token."""
    session = _from_text(text, ClientSession)
    if session is None or session.owner != _owner_mark(caller):
        raise ApiError(
            404, "mcp_session_not_found", "There is no such session.", "Send initialize again."
        )
    return session


class EventPlace(msgspec.Struct, frozen=True, array_like=True):
    """Up to where a client has read the stream of a request."""

    request: RequestId
    run: str
    """The id of the run."""
    progress: RequestId | None = None
    """How the client wants progress reported; None if it does not."""
    is_task: bool = False
    asked: tuple[str, ...] = ()
    """The ids of the questions that are shown to its user."""

    def to_id(self) -> str:
        """Return the place as the id of an event."""
        return _to_text(self)


def read_event_id(text: str) -> EventPlace:
    """Return the place of an event. Raises ApiError 400 if it is not one."""
    place = _from_text(text, EventPlace)
    if place is None:
        raise ApiError(
            400, "bad_event_id", f"{text[:50]!r} is not the id of an event.", "Send the last one."
        )
    return place


def make_call_key(session_id: str, request: RequestId) -> str:
    """Return what names a request of a client: its ids are unique within its session."""
    return "mcp:" + _digest(session_id, request)[:32]


class CallNotes:
    """What replicas tell one another: where a request's run is, and which form was put away."""

    def __init__(self, journal: Journal) -> None:
        self._records: SharedRecords = journal

    async def note_run(self, caller: Caller, key: str, run_id: str) -> bool:
        """Note the run of a request; returns whether its client has cancelled it meanwhile."""
        await self._put(_digest(caller.name, key), run_id)
        return await self._get(_digest(caller.name, key, "cancelled")) is not None

    async def note_cancel(self, caller: Caller, key: str) -> str | None:
        """Note that a client cancels a request; returns the id of its run if that has begun.

        Each side writes first and reads then, so that a cancel which comes early is not lost.
        """
        await self._put(_digest(caller.name, key, "cancelled"), "")
        return await self._get(_digest(caller.name, key))

    async def note_dismissed(self, caller: Caller, question: str) -> None:
        """Note that the client's user answered neither yes nor no."""
        await self._put(_digest(caller.name, question), "dismissed")

    async def take_dismissed(self, caller: Caller, question: str) -> bool:
        """Return whether that was noted, and forget it."""
        name = _digest(caller.name, question)
        return await self._records.delete_record(NOTE_KIND, name)

    async def remove_old(self) -> None:
        """Forget the notes of last week."""
        after = ""
        while page := await self._records.list_records(NOTE_KIND, after):
            for record in page:
                at, _ = msgspec.json.decode(record.data, type=tuple[float, str])
                if time.time() - at > NOTES_KEPT_S:
                    await self._records.delete_record(NOTE_KIND, record.name)
            after = page[-1].name

    async def _put(self, name: str, text: str) -> None:
        known = await self._records.get_record(NOTE_KIND, name)
        version = 0 if known is None else known.version
        with suppress(RecordConflict):
            # A faster request noted the same.
            data = msgspec.json.encode((time.time(), text))
            await self._records.put_record(NOTE_KIND, name, data, version)

    async def _get(self, name: str) -> str | None:
        record = await self._records.get_record(NOTE_KIND, name)
        if record is None:
            return None
        return msgspec.json.decode(record.data, type=tuple[float, str])[1]


def _owner_mark(caller: Caller) -> str:
    return _digest(caller.name, caller.token)[:16]


def _digest(*parts: object) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def _to_text(value: object) -> str:
    return urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")


def _from_text(text: str, kind: type[T]) -> T | None:
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return msgspec.json.decode(data, type=kind)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        return None
