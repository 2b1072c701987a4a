"""An event loop in its own thread: `run_sync` works anywhere, also inside a running loop."""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from windlass.core.errors import ConfigError

ValueT = TypeVar("ValueT")

CLOSE_WAIT_S = 2.0
"""How long the end of the program waits for connections to be closed."""


_inherited_loops: list[asyncio.AbstractEventLoop] = []
"""Loops of a parent process, kept so that the garbage collector does not close them."""


class BackgroundLoop:
    """An event loop in a thread that is started at first use.

    The thread is a daemon, so that a tool that ignores its cancel cannot keep the program alive.
    A forked child has no such thread, so it starts its own loop.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def submit(self, work: Coroutine[Any, Any, ValueT]) -> Future[ValueT]:
        """Start work in the loop. Raises ConfigError if the caller is in its thread itself."""
        loop = self._running_loop()
        if self._thread is threading.current_thread():
            work.close()
            raise ConfigError(
                "run_sync() inside a run of run_sync() would wait for itself: use `await run()`"
            )
        return asyncio.run_coroutine_threadsafe(work, loop)

    @property
    def is_running(self) -> bool:
        self._forget_parent()
        return self._loop is not None

    def call_soon(self, function: Callable[..., object], *args: object) -> None:
        """Call a function in the loop's thread."""
        self._running_loop().call_soon_threadsafe(function, *args)

    def _forget_parent(self) -> None:
        """In a forked child: drop the parent's loop, whose thread is not in this process."""
        if self._process != os.getpid():
            self._process = os.getpid()
            # A thread of the parent may have held the old lock.
            self._lock = threading.Lock()
            self._thread = None
            if self._loop is not None:
                # Closing it would take the parent's loop out of the epoll that both share.
                _inherited_loops.append(self._loop)
                self._loop = None
                atexit.unregister(self.stop)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        self._forget_parent()
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
        """Close the connections of the loop, and end it."""
        self._forget_parent()
        with self._lock:
            loop = self._loop
            self._loop = None
        if loop is None:
            return
        atexit.unregister(self.stop)
        # Models keep connections open between requests, and only their own loop can close them.
        closing = asyncio.run_coroutine_threadsafe(loop.shutdown_asyncgens(), loop)
        with suppress(TimeoutError):
            closing.result(CLOSE_WAIT_S)
        loop.call_soon_threadsafe(loop.stop)


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop until it is stopped. SystemExit in a tool ends that tool, not the loop."""
    stopped = False
    while not stopped:
        try:
            loop.run_forever()
            stopped = True
        except (KeyboardInterrupt, SystemExit):
            continue
    loop.close()
