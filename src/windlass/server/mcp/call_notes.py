"""What replicas tell one another about the requests of MCP clients, as shared records."""

import hashlib
import time
from contextlib import suppress

import msgspec

from windlass.core.errors import RecordConflict
from windlass.ports import Journal, SharedRecords
from windlass.server.access import Caller

NOTE_KIND = "mcp-note"
NOTES_KEPT_S = 7 * 86_400.0
CallNote = tuple[float, str, str]
"""When it was noted, what, and for which caller."""


class CallNotes:
    """What replicas tell one another: where a request's run is, and which form was put away."""

    def __init__(self, journal: Journal) -> None:
        self._records: SharedRecords = journal

    async def note_run(self, caller: Caller, key: str, run_id: str) -> bool:
        """Note the run of a request. Returns whether its client has cancelled it since."""
        await self._put(caller, digest_parts(caller.name, key), run_id)
        return await self._get(digest_parts(caller.name, key, "cancelled")) is not None

    async def note_cancel(self, caller: Caller, key: str) -> str | None:
        """Note that a client cancels a request; returns the id of its run if that has begun.

        Each side writes first and reads then, so that a cancel which comes early is not lost.
        """
        await self._put(caller, digest_parts(caller.name, key, "cancelled"), "")
        return await self._get(digest_parts(caller.name, key))

    async def note_dismissed(self, caller: Caller, question: str) -> None:
        """Note that the client's user answered neither yes nor no."""
        await self._put(caller, digest_parts(caller.name, question), "dismissed")

    async def take_dismissed(self, caller: Caller, question: str) -> bool:
        """Return whether that was noted, and forget it."""
        name = digest_parts(caller.name, question)
        return await self._records.delete_record(NOTE_KIND, name)

    async def remove_old(self, erased: str | None = None) -> None:
        """Forget the notes of last week, and all of a caller that is erased."""
        after = ""
        while page := await self._records.list_records(NOTE_KIND, after):
            for record in page:
                at, _, owner = msgspec.json.decode(record.data, type=CallNote)
                if time.time() - at > NOTES_KEPT_S or owner == erased:
                    await self._records.delete_record(NOTE_KIND, record.name)
            after = page[-1].name

    async def _put(self, caller: Caller, name: str, text: str) -> None:
        known = await self._records.get_record(NOTE_KIND, name)
        version = 0 if known is None else known.version
        with suppress(RecordConflict):
            # A faster request noted the same.
            data = msgspec.json.encode((time.time(), text, caller.name))
            await self._records.put_record(NOTE_KIND, name, data, version)

    async def _get(self, name: str) -> str | None:
        record = await self._records.get_record(NOTE_KIND, name)
        if record is None:
            return None
        return msgspec.json.decode(record.data, type=CallNote)[1]


def digest_parts(*parts: object) -> str:
    """Return a name for these values."""
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
