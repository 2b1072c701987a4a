"""Which stores of callers' folders have a worker, as the workers of one journal tell each other.

Each worker with a store changes a record of it now and then. Another worker compares versions of
that record by its own clock, so the clocks of two machines are never compared.
"""

from contextlib import suppress
from typing import final

import msgspec

from windlass.core.errors import RecordConflict
from windlass.core.setup import WorkFolder
from windlass.ports import Clock, Journal, WorkFolders

RECORD_KIND = "workspace_stores"
WAIT_S = 60.0
"""How long a run waits for a worker that has its folder, unless another time is given."""
BEATS = 4
"""How often a worker reports its store within the time that others wait for it."""
LOOKS = 12
"""How often a worker looks at a session within the time that it waits for the folder."""


class _Sighting(msgspec.Struct, frozen=True):
    """The version of a record, and when this process first saw it."""

    version: int
    since: float


@final
class FolderWatch:
    """What one process knows about the stores of folders that it does not have."""

    def __init__(self, journal: Journal, clock: Clock, folders: WorkFolders | None) -> None:
        self._journal = journal
        self._clock = clock
        self._folders = folders
        self._sightings: dict[str, _Sighting] = {}
        self._missing_since: dict[str, float] = {}
        """When this process first missed the folder of a session."""

    async def is_lost(self, session: str, folder: WorkFolder, wait_s: float) -> bool:
        """Return whether no worker has had the folder of a session for `wait_s` seconds."""
        now = self._clock.now()
        since = self._missing_since.setdefault(session, now)
        if now - since < wait_s:
            await self._look(folder.store, now)
            return False
        # Our own store is alive, and still does not have a folder that it lost.
        is_own = self._folders is not None and self._folders.read_id() == folder.store
        return is_own or now - (await self._look(folder.store, now)).since >= wait_s

    def forget(self, session: str) -> None:
        """Begin to wait again the next time that the folder of a session is missed."""
        self._missing_since.pop(session, None)

    async def _look(self, store: str, now: float) -> _Sighting:
        record = await self._journal.get_record(RECORD_KIND, store)
        version = record.version if record is not None else 0
        known = self._sightings.get(store)
        if known is None or known.version != version:
            known = self._sightings[store] = _Sighting(version, now)
        return known


@final
class StoreBeat:
    """Reports that a worker with a store of folders is alive."""

    def __init__(
        self, journal: Journal, clock: Clock, folders: WorkFolders | None, wait_s: float
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._folders = folders
        self._pause_s = wait_s / BEATS
        self._next_at = 0.0

    async def report(self) -> None:
        """Change the record of the store if it is time to. A store without folders has none."""
        journal = self._journal
        now = self._clock.now()
        if now < self._next_at or self._folders is None:
            return
        store = self._folders.read_id()
        if not store:
            return
        self._next_at = now + self._pause_s
        record = await journal.get_record(RECORD_KIND, store)
        version = record.version if record is not None else 0
        with suppress(RecordConflict):  # Another worker with the same store was faster.
            await journal.put_record(RECORD_KIND, store, b"{}", version)
