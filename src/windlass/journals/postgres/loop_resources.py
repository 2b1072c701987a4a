"""What each event loop works with, and how all of it is closed from wherever one stands.

A driver's connection belongs to the event loop that opened it, and `run_sync` has a loop of its
own: so there is a desk for each.
"""

import asyncio
import os
import threading
from contextlib import suppress
from typing import NamedTuple

from windlass.core.errors import JournalFailed
from windlass.journals.postgres.config import PostgresConfig
from windlass.journals.postgres.lease_connection import LeaseConnection
from windlass.journals.postgres.pool import ConnectionPool
from windlass.journals.postgres.writer import PostgresWriter

CLOSE_TIMEOUT_S = 10.0
"""How long another event loop may take to write what is waiting there."""


class LoopResources(NamedTuple):
    """What one event loop works with."""

    pool: ConnectionPool
    writer: PostgresWriter
    leases: LeaseConnection

    async def close(self) -> None:
        await self.writer.wait_until_idle()
        await self.leases.wait_for_releases()
        await self.pool.close()


class ResourcesByLoop:
    """The desks of a journal, by event loop."""

    def __init__(self, config: PostgresConfig) -> None:
        self._config = config
        self._closed = False
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._by_loop: dict[asyncio.AbstractEventLoop, LoopResources] = {}

    def for_running_loop(self) -> LoopResources:
        """The desk of the running event loop."""
        loop = asyncio.get_running_loop()
        desk = self._by_loop.get(loop)
        if desk is not None:
            return desk
        with self._lock:
            if self._closed:
                raise JournalFailed(f"journal {self._config.display_url}: it is closed")
            self._by_loop = {at: one for at, one in self._own_entries() if not at.is_closed()}
            line = ConnectionPool(self._config)
            desk = self._by_loop[loop] = LoopResources(
                line, PostgresWriter(line), LeaseConnection(line)
            )
        return desk

    async def aclose(self) -> None:
        here = asyncio.get_running_loop()
        for loop, desk in self._take_all():
            if loop is here:
                await desk.close()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(desk.close(), loop)
                await asyncio.wrap_future(closing)

    def close(self) -> None:
        here = _running_loop()
        for loop, desk in self._take_all():
            if loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(desk.close(), loop)
                # The loop that we are called from cannot be waited for: it closes as it goes on.
                if loop is not here:
                    with suppress(TimeoutError):
                        closing.result(CLOSE_TIMEOUT_S)
            elif here is None and not loop.is_closed():
                loop.run_until_complete(desk.close())
            # A loop that has ended has closed its connections itself.

    def _take_all(self) -> list[tuple[asyncio.AbstractEventLoop, LoopResources]]:
        with self._lock:
            self._closed = True
            desks, self._by_loop = self._own_entries(), {}
        return desks

    def _own_entries(self) -> list[tuple[asyncio.AbstractEventLoop, LoopResources]]:
        """The desks of this process; the child of a fork has none yet."""
        if self._process != os.getpid():
            self._process, self._by_loop = os.getpid(), {}
        return [*self._by_loop.items()]


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
