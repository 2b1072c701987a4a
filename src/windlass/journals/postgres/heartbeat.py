"""The sign of life of one event loop: its row is renewed for as long as the loop answers.

Invariant: the time until which this process may act is counted from before the renewal was sent,
by a clock that runs on while the machine sleeps. So it is over here before the server lets another
process take anything. The renewal is sent by the event loop itself: a loop that is blocked sends
none.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from windlass.core.errors import WindlassError
from windlass.journals.postgres.boot_clock import boot_time
from windlass.journals.postgres.config import PostgresConnection
from windlass.journals.postgres.death_watch import DeathWatch
from windlass.journals.postgres.direct_connection import DirectConnection
from windlass.journals.postgres.worker_rows import WorkerPlace, WorkerRows
from windlass.logs import get_logger

RENEW_PART = 0.3
"""The part of the lease time after which it is renewed."""
SAFE_PART = 0.95
"""The part of the lease time that this process relies on: clocks differ a little."""
ANSWER_PART = 0.4
"""The part of the lease time in which the server must answer; then the connection is replaced."""
TICK_S = 0.25
_log = get_logger(__name__)


class Heartbeat:
    """Keeps the row of this process, and notices when others are gone."""

    def __init__(self, direct: DirectConnection, on_lapse: Callable[[], None]) -> None:
        """`on_lapse` is called when the lease time is over without a renewal."""
        config = direct.pool.config
        self._direct = direct
        self._lease_s = config.lease_s
        self._on_lapse = on_lapse
        self._rows = WorkerRows(config)
        self._place = WorkerPlace.of_this_process()
        self.watch = DeathWatch(direct, self._rows)
        self.worker = secrets.token_hex(8)
        """The name of the row."""
        self.after_renewal: Callable[[bool], Awaitable[None]] | None = None
        """Called after each renewal; True if this process may have lost sessions before it."""
        self._deadline = float("-inf")
        self._renew_at = 0.0
        self._has_lapsed = True
        self._is_direct = False
        self._living = 1
        self._beat: asyncio.Task[None] | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._look: asyncio.Task[None] | None = None
        direct.on_replaced.append(self._renew_soon)

    def is_current(self) -> bool:
        """Whether no other process can have taken what this one has."""
        return boot_time() < self._deadline

    async def ensure_alive(self) -> None:
        """Return once the row is there and has not expired. Raises JournalFailed."""
        if not self.is_current():
            await asyncio.shield(self._start_renewal())
        if self._beat is None:
            self._beat = self._direct.start_task(self._keep_beating())

    async def renew(self) -> None:
        """Renew the row now. Raises JournalFailed."""
        await asyncio.shield(self._start_renewal())

    async def close(self) -> None:
        """Stop: the row is removed by those who have freed the sessions."""
        tasks = [task for task in (self._beat, self._renewal, self._look) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def remove_row(self, server: PostgresConnection) -> None:
        """Remove the row, once all sessions of this process are free."""
        self._deadline = float("-inf")
        await self._rows.remove(server, self.worker)

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if not self._has_lapsed and not self.is_current():
                self._has_lapsed = True
                _log.warning("the lease could not be renewed in time: its runs are released")
                self._on_lapse()
            if boot_time() >= self._renew_at:
                self._start_renewal()
            if self._is_direct and self._is_idle(self._look) and self.watch.is_due(self._living):
                self._look = self._direct.start_task(self._look_around())

    def _start_renewal(self) -> "asyncio.Task[None]":
        if self._renewal is None or self._renewal.done():
            self._renew_at = boot_time() + RENEW_PART * self._lease_s
            self._renewal = self._direct.start_task(self._renew())
            # Nobody may wait for it, and the next one is tried in any case.
            self._renewal.add_done_callback(_note_failure)
        return self._renewal

    def _renew_soon(self) -> None:
        self._renew_at = 0.0

    async def _renew(self) -> None:
        had_deadline = self._deadline
        while True:
            if not self._is_direct and self._direct.pool.config.has_direct:
                self._is_direct = await self._direct.run(_is_direct)
            if self._is_direct:
                # Taken before the row is there: a row without its lock looks dead.
                await self._direct.hold_lock(self._rows.lock_key(self.worker))
            sent_at, renewed = await self._direct.run(self._send_renewal)
            if renewed is not None:
                break
            self.worker = secrets.token_hex(8)
            had_deadline = float("-inf")
            _log.warning("this process was taken for dead: it continues under another name")
        self._living = renewed[0]
        has_gap = sent_at >= had_deadline
        if self.after_renewal is not None:
            await self.after_renewal(has_gap)
        self._deadline = sent_at + SAFE_PART * self._lease_s
        self._has_lapsed = False

    async def _send_renewal(self, server: PostgresConnection) -> tuple[float, Sequence[Any] | None]:
        sent_at = boot_time()
        history = self._direct.pool.history
        async with asyncio.timeout(ANSWER_PART * self._lease_s):
            renewed = await self._rows.renew(
                server, self.worker, self._place, is_direct=self._is_direct
            )
            if renewed is not None and not history.is_known(renewed[1:]):
                await history.check(server)  # Through a pooler, a connection outlives its server.
            elif renewed is not None:
                history.compare(renewed[1:])
        return sent_at, renewed

    async def _look_around(self) -> None:
        async def look(server: PostgresConnection) -> None:
            async with asyncio.timeout(ANSWER_PART * self._lease_s):
                await self.watch.look(server)

        with suppress(WindlassError):
            await self._direct.run(look)

    @staticmethod
    def _is_idle(task: "asyncio.Task[None] | None") -> bool:
        return task is None or task.done()


async def _is_direct(server: PostgresConnection) -> bool:
    """Whether the connection goes to the server itself: a pooler invents the number of it."""
    return server.get_server_pid() == await server.fetchval("SELECT pg_backend_pid()")


def _note_failure(renewal: "asyncio.Task[None]") -> None:
    if not renewal.cancelled() and (error := renewal.exception()) is not None:
        _log.warning("the lease cannot be renewed: %s", error)
