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
    AttemptStarted,
    CallDelta,
    CallFinished,
    CallJudged,
    CallStarted,
    Event,
    Retrying,
    RunEnded,
    StepProposed,
    TextDelta,
    ThinkingDelta,
)
from windlass.core.messages import Charge, Ledger, Usage
from windlass.core.verdicts import Ask

TICK_S = 0.12


class Status:
    """What a run is doing, in a line."""

    def __init__(self, screen: Screen, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._clock = clock
        self._started = self._since = clock()
        self._doing = "starting"
        self._until: float | None = None
        self._step = 0
        self._ledger = Ledger()
        self._names: dict[str, str] = {}
        self._running: dict[str, str] = {}
        """The tools at work, by call."""
        self._noted = ""
        self._frame = 0
        self.held = False
        """Somebody else has the bottom of the screen."""

    def begin(self) -> None:
        """Another run begins."""
        self._started = self._clock()
        self._step, self._ledger = 0, Ledger()
        self._do("starting")

    def __call__(self, event: Event) -> None:
        match event:
            case AttemptStarted(step):
                self._step = step
                self._do("waiting for the model")
            case ThinkingDelta():
                self._do("thinking")
            case TextDelta():
                self._do("writing")
            case CallDelta(name=str(name)):
                self._do(f"writing a call of {name}")
            case Retrying(wait_s=wait_s):
                self._do("asking again")
                self._until = self._clock() + wait_s
            case AttemptFailed(charge=charge) | RunEnded(charge=charge):
                self._charge(charge)
            case StepProposed(charge=charge):
                self._charge(charge)
                self.know(event)
                self._do("judging")
            case CallJudged(verdict=Ask()):
                self._do("waiting for you")
            case CallStarted(call_id):
                self._running[call_id] = self._names.get(call_id, "a tool")
                self._do("running " + ", ".join(self._running.values()))
            case CallFinished(call_id, _, charges):
                self._running.pop(call_id, None)
                for charge in charges:
                    self._charge(charge)
                if self._running:
                    self._do("running " + ", ".join(self._running.values()))
            case _:
                pass

    def know(self, step: StepProposed) -> None:
        """Learn the names of calls that were made before."""
        self._names |= {call.id: call.name for call in step.reply.calls}

    def note(self, text: str) -> None:
        """What a running tool says of itself; the last line of it is shown for a while."""
        self._noted = (text.strip().splitlines() or [""])[-1]

    def say(self, doing: str) -> None:
        """Show something that no event tells."""
        self._do(doing)
        self.show()

    def line(self) -> str:
        """All of it, for now."""
        now, glyphs = self._clock(), self._screen.glyphs
        doing = self._doing
        if self._until is not None:
            doing += f" in {max(0.0, self._until - now):.0f} s"
        elif now - self._since >= 1:
            doing += f" {_time(now - self._since)}"
        parts = [doing]
        if self._step:
            parts.append(f"step {self._step}")
        parts += figures(self._ledger.usage, self._ledger.usd, now - self._started)
        if self._noted:
            parts.append(self._noted)
        spinner = glyphs.spinner[self._frame % len(glyphs.spinner)]
        return f"{spinner} " + f" {glyphs.dot} ".join(parts)

    def show(self) -> None:
        if not self.held:
            self._frame += 1
            self._screen.footer(self.line())

    async def keep(self) -> None:
        """Show it again and again, until cancelled."""
        try:
            while self._screen.styled:
                self.show()
                await asyncio.sleep(TICK_S)
        finally:
            self._screen.clear()

    def _do(self, doing: str) -> None:
        if doing != self._doing or self._until is not None:
            self._since = self._clock()
        self._doing, self._until, self._noted = doing, None, ""

    def _charge(self, charge: Charge | None) -> None:
        if charge is not None:
            self._ledger = self._ledger.add(charge)


def figures(usage: Usage | None, usd: Decimal | None, seconds: float) -> list[str]:
    """Tokens, money and time, as far as they are known."""
    told: list[str] = []
    if usage is not None and usage.total:
        told.append(f"{usage.total:,} tokens{' (estimated)' if usage.estimated else ''}")
    if usd is not None and usd:
        told.append(price(usd))
    return [*told, _time(seconds)]


def price(usd: Decimal) -> str:
    """Money, to the cent, or as exact as it takes to be more than nothing."""
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}"


def _time(seconds: float) -> str:
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"  # noqa: PLR2004
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s"
