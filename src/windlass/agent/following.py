"""Watching a session that nobody here drives: its records, as they are written elsewhere."""

import asyncio
from collections.abc import AsyncGenerator

from windlass.core.events import Event, RunEnded
from windlass.core.reply_hold import visible_facts
from windlass.ports import AppendSignals, Journal, SessionLeases

LEASE_POLL_S = 1.0
"""How often to look whether anybody still drives the session."""


async def follow_session(
    journal: Journal, session: str, after: int, *, withhold: bool
) -> AsyncGenerator[Event]:
    """The records past a sequence number, for as long as somebody drives the session."""
    leases = journal if isinstance(journal, SessionLeases) else None
    signals = journal if isinstance(journal, AppendSignals) else None
    seen, is_driven = after, True
    while is_driven:
        # Asked before the records are read: what a driver wrote before it let go is not missed.
        is_driven = leases is not None and signals is not None and await leases.is_leased(session)
        facts = await journal.read(session, seen)
        for fact in visible_facts(facts, withhold=withhold, live=is_driven):
            seen = fact.seq
            yield fact
        if facts and isinstance(facts[-1], RunEnded):
            return
        if is_driven and leases is not None and signals is not None:
            await _wait_for_facts(signals, leases, session, facts[-1].seq if facts else seen)


async def _wait_for_facts(
    signals: AppendSignals, leases: SessionLeases, session: str, after: int
) -> None:
    """Return when there may be records, or nobody drives the session any more.

    A driver that pauses lets go without a word; to look for that costs little, to ask for news anew
    costs a look at the journal.
    """
    appended = asyncio.ensure_future(signals.wait_for_append(session, after))
    try:
        while not appended.done() and await leases.is_leased(session):
            await asyncio.wait({appended}, timeout=LEASE_POLL_S)
        if appended.done():
            appended.result()
    finally:
        appended.cancel()
