"""The text of a run as one growing value: what a program shows that only wants the words.

Invariant: each value replaces the one before it. The text of a reply is in the last value exactly
once, however many attempts at it broke off.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from windlass.core.events import (
    AttemptDiscarded,
    AttemptStarted,
    Event,
    ReplyJudged,
    StepProposed,
    TextDelta,
)
from windlass.core.reply_hold import WITHHELD_PART
from windlass.core.verdicts import Deny
from windlass.runtime.leftover_tasks import wait_until_done


class ReplyText:
    """The text of the latest reply of a run that has words, as far as its events have come."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._whole = ""
        """The text of the last complete reply with words."""
        self._is_streaming = False

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces) if self._is_streaming else self._whole

    def apply(self, event: Event) -> None:
        """Take one more event of the run. Events of sub-agents come nested and do not count."""
        match event:
            case TextDelta(text):
                self._is_streaming = True
                self._pieces.append(text)
            case AttemptStarted(purpose="main"):
                # The reply before stays until there are words of this one.
                self._pieces = []
            case AttemptDiscarded():
                self._is_streaming = True
                self._pieces = []
            case StepProposed(reply=reply) if reply.parts != (WITHHELD_PART,):
                self._settle(reply.text if reply.text.strip() else self._whole)
            case ReplyJudged(verdict=Deny()):
                self._settle("")
            case _:
                pass

    def _settle(self, text: str) -> None:
        self._whole = text
        self._pieces = []
        self._is_streaming = False


async def follow_text(events: AsyncIterator[Event]) -> AsyncGenerator[str]:
    """Yield the text so far whenever it changes, at most once per turn of the event loop.

    A slow reader misses values, never text. Raises what the iteration over the events raises.
    """
    reply = ReplyText()
    news = asyncio.Event()

    async def take_events() -> None:
        try:
            async for event in events:
                reply.apply(event)
                news.set()
        finally:
            news.set()

    taking = asyncio.create_task(take_events())
    shown = ""
    try:
        while not taking.done() or news.is_set():
            await news.wait()
            news.clear()
            text = reply.text
            if text != shown:
                shown = text
                yield text
            # All that arrives in one turn of the loop becomes one value.
            await asyncio.sleep(0)
        await taking
    finally:
        taking.cancel()
        await wait_until_done(taking)
