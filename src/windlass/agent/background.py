"""An event loop in a thread of its own, so that `run_sync` works anywhere, also inside a loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

ValueT = TypeVar("ValueT")


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
            if self._loop is None or self._loop.is_closed():
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name="windlass-background", daemon=True
                ).start()
            return self._loop

    def stop(self) -> None:
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._loop = None
