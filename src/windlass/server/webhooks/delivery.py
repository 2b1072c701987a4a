"""Delivers the messages of one webhook, while this process holds its lease.

Invariant: messages about a session go out in the order of its facts, and the next one only after
the one before was taken. The cursor moves after a message was delivered, so that a process which
dies in between delivers it again: at least once, with the same id. Sessions do not wait for one
another.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass

from msgspec.structs import replace

from windlass.core.events import Fact
from windlass.core.session_summary import SessionSummary
from windlass.logs import get_logger
from windlass.server.webhooks.messages import HookMessage, SessionReading, messages_of_fact
from windlass.server.webhooks.sender import HookSender
from windlass.server.webhooks.store import HookCursor, HookMark, Webhook, WebhookStore

SKEW_S = 120.0
"""How much the clocks of two drivers may differ, and how long an append may take to be seen."""
MARK_S = 30.0
"""How often the time up to which all was delivered is kept."""
AT_ONCE = 16
"""Sessions whose messages are sent side by side."""
BACK_OFF_S = (2.0, 10.0, 30.0, 120.0, 600.0, 1_800.0, 3_600.0)
"""Between two attempts; the last one counts for all further ones."""
GIVE_UP_S = 3 * 24 * 3600.0
"""A message that was tried for this long is given up, and the next one is sent."""
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class HookSource:
    """What a delivery needs to know of sessions."""

    list_changed: Callable[[Webhook, float], AsyncGenerator[SessionSummary]]
    """Yields the sessions that a webhook may tell of, and that changed since a time."""
    read: Callable[[Webhook, str, int], Awaitable[SessionReading | None]]
    """Returns the facts of a session after a number; None if the webhook's owner has none such."""
    add_link: Callable[[Webhook, HookMessage], HookMessage]
    """Returns the message with a link to its question."""


class HookDelivery:
    """The work for one webhook. It belongs to the holder of the lease."""

    def __init__(
        self,
        hook: Webhook,
        store: WebhookStore,
        source: HookSource,
        sender: HookSender,
        now: Callable[[], float],
    ) -> None:
        self._hook = hook
        self._store = store
        self._source = source
        self._sender = sender
        self._now = now
        self._cursors: dict[str, HookCursor] | None = None
        self._seen: dict[str, int] = {}
        """By session: the facts that need not be read again."""
        self._mark = HookMark()
        self._next_since = 0.0
        self._marked_at = 0.0
        self._is_gone = False

    async def run_pass(self) -> None:
        """Deliver what there is to tell now. Raises WindlassError if the journal fails."""
        began = self._now()
        cursors = await self._load()
        sessions = [name for name, cursor in cursors.items() if cursor.attempts]
        changed = self._source.list_changed(self._hook, self._next_since - SKEW_S)
        sessions += [
            summary.session
            async for summary in changed
            if summary.facts > self._seen.get(summary.session, 0)
        ]
        slots = asyncio.Semaphore(AT_ONCE)

        async def tell(session: str) -> None:
            async with slots:
                if not self._is_gone:
                    await self._tell_session(session)

        # Oldest first: a list begins with the latest.
        await asyncio.gather(*(tell(session) for session in reversed(dict.fromkeys(sessions))))
        self._next_since = began
        if began >= self._marked_at + MARK_S:
            await self._advance_mark(began)

    async def _load(self) -> dict[str, HookCursor]:
        if self._cursors is None:
            self._mark = await self._store.read_mark(self._hook)
            self._next_since = self._mark.until
            self._cursors = await self._store.read_cursors(self._hook)
        return self._cursors

    async def _tell_session(self, session: str) -> None:
        """Deliver the messages about a session, up to the first that cannot be delivered."""
        cursor = (await self._load()).get(session)
        if cursor is not None and self._now() < cursor.next_try:
            return
        after = max(self._seen.get(session, 0), cursor.seq if cursor is not None else 0)
        reading = await self._source.read(self._hook, session, after)
        if reading is None:
            await self._forget(session)
            return
        floor = self._hook.created
        if cursor is None:
            floor = max(floor, self._mark.until - SKEW_S)
        for fact in reading.facts:
            if fact.at >= floor and not await self._tell_fact(reading, fact):
                self._seen[session] = fact.seq - 1
                return
        if reading.facts:
            self._seen[session] = reading.facts[-1].seq

    async def _tell_fact(self, reading: SessionReading, fact: Fact) -> bool:
        """Deliver the messages about a fact. Returns whether all of them are done with."""
        session = reading.summary.session
        for message in messages_of_fact(self._hook, reading, fact):
            cursor = self._cursor_of(session, fact.seq)
            if message.id in cursor.done:
                continue
            outcome = await self._sender.send(
                self._hook, self._source.add_link(self._hook, message)
            )
            if outcome.is_delivered:
                await self._keep(
                    replace(cursor, done=(*cursor.done, message.id), attempts=0, next_try=0.0)
                )
            elif outcome.is_gone:
                self._is_gone = True
                await self._store.note_failure(self._hook, outcome.error, is_disabled=True)
                return False
            elif not await self._note_failure(cursor, message, outcome.error):
                return False
        cursors = await self._load()
        if session in cursors and cursors[session].seq < fact.seq and cursors[session].done:
            await self._keep(HookCursor(session, fact.seq))
        return True

    def _cursor_of(self, session: str, seq: int) -> HookCursor:
        """Return the cursor before a fact: all facts before it are done with."""
        known = (self._cursors or {}).get(session)
        if known is None or known.seq < seq - 1:
            return HookCursor(session, seq - 1)
        return known

    async def _note_failure(self, cursor: HookCursor, message: HookMessage, error: str) -> bool:
        """Plan the next attempt. Returns True if the message is given up instead."""
        now = self._now()
        first_try = cursor.first_try if cursor.attempts else now
        _log.warning("webhook %s: a message was not taken: %s", self._hook.name, error)
        if now - first_try >= GIVE_UP_S:
            await self._store.note_failure(self._hook, error, given_up=1)
            await self._keep(
                replace(cursor, done=(*cursor.done, message.id), attempts=0, next_try=0.0)
            )
            return True
        wait_s = BACK_OFF_S[min(cursor.attempts, len(BACK_OFF_S) - 1)]
        if not cursor.attempts:
            await self._store.note_failure(self._hook, error)
        await self._keep(
            replace(
                cursor, attempts=cursor.attempts + 1, first_try=first_try, next_try=now + wait_s
            )
        )
        return False

    async def _keep(self, cursor: HookCursor) -> None:
        cursor = replace(cursor, at=self._now())
        await self._store.write_cursor(self._hook, cursor)
        (await self._load())[cursor.session] = cursor

    async def _forget(self, session: str) -> None:
        (await self._load()).pop(session, None)
        self._seen.pop(session, None)
        await self._store.forget_cursor(self._hook, session)

    async def _advance_mark(self, until: float) -> None:
        """Keep how far all has come, and forget the cursors that are no longer needed.

        Messages that wait to be sent again are found by their own cursors.
        """
        self._marked_at = until
        self._mark = HookMark(until)
        await self._store.write_mark(self._hook, self._mark)
        for cursor in list((await self._load()).values()):
            # What was delivered before is older than whatever is looked at without a cursor.
            if not cursor.attempts and cursor.at < until - 2 * SKEW_S:
                (await self._load()).pop(cursor.session, None)
                await self._store.forget_cursor(self._hook, cursor.session)
