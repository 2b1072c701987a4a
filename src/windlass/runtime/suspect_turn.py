"""One suspect at a time: whose turn it is to run a call at which a driver has died.

Invariant: of all suspects of a process, one runs. So if the process dies, only that one can be held
to account, and the journal of its session says which it was. Threads with event loops of their own
share the turn.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from threading import Lock


class SuspectTurn:
    """Gives the turn to one caller after the other, in the order in which they asked."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._is_taken = False
        self._waiters: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self) -> AsyncGenerator[None]:
        """Wait for the turn, and hold it.

        A call that drives another run inside of itself must not wait for its own turn, so what is
        started meanwhile has a turn of its own.
        """
        await self._take()
        nested = PROCESS_TURN.set(SuspectTurn())
        try:
            yield
        finally:
            self._free()
            PROCESS_TURN.reset(nested)

    async def _take(self) -> None:
        with self._guard:
            if not self._is_taken:
                self._is_taken = True
                return
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.append((loop, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                # The turn came together with the cancel.
                self._free()
            raise

    def _free(self) -> None:
        with self._guard:
            while self._waiters:
                loop, waiter = self._waiters.popleft()
                try:
                    loop.call_soon_threadsafe(self._hand_over, waiter)
                except RuntimeError:
                    continue  # Its event loop is closed.
                return
            self._is_taken = False

    def _hand_over(self, waiter: "asyncio.Future[None]") -> None:
        if waiter.cancelled():
            self._free()
        else:
            waiter.set_result(None)


PROCESS_TURN: ContextVar[SuspectTurn] = ContextVar("PROCESS_TURN", default=SuspectTurn())  # noqa: B039 - one for all
"""The turn of the process. A simulation of several processes gives each its own."""
