"""The clock that stands beside a run: it rings when the time is up, or when nothing happens.

A deadline is a cancel with a reason. The alarm is off while a person is waited for.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from windlass.runtime.recorder import Recorder

TIMER_GRAIN_S = 0.001
"""Less than this is no time left."""


class Deadlines:
    """Watches one run's limits of time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._last_activity_at = 0.0

    def start(self, recorder: Recorder, stop: Callable[[str], None]) -> None:
        """Set the alarm for as long as the run still has."""
        setup, state = recorder.setup, recorder.state
        if state.run is None:
            return
        for whose, limit, elapsed_s in (
            ("the", setup.limits.seconds, state.run.elapsed_s),
            ("the session's", setup.session_limits.seconds, state.elapsed_s),
        ):
            if limit is not None:
                on_expiry = partial(stop, f"{whose} limit of {limit:g} s is reached")
                self._timers[whose] = self._loop.call_later(max(0.0, limit - elapsed_s), on_expiry)
        idle_s = setup.limits.idle_seconds
        if idle_s is not None:
            recorder.on_activity = self._note_activity
            self._note_activity()
            self._check_silence(idle_s, partial(stop, f"nothing happened for {idle_s:g} s"))

    def _note_activity(self) -> None:
        self._last_activity_at = self._loop.time()

    def _check_silence(self, idle_s: float, on_silence: Callable[[], None]) -> None:
        left = self._last_activity_at + idle_s - self._loop.time()
        if left < TIMER_GRAIN_S:
            on_silence()
            return
        again = partial(self._check_silence, idle_s, on_silence)
        self._timers["silence"] = self._loop.call_later(left, again)

    def cancel(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
