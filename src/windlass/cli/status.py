"""The line at the bottom of a terminal: what the run is doing, and what it has cost so far.

It is computed from events alone and redrawn from time to time. Without a terminal there is no such
line, and nothing is lost.
"""

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from decimal import Decimal

from windlass.cli.screen import Screen
from windlass.core.events import (
    AttemptFailed,
    AttemptRetrying,
    AttemptStarted,
    CallDelta,
    CallFinished,
    CallJudged,
    CallStarted,
    Event,
    RunEnded,
    StepProposed,
    TextDelta,
    ThinkingDelta,
)
from windlass.core.messages import Charge, Ledger, Usage
from windlass.core.verdicts import Ask

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
        self._tool_names: dict[str, str] = {}
        self._running_tools: dict[str, str] = {}
        """The names of the running tools, by call."""
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
        match event:
            case AttemptStarted(step):
                self._step = step
                self._set_activity("waiting for the model")
            case ThinkingDelta():
                self._set_activity("thinking")
            case TextDelta():
                self._set_activity("writing")
            case CallDelta(name=str(name)):
                self._set_activity(f"writing a call to {name}")
            case AttemptRetrying(wait_s=wait_s):
                self._set_activity("retrying")
                self._retry_at = self._clock() + wait_s
            case AttemptFailed(charge=charge) | RunEnded(charge=charge):
                self._add_charge(charge)
            case StepProposed(charge=charge):
                self._add_charge(charge)
                self.learn_calls(event)
                self._set_activity("checking the calls")
            case CallJudged(verdict=Ask()):
                self._set_activity("waiting for you")
            case CallStarted(call_id):
                self._running_tools[call_id] = self._tool_names.get(call_id, "a tool")
                self._show_running_tools()
            case CallFinished(call_id, _, charges):
                self._running_tools.pop(call_id, None)
                for charge in charges:
                    self._add_charge(charge)
                self._show_running_tools()
            case _:
                pass

    def learn_calls(self, step: StepProposed) -> None:
        """Learn the names of calls that were proposed earlier."""
        self._tool_names |= {call.id: call.name for call in step.reply.calls}

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
        elif now - self._activity_since >= 1:
            activity += f" {_format_seconds(now - self._activity_since)}"
        parts = [activity]
        if self._step:
            parts.append(f"step {self._step}")
        parts += format_figures(self._ledger.usage, self._ledger.usd, now - self._run_started)
        if self._note:
            parts.append(self._note)
        spinner = glyphs.spinner[self._frame % len(glyphs.spinner)]
        return f"{spinner} " + f" {glyphs.dot} ".join(parts)

    def show_footer(self) -> None:
        """Draw the line, unless it is paused."""
        if not self._is_paused:
            self._frame += 1  # The spinner turns, so that a person sees that we are alive.
            self._screen.show_footer(self.format_line())

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

    def _show_running_tools(self) -> None:
        if self._running_tools:
            self._set_activity("running " + ", ".join(self._running_tools.values()))

    def _add_charge(self, charge: Charge | None) -> None:
        if charge is not None:
            self._ledger = self._ledger.add(charge)


def format_figures(usage: Usage | None, usd: Decimal | None, seconds: float) -> list[str]:
    """Tokens, money and time, as far as they are known."""
    figures: list[str] = []
    if usage is not None and usage.total:
        estimated = " (estimated)" if usage.estimated else ""
        figures.append(f"{usage.total:,} tokens{estimated}")
    if usd is not None and usd:
        figures.append(format_usd(usd))
    return [*figures, _format_seconds(seconds)]


def format_usd(usd: Decimal) -> str:
    """US dollars to the cent; below one dollar with four digits, so that little is not nothing."""
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}"


def _format_seconds(seconds: float) -> str:
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"  # noqa: PLR2004
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s"
