"""Who has died: a process holds a lock on the server while it lives, and the lock is missed.

Invariant: a missing lock counts as a death only if it is missing twice, a second apart, and the row
of the process was not renewed in between. Nothing counts for a lease time after this process lost
its own connection: the others may have lost theirs with it. Of all processes one looks at a time,
and the others try to be the next.
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime

from windlass.journals.postgres.boot_clock import boot_time
from windlass.journals.postgres.config import PostgresConnection
from windlass.journals.postgres.direct_connection import DirectConnection
from windlass.journals.postgres.worker_rows import WorkerRows
from windlass.logs import get_logger

LOOK_S = 0.5
"""Between two looks of the process that looks."""
AGAIN_S = 1.0
"""How long a lock must be missing."""
SEEKERS = 4
"""How many processes try to be the next one to look, for each LOOK_S."""
_TRY_LOCK = "SELECT pg_try_advisory_lock($1)"
_log = get_logger(__name__)


class DeathWatch:
    """Finds processes that have died, for the event loop of one journal."""

    def __init__(self, direct: DirectConnection, rows: WorkerRows) -> None:
        self._direct = direct
        self._rows = rows
        self._key = direct.pool.config.lock_key("watcher")
        self._is_watcher = False
        self._next_at = 0.0
        self._suspects: Mapping[str, datetime] = {}
        self._suspected_at = 0.0
        direct.on_lost.append(self._on_connection_lost)

    def _on_connection_lost(self) -> None:
        self._is_watcher = False
        self._suspects = {}

    @property
    def can_tell(self) -> bool:
        """Whether this process may take a missing lock for a death."""
        return not self._direct.was_replaced_within(self._direct.pool.config.lease_s)

    def is_due(self, living: int) -> bool:
        """Whether it is time to look, or to try to be the one who looks, among so many."""
        if boot_time() < self._next_at:
            return False
        wait_s = LOOK_S if self._is_watcher else LOOK_S * max(1.0, living / SEEKERS)
        self._next_at = boot_time() + wait_s
        return True

    async def look(self, server: PostgresConnection) -> None:
        """Look once, if this process is the one that looks; mark those as dead that are."""
        if not self._is_watcher:
            self._is_watcher = await server.fetchval(_TRY_LOCK, self._key)
            if self._is_watcher:
                await self._rows.forget_old(server)
        if not self._is_watcher or not self.can_tell:
            self._suspects = {}
            return
        if self._suspects and boot_time() - self._suspected_at >= AGAIN_S:
            self._tell(await self._rows.bury(server, self._suspects))
            self._suspects = {}
        silent = await self._rows.find_silent(server)
        known = {name: at for name, at in self._suspects.items() if silent.get(name) == at}
        if not known:
            self._suspected_at = boot_time()
            known = silent
        self._suspects = known

    async def find_dead(self, workers: Iterable[str]) -> set[str]:
        """Find out about some processes now. It takes a second if a lock is missing."""
        found = await self._direct.run(self._rows.find_silent)
        suspects = {worker: found[worker] for worker in workers if worker in found}
        if not suspects or not self.can_tell:
            return set()
        again_at = boot_time() + AGAIN_S
        while (wait_s := again_at - boot_time()) > 0:  # noqa: ASYNC110 - another clock than the loop's
            await asyncio.sleep(wait_s)
        if not self.can_tell:
            return set()
        buried = await self._direct.run(lambda server: self._rows.bury(server, suspects))
        self._tell(buried)
        return {*buried}

    def _tell(self, buried: list[str]) -> None:
        for worker in buried:
            _log.warning("process %s has died: its sessions are free", worker)
