"""Watching a session that nobody here drives: its records, as they are written elsewhere."""

import asyncio
from collections.abc import AsyncGenerator

from windlass.core.events import Event, RunEnded
from windlass.core.reply_hold import told
from windlass.ports import Following, Journal, Leasing

LOOK_AGAIN_S = 1.0
"""How often to look whether anybody still drives the session."""


async def followed(
    journal: Journal, session: str, after: int, *, withhold: bool
) -> AsyncGenerator[Event]:
    """The records past a sequence number, for as long as somebody drives the session."""
    leases = journal if isinstance(journal, Leasing) else None
    bell = journal if isinstance(journal, Following) else None
    seen, driven = after, True
    while driven:
        # Asked before the records are read: what a driver wrote before it let go is not missed.
        driven = leases is not None and bell is not None and await leases.leased(session)
        facts = await journal.read(session, seen)
        for fact in told(facts, withhold=withhold, live=driven):
            seen = fact.seq
            yield fact
        if facts and isinstance(facts[-1], RunEnded):
            return
        if driven and leases is not None and bell is not None:
            await _news(bell, leases, session, facts[-1].seq if facts else seen)


async def _news(bell: Following, leases: Leasing, session: str, after: int) -> None:
    """Return when there may be records, or nobody drives the session any more.

    A driver that pauses lets go without a word; to look for that costs little, to ask for news anew
    costs a look at the journal.
    """
    news = asyncio.ensure_future(bell.news(session, after))
    try:
        while not news.done() and await leases.leased(session):
            await asyncio.wait({news}, timeout=LOOK_AGAIN_S)
        if news.done():
            news.result()
    finally:
        news.cancel()
