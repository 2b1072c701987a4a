"""The clock that stands beside a run: it rings when the time is up, or when nothing happens.

A deadline is a cancel with a reason. The alarm is off while a person is waited for.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from windlass.runtime.recorder import Recorder

GRAIN_S = 0.001
"""Less than this is no time left."""


class Alarm:
    """Watches one run's limits of time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._heard_at = 0.0

    def on(self, recorder: Recorder, stop: Callable[[str], None]) -> None:
        """Set the alarm for as long as the run still has."""
        setup, state = recorder.setup, recorder.state
        if state.run is None:
            return
        for whose, limit, elapsed_s in (
            ("the", setup.limits.seconds, state.run.elapsed_s),
            ("the session's", setup.session_limits.seconds, state.elapsed_s),
        ):
            if limit is not None:
                ring = partial(stop, f"{whose} limit of {limit:g} s is reached")
                self._timers[whose] = self._loop.call_later(max(0.0, limit - elapsed_s), ring)
        idle = setup.limits.idle_seconds
        if idle is not None:
            recorder.heard = self._hear
            self._hear()
            self._watch_silence(idle, partial(stop, f"nothing happened for {idle:g} s"))

    def _hear(self) -> None:
        self._heard_at = self._loop.time()

    def _watch_silence(self, idle: float, ring: Callable[[], None]) -> None:
        left = self._heard_at + idle - self._loop.time()
        if left < GRAIN_S:
            ring()
            return
        again = partial(self._watch_silence, idle, ring)
        self._timers["silence"] = self._loop.call_later(left, again)

    def off(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
