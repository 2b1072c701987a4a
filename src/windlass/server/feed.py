"""What changes in the list of sessions, for those who watch it.

Invariant: one look at the journal serves all watchers, and without a watcher the journal is not
read. A change may be sent late, and several as one, but the last state of a session is always sent.
"""

import asyncio
from collections.abc import Callable

from windlass.core.session_summary import SessionSummary
from windlass.logs import get_logger
from windlass.ports import Journal
from windlass.server.access import Caller, Role

LOOK_S = 1.0
"""How often the journal is looked at; changes of this process are sent at once."""
OVERLAP_S = 10.0
"""How far the clocks of processes that share a journal may differ."""
PAGE = 200
KNOWN_MAX = 10_000
_log = get_logger(__name__)


class FeedSubscription:
    """The changes that one watcher has not read yet, the last one of each session."""

    def __init__(self, caller: Caller, on_close: "Callable[[FeedSubscription], None]") -> None:
        self._caller = caller
        self._on_close = on_close
        self._changes: dict[str, SessionSummary] = {}
        self._arrived = asyncio.Event()

    def push(self, summary: SessionSummary) -> None:
        """Note a change, if its session is one of the watcher's."""
        uses: tuple[Role, ...] = ("watch", "answer")
        caller = self._caller
        if any(caller.may_use(role, summary.caller, summary.agent) for role in uses):
            self._changes[summary.session] = summary
            self._arrived.set()

    async def take(self) -> list[SessionSummary]:
        """Wait for changes, and return them."""
        await self._arrived.wait()
        self._arrived.clear()
        changes = list(self._changes.values())
        self._changes.clear()
        return changes

    def close(self) -> None:
        """Watch no longer."""
        self._on_close(self)


class SessionFeed:
    """Looks at the list of sessions on behalf of all who watch it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._subscriptions: set[FeedSubscription] = set()
        self._seen: dict[str, int] = {}
        """The number of facts that was sent of each session."""
        self._since: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._nudged = asyncio.Event()

    @property
    def is_watched(self) -> bool:
        """Whether there is a watcher, so that the list has to be looked at."""
        return bool(self._subscriptions)

    async def subscribe(self, caller: Caller) -> FeedSubscription:
        """Begin to watch. Changes are sent from now on."""
        if self._task is None:
            latest = await self._journal.sessions(parent="", limit=PAGE)
            self._seen = {summary.session: summary.facts for summary in latest}
            self._since = latest[0].updated if latest else None
            self._task = asyncio.create_task(self._look_again(), name="session feed")
        subscription = FeedSubscription(caller, self._remove)
        self._subscriptions.add(subscription)
        return subscription

    def nudge(self) -> None:
        """Say that something changed in this process."""
        self._nudged.set()

    def _remove(self, subscription: FeedSubscription) -> None:
        self._subscriptions.discard(subscription)
        if not self.is_watched and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _look_again(self) -> None:
        while True:
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._nudged.wait()
            except TimeoutError:
                pass
            self._nudged.clear()
            try:
                await self._look()
            except Exception:  # noqa: BLE001 - the journal may be back at the next look
                _log.exception("cannot list the sessions")

    async def _look(self) -> None:
        since = self._since - OVERLAP_S if self._since is not None else None
        cursor: str | None = None
        while True:
            page = await self._journal.sessions(parent="", since=since, limit=PAGE, cursor=cursor)
            for summary in page:
                self._note(summary)
            cursor = page.cursor
            if cursor is None:
                break
        if len(self._seen) > KNOWN_MAX:
            self._seen = dict(list(self._seen.items())[-KNOWN_MAX // 2 :])

    def _note(self, summary: SessionSummary) -> None:
        self._since = max(self._since or 0.0, summary.updated)
        if self._seen.get(summary.session) == summary.facts:
            return
        self._seen.pop(summary.session, None)
        self._seen[summary.session] = summary.facts
        for subscription in self._subscriptions:
            subscription.push(summary)
