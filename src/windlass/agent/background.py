"""An event loop in a thread of its own, so that `run_sync` works anywhere, also inside a loop."""

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

ValueT = TypeVar("ValueT")

CLOSE_S = 2.0
"""How long the end of the program may wait for connections to be closed."""


class Background:
    """Started at first use; a daemon, so that a tool which ignores its cancel holds up nobody."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, work: Coroutine[Any, Any, ValueT]) -> Future[ValueT]:
        return asyncio.run_coroutine_threadsafe(work, self._running())

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Call a function in the loop's thread."""
        self._running().call_soon_threadsafe(function, *args)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=loop.run_forever, name="windlass-background", daemon=True
                ).start()
                atexit.register(self.stop)
            return self._loop

    def stop(self) -> None:
        """Close what the loop still holds, and end it."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is None:
            return
        atexit.unregister(self.stop)
        # What models keep open between requests is closed by the loop that opened it.
        closing = asyncio.run_coroutine_threadsafe(loop.shutdown_asyncgens(), loop)
        with suppress(TimeoutError):
            closing.result(CLOSE_S)
        loop.call_soon_threadsafe(loop.stop)
