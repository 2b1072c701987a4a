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
from windlass.journals.postgres.config import Place
from windlass.journals.postgres.lease_connection import Standing
from windlass.journals.postgres.pool import Line
from windlass.journals.postgres.writer import Writer

CLOSE_S = 10.0
"""How long another event loop may take to write what is waiting there."""


class Desk(NamedTuple):
    """What one event loop works with."""

    line: Line
    writer: Writer
    standing: Standing

    async def close(self) -> None:
        await self.writer.finish()
        await self.standing.all_let_go()
        await self.line.close()


class Desks:
    """The desks of a journal, by event loop."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._closed = False
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._desks: dict[asyncio.AbstractEventLoop, Desk] = {}

    def here(self) -> Desk:
        """The desk of the running event loop."""
        loop = asyncio.get_running_loop()
        desk = self._desks.get(loop)
        if desk is not None:
            return desk
        with self._lock:
            if self._closed:
                raise JournalFailed(f"journal {self._place.title}: it is closed")
            self._desks = {at: one for at, one in self._ours() if not at.is_closed()}
            line = Line(self._place)
            desk = self._desks[loop] = Desk(line, Writer(line), Standing(line))
        return desk

    async def aclose(self) -> None:
        here = asyncio.get_running_loop()
        for loop, desk in self._leave():
            if loop is here:
                await desk.close()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(desk.close(), loop)
                await asyncio.wrap_future(closing)

    def close(self) -> None:
        here = _running()
        for loop, desk in self._leave():
            if loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(desk.close(), loop)
                # The loop that we are called from cannot be waited for: it closes as it goes on.
                if loop is not here:
                    with suppress(TimeoutError):
                        closing.result(CLOSE_S)
            elif here is None and not loop.is_closed():
                loop.run_until_complete(desk.close())
            # A loop that has ended has closed its connections itself.

    def _leave(self) -> list[tuple[asyncio.AbstractEventLoop, Desk]]:
        with self._lock:
            self._closed = True
            desks, self._desks = self._ours(), {}
        return desks

    def _ours(self) -> list[tuple[asyncio.AbstractEventLoop, Desk]]:
        """The desks of this process; the child of a fork has none yet."""
        if self._process != os.getpid():
            self._process, self._desks = os.getpid(), {}
        return [*self._desks.items()]


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
