"""An event loop in a thread of its own, so that `run_sync` works anywhere, also inside a loop."""

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from windlass.core.errors import ConfigError

ValueT = TypeVar("ValueT")

CLOSE_WAIT_S = 2.0
"""How long the end of the program may wait for connections to be closed."""


class BackgroundLoop:
    """Started at first use; a daemon, so that a tool which ignores its cancel holds up nobody."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def submit(self, work: Coroutine[Any, Any, ValueT]) -> Future[ValueT]:
        loop = self._running_loop()
        if self._thread is threading.current_thread():
            work.close()
            raise ConfigError("run_sync inside a run of run_sync waits for itself: use `run`")
        return asyncio.run_coroutine_threadsafe(work, loop)

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    def call_soon(self, function: Callable[..., object], *args: object) -> None:
        """Call a function in the loop's thread."""
        self._running_loop().call_soon_threadsafe(function, *args)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_forever, args=(loop,), name="windlass-background", daemon=True
                )
                self._thread.start()
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
            closing.result(CLOSE_WAIT_S)
        loop.call_soon_threadsafe(loop.stop)


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop until it is stopped. A tool that wants to end the program ends itself only."""
    stopped = False
    while not stopped:
        try:
            loop.run_forever()
            stopped = True
        except (KeyboardInterrupt, SystemExit):
            continue
    loop.close()
