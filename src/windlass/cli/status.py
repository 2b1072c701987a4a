"""The line at the bottom of a terminal: what the run is doing, and what it has cost so far.

It is computed from the view of the session and redrawn from time to time. Without a terminal there
is no such line, and nothing is lost.
"""

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from decimal import Decimal

from windlass.cli.screen import Screen
from windlass.core.events import AttemptRetrying, Event
from windlass.core.messages import Ledger, Usage
from windlass.core.projection.project import apply_event
from windlass.core.projection.streaming import StreamingReply
from windlass.core.projection.view import Projection, ReplyEntry

TICK_S = 0.12


class StatusLine:
    """What a run is doing, in one line."""

    def __init__(self, screen: Screen, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._clock = clock
        self._run_started = clock()
        self._activity_since = self._run_started
        self._activity = "starting"
        self._retry_at: float | None = None
        self._step = 0
        self._ledger = Ledger()
        self._view = Projection()
        self._note = ""
        self._frame = 0
        self._is_paused = False

    def start_run(self) -> None:
        """Start to count for another run."""
        self._run_started = self._clock()
        self._step = 0
        self._ledger = Ledger()
        self._set_activity("starting")

    def update(self, event: Event) -> None:
        """Take an event into account; the next redraw shows it."""
        self.follow(apply_event(self._view, event))
        if isinstance(event, AttemptRetrying):
            self.start_retry(event.wait_s)

    def start_retry(self, wait_s: float) -> None:
        """Count down `wait_s` seconds to the next attempt."""
        self._set_activity("retrying")
        self._retry_at = self._clock() + wait_s

    def start_from(self, view: Projection) -> None:
        """Take for known what a session came to before."""
        self._view = view

    def follow(self, view: Projection) -> None:
        """Take in how the view of the session has changed; the next redraw shows it."""
        before = self._view
        self._view = view
        if view.run is not None:
            self._ledger = view.run.ledger
        if view.attempt is not None and view.attempt is not before.attempt:
            # The place in this run, as the summary counts, and not in the session.
            self._step = view.run.steps + 1 if view.run is not None else view.attempt.step
            self._set_activity("waiting for the model")
        if view.reply is not None and view.reply is not before.reply:
            self._follow_reply(before.reply, view.reply)
        elif view.retry_at is not None and view.retry_at != before.retry_at:
            self.start_retry(max(0.0, view.retry_at - view.at))
        elif view.tail is not before.tail and view.attempt is None:
            status = view.status
            if status.waits_for == "person":
                self._set_activity("waiting for you")
            elif status.tools and status.tools != before.status.tools:
                self._set_activity("running " + ", ".join(status.tools))
            elif view.steps != before.steps:
                self._set_activity("checking the calls")

    def _follow_reply(self, before: StreamingReply | None, reply: StreamingReply) -> None:
        if len(reply.chunks) and (before is None or reply.chunks is not before.chunks):
            is_text = reply.chunks[-1].kind == "text"
            self._set_activity("writing" if is_text else "thinking")
        names = [call.name for call in reply.calls if call.name]
        if names and (before is None or reply.calls is not before.calls):
            self._set_activity(f"writing a call to {names[-1]}")

    def set_note(self, text: str) -> None:
        """Show the last line of what a running tool reports, until the activity changes."""
        self._note = (text.strip().splitlines() or [""])[-1]

    def show_activity(self, activity: str) -> None:
        """Show an activity that no event reports."""
        self._set_activity(activity)
        self.show_footer()

    def format_line(self) -> str:
        """The whole line, as of now."""
        now = self._clock()
        glyphs = self._screen.glyphs
        activity = self._activity
        if self._retry_at is not None:
            activity += f" in {max(0.0, self._retry_at - now):.0f} s"
            if self._view.failures:
                activity += f" (failed {format_times(self._view.failures)})"
        elif now - self._activity_since >= 1:
            activity += f" {_format_seconds(now - self._activity_since)}"
        parts = [activity]
        if self._step:
            parts.append(f"step {self._step}")
        parts += format_figures(self._ledger.usage, self._ledger.usd, now - self._run_started)
        parts += format_context_left(self._view)
        if self._note:
            parts.append(self._note)
        spinner = glyphs.spinner[self._frame % len(glyphs.spinner)]
        return f"{spinner} " + f" {glyphs.dot} ".join(parts)

    def draw_line(self) -> str:
        """The whole line, as of now, with the next picture of the spinner."""
        self._frame += 1  # The spinner turns, so that a person sees that we are alive.
        return self.format_line()

    def show_footer(self) -> None:
        """Draw the line, unless it is paused."""
        if not self._is_paused:
            self._screen.show_footer(self.draw_line())

    @contextmanager
    def pause(self) -> Generator[None]:
        """Draw nothing during the block: a question has the bottom of the screen."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    async def refresh_until_cancelled(self) -> None:
        """Redraw the line every TICK_S seconds, until cancelled."""
        try:
            while self._screen.styled:
                self.show_footer()
                await asyncio.sleep(TICK_S)
        finally:
            self._screen.clear_footer()

    def _set_activity(self, activity: str) -> None:
        # The same activity keeps its start: text arrives in many pieces, but it is one writing.
        if activity != self._activity or self._retry_at is not None:
            self._activity_since = self._clock()
        self._activity = activity
        self._retry_at = None
        self._note = ""


def format_figures(usage: Usage | None, usd: Decimal | None, seconds: float) -> list[str]:
    """Tokens, money and time, as far as they are known."""
    figures: list[str] = []
    if usage is not None and usage.total:
        estimated = " (estimated)" if usage.estimated else ""
        figures.append(f"{usage.total:,} tokens{estimated}")
    if usd is not None and usd:
        figures.append(format_usd(usd))
    return [*figures, _format_seconds(seconds)]


def format_context_left(view: Projection) -> list[str]:
    """How much of the model's context is left after the last reply, if that is known."""
    window = view.setup.model.window if view.setup is not None else None
    if not window:
        return []
    for at in range(len(view.entries) - 1, -1, -1):
        entry = view.entries[at]
        if isinstance(entry, ReplyEntry) and entry.charge is not None and entry.charge.usage:
            left = max(0.0, 1 - entry.charge.usage.total / window)
            return [f"{left:.0%} context left"]
    return []


def format_times(count: int) -> str:
    """Return a count in words: once, twice, or a number of times."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def format_usd(usd: Decimal) -> str:
    """US dollars to the cent; below one dollar with four digits, so that little is not nothing."""
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}"


def _format_seconds(seconds: float) -> str:
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"  # noqa: PLR2004
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s"
