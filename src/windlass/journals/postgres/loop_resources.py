"""What each event loop has of a Postgres journal, and how all of it is closed from anywhere.

A connection belongs to the event loop that opened it, and `run_sync` runs its own loop. So
each loop has its own pool, writer and leases.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from windlass.journals.postgres.config import PostgresConfig
from windlass.journals.postgres.direct_connection import DirectConnection
from windlass.journals.postgres.leasing import LeaseKeeper
from windlass.journals.postgres.live import PostgresLive
from windlass.journals.postgres.news import SessionNews
from windlass.journals.postgres.pool import ConnectionPool
from windlass.journals.postgres.tails import KeptTails
from windlass.journals.postgres.writer import PostgresWriter
from windlass.journals.wording import closed_error

LOOP_CLOSE_TIMEOUT_S = 10.0
"""How long another event loop may take to write what is waiting there."""


class LoopResources(NamedTuple):
    """What one event loop works with."""

    pool: ConnectionPool
    direct: DirectConnection
    writer: PostgresWriter
    leases: LeaseKeeper
    news: SessionNews
    live: PostgresLive

    async def close(self) -> None:
        """Write what is waiting, release the leases, close the connections."""
        await self.writer.wait_until_idle()
        await self.news.close()
        await self.live.close()
        await self.leases.close()
        await self.pool.close()
        await self.direct.close()


class ResourcesByLoop:
    """The resources of a journal, by event loop."""

    def __init__(self, config: PostgresConfig, repeat: Callable[[], Awaitable[None]]) -> None:
        """`repeat` does again what a failover may have undone."""
        self._config = config
        self._repeat = repeat
        self._closed = False
        self._mutex = threading.Lock()
        self._process = os.getpid()
        self._by_loop: dict[asyncio.AbstractEventLoop, LoopResources] = {}

    def for_running_loop(self) -> LoopResources:
        """Return the resources of the running event loop; raises JournalFailed when closed."""
        loop = asyncio.get_running_loop()
        resources = self._by_loop.get(loop)
        if resources is not None:
            return resources
        with self._mutex:
            if self._closed:
                raise closed_error(self._config.location)
            # Loops that have ended are forgotten here, so that `run_sync` does not pile them up.
            alive = {at: found for at, found in self._own_entries() if not at.is_closed()}
            pool = ConnectionPool(self._config)
            direct = DirectConnection(pool)
            tails = KeptTails()
            writer = PostgresWriter(pool, tails)
            leases = LeaseKeeper(direct, lambda claimed: writer.remember_end(claimed.row), tails)
            leases.recovery.repeat = self._repeat
            leases.recovery.find_head = writer.find_head
            leases.recovery.forget_end = writer.forget_end
            writer.wait_for_recovery = leases.recovery.wait
            writer.is_held = leases.is_held
            writer.find_claim = leases.find_claim
            writer.wait_for_releases = leases.wait_for_releases
            news = SessionNews(direct, leases.find_claim)
            writer.tell_waiters = lambda names, elsewhere: news.tell(names, elsewhere=elsewhere)
            live = PostgresLive(pool, direct)
            resources = LoopResources(pool, direct, writer, leases, news, live)
            self._by_loop = {**alive, loop: resources}
        return resources

    async def aclose(self) -> None:
        """Close the resources of all event loops, and wait for that."""
        here = asyncio.get_running_loop()
        for loop, resources in self._take_all():
            if loop is here:
                await resources.close()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(resources.close(), loop)
                await asyncio.wrap_future(closing)

    def close(self) -> None:
        """As `aclose`, from code that is not async."""
        here = _running_loop()
        for loop, resources in self._take_all():
            if loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(resources.close(), loop)
                # Waiting for the loop that called us would be a deadlock; it closes as it
                # continues.
                if loop is not here:
                    with suppress(TimeoutError):
                        closing.result(LOOP_CLOSE_TIMEOUT_S)
            elif here is None and not loop.is_closed():
                loop.run_until_complete(resources.close())
            # A loop that has ended has closed its connections itself.

    def _take_all(self) -> list[tuple[asyncio.AbstractEventLoop, LoopResources]]:
        with self._mutex:
            self._closed = True
            entries = self._own_entries()
            self._by_loop = {}
        return entries

    def _own_entries(self) -> list[tuple[asyncio.AbstractEventLoop, LoopResources]]:
        """Return the entries of this process; a forked child starts with none."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._by_loop = {}
        return [*self._by_loop.items()]


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
