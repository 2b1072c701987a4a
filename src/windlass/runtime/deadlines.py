"""The time limits of a run: how long it may take in all, and how long nothing may happen.

A deadline stops a run as a cancel does, with a reason of its own. No deadline is set while the run
waits for a person.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from windlass.core.setup import Setup
from windlass.core.state import State

TIMER_GRAIN_S = 0.001
"""A timer may fire this much early, so less than this counts as no time left."""


class Deadlines:
    """The timers of one run."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._last_activity_at = 0.0

    def note_activity(self) -> None:
        """Say that something happened in the run: the limit of idle seconds starts anew.

        This is called for every piece of a reply. It only notes the time; one timer looks at it.
        """
        self._last_activity_at = self._loop.time()

    def start(self, setup: Setup, state: State, stop: Callable[[str], None]) -> None:
        """Set timers for the time that the run has left; `stop` gets the reason when one fires."""
        if state.run is None:
            return
        for owner, limit, elapsed_s in (
            ("the", setup.limits.seconds, state.run.elapsed_s),
            ("the session's", setup.session_limits.seconds, state.elapsed_s),
        ):
            if limit is not None:
                on_expiry = partial(stop, f"{owner} limit of {limit:g} s is reached")
                remaining_s = max(0.0, limit - elapsed_s)
                self._timers[owner] = self._loop.call_later(remaining_s, on_expiry)
        idle_s = setup.limits.idle_seconds
        if idle_s is not None:
            self.note_activity()
            self._check_idle(idle_s, partial(stop, f"nothing happened for {idle_s:g} s"))

    def _check_idle(self, idle_s: float, on_expiry: Callable[[], None]) -> None:
        remaining_s = self._last_activity_at + idle_s - self._loop.time()
        if remaining_s < TIMER_GRAIN_S:
            on_expiry()
            return
        check_again = partial(self._check_idle, idle_s, on_expiry)
        self._timers["idle"] = self._loop.call_later(remaining_s, check_again)

    def cancel(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
