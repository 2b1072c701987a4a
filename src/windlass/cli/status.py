"""The line at the bottom of a terminal: what the run waits for, and what it has come to so far.

It is computed from events alone, and shown from time to time; where there is no terminal there is
none, and nothing is lost.
"""

import asyncio
import time
from collections.abc import Callable
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
    """What a run is doing, in a line."""

    def __init__(self, screen: Screen, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._clock = clock
        self._run_started = self._activity_since = clock()
        self._activity = "starting"
        self._retry_at: float | None = None
        self._step = 0
        self._ledger = Ledger()
        self._tool_names: dict[str, str] = {}
        self._running_tools: dict[str, str] = {}
        """The tools at work, by call."""
        self._note = ""
        self._frame = 0
        self.is_paused = False
        """Somebody else has the bottom of the screen."""

    def start_run(self) -> None:
        """Another run begins."""
        self._run_started = self._clock()
        self._step, self._ledger = 0, Ledger()
        self._set_activity("starting")

    def __call__(self, event: Event) -> None:
        match event:
            case AttemptStarted(step):
                self._step = step
                self._set_activity("waiting for the model")
            case ThinkingDelta():
                self._set_activity("thinking")
            case TextDelta():
                self._set_activity("writing")
            case CallDelta(name=str(name)):
                self._set_activity(f"writing a call of {name}")
            case AttemptRetrying(wait_s=wait_s):
                self._set_activity("asking again")
                self._retry_at = self._clock() + wait_s
            case AttemptFailed(charge=charge) | RunEnded(charge=charge):
                self._add_charge(charge)
            case StepProposed(charge=charge):
                self._add_charge(charge)
                self.learn_calls(event)
                self._set_activity("judging")
            case CallJudged(verdict=Ask()):
                self._set_activity("waiting for you")
            case CallStarted(call_id):
                self._running_tools[call_id] = self._tool_names.get(call_id, "a tool")
                self._set_activity("running " + ", ".join(self._running_tools.values()))
            case CallFinished(call_id, _, charges):
                self._running_tools.pop(call_id, None)
                for charge in charges:
                    self._add_charge(charge)
                if self._running_tools:
                    self._set_activity("running " + ", ".join(self._running_tools.values()))
            case _:
                pass

    def learn_calls(self, step: StepProposed) -> None:
        """Learn the names of calls that were made before."""
        self._tool_names |= {call.id: call.name for call in step.reply.calls}

    def set_note(self, text: str) -> None:
        """What a running tool says of itself; the last line of it is shown for a while."""
        self._note = (text.strip().splitlines() or [""])[-1]

    def show_activity(self, doing: str) -> None:
        """Show something that no event tells."""
        self._set_activity(doing)
        self.show_footer()

    def format_line(self) -> str:
        """All of it, for now."""
        now, glyphs = self._clock(), self._screen.glyphs
        doing = self._activity
        if self._retry_at is not None:
            doing += f" in {max(0.0, self._retry_at - now):.0f} s"
        elif now - self._activity_since >= 1:
            doing += f" {_format_seconds(now - self._activity_since)}"
        parts = [doing]
        if self._step:
            parts.append(f"step {self._step}")
        parts += format_figures(self._ledger.usage, self._ledger.usd, now - self._run_started)
        if self._note:
            parts.append(self._note)
        spinner = glyphs.spinner[self._frame % len(glyphs.spinner)]
        return f"{spinner} " + f" {glyphs.dot} ".join(parts)

    def show_footer(self) -> None:
        if not self.is_paused:
            self._frame += 1
            self._screen.show_footer(self.format_line())

    async def refresh_until_cancelled(self) -> None:
        """Show it again and again, until cancelled."""
        try:
            while self._screen.styled:
                self.show_footer()
                await asyncio.sleep(TICK_S)
        finally:
            self._screen.clear_footer()

    def _set_activity(self, doing: str) -> None:
        if doing != self._activity or self._retry_at is not None:
            self._activity_since = self._clock()
        self._activity, self._retry_at, self._note = doing, None, ""

    def _add_charge(self, charge: Charge | None) -> None:
        if charge is not None:
            self._ledger = self._ledger.add(charge)


def format_figures(usage: Usage | None, usd: Decimal | None, seconds: float) -> list[str]:
    """Tokens, money and time, as far as they are known."""
    told: list[str] = []
    if usage is not None and usage.total:
        told.append(f"{usage.total:,} tokens{' (estimated)' if usage.estimated else ''}")
    if usd is not None and usd:
        told.append(format_usd(usd))
    return [*told, _format_seconds(seconds)]


def format_usd(usd: Decimal) -> str:
    """Money, to the cent, or as exact as it takes to be more than nothing."""
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}"


def _format_seconds(seconds: float) -> str:
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"  # noqa: PLR2004
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s"
