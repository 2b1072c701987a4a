"""Notices an async tool that blocks the event loop, and says which one it is.

An `async` function that calls `time.sleep` or a synchronous client stops every run of the process,
the cancels and the watchers too, and nothing shows which tool it was. So each stretch between two
awaits of a tool is timed: the time is its own, whatever else runs in the loop.
"""

import threading
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar, final

from windlass.logs import get_logger

BLOCKING_S = 0.25
"""From so many seconds without an await on, a tool is named."""
HANGING_S = 5.0
"""A tool that has blocked the loop for so long is named while it does: it may never return."""
LOOK_S = 1.0
"""How often the running stretches are looked at, while there are any."""
ADVICE = (
    "an async tool must await what takes time; a plain function (def) with the same body runs in "
    "a thread"
)

_log = get_logger(__name__)
ValueT = TypeVar("ValueT")


@final
class TimedAwaitable(Generic[ValueT]):
    """Awaits the work of a tool, and times each stretch of it between two awaits."""

    __slots__ = ("_name", "_on_blocked", "_work", "began_at")

    def __init__(
        self, work: Awaitable[ValueT], name: str, on_blocked: Callable[[float], None] | None
    ) -> None:
        """Wrap the work of a tool. `on_blocked` gets the seconds that it blocked the loop."""
        self._work = work
        self._name = name
        self._on_blocked = on_blocked
        self.began_at: float | None = None
        """When the stretch that runs now began; None between two stretches."""

    @property
    def name(self) -> str:
        return self._name

    def __await__(self) -> Generator[Any, Any, ValueT]:
        work = self._work.__await__()
        error: BaseException | None = None
        _watch.add(self)
        try:
            while True:
                try:
                    yielded = self._step(work, error)
                except StopIteration as stop:
                    return stop.value
                error = None
                try:
                    yield yielded
                except GeneratorExit:
                    work.close()
                    raise
                except BaseException as thrown:  # noqa: BLE001 - a cancel, for the work
                    error = thrown
        finally:
            _watch.discard(self)

    def _step(self, work: Generator[Any, Any, ValueT], error: BaseException | None) -> object:
        began_at = self.began_at = time.monotonic()
        try:
            if error is None:
                return work.send(None)
            return work.throw(error)
        finally:
            self.began_at = None
            blocked_s = time.monotonic() - began_at
            if blocked_s >= BLOCKING_S:
                self._tell(blocked_s)

    def _tell(self, blocked_s: float) -> None:
        _log.warning("tool %s blocked the event loop for %.1f s: %s", self._name, blocked_s, ADVICE)
        if self._on_blocked is not None:
            self._on_blocked(blocked_s)


@final
class _Watch:
    """A thread that names a tool while it blocks. It sleeps while no async tool runs."""

    def __init__(self) -> None:
        self._running: set[TimedAwaitable[Any]] = set()
        self._is_needed = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, timed: TimedAwaitable[Any]) -> None:
        self._running.add(timed)
        # A forked child has the object and not the thread.
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._look, name="windlass-watch", daemon=True)
            self._thread.start()
        # Rarely: to wake a thread at each call would cost more than many a call.
        if not self._is_needed.is_set():
            self._is_needed.set()

    def discard(self, timed: TimedAwaitable[Any]) -> None:
        self._running.discard(timed)

    def _look(self) -> None:
        told: dict[TimedAwaitable[Any], float] = {}
        while True:
            self._is_needed.wait()
            time.sleep(LOOK_S)
            self._is_needed.clear()
            running = tuple(self._running)
            if running:
                self._is_needed.set()
            else:
                told.clear()
            now = time.monotonic()
            for timed in running:
                began_at = timed.began_at
                if began_at is None or now - began_at < HANGING_S or told.get(timed) == began_at:
                    continue
                told[timed] = began_at
                _log.warning(
                    "tool %s has been blocking the event loop for %.1f s, and still does: %s",
                    timed.name,
                    now - began_at,
                    ADVICE,
                )


_watch = _Watch()
