"""Passes the events of a run on to watchers in other processes, while there are any.

Invariant: a run never waits for them and never changes because of them. While none
watches, the relay is not among the watchers of the run, so that a delta costs nothing. It is sent
what watchers in this process see: masked, and without replies that are withheld.
"""

import asyncio
import os
from collections.abc import Callable

from windlass.core.events import Event, Fact
from windlass.core.live_batch import EventBuffer, FactMark, LiveBatch, LiveItem
from windlass.logs import get_logger
from windlass.ports import LiveSender
from windlass.runtime.publisher import EventPublisher

FLUSH_S = 0.05
"""How long deltas are gathered, so that a fast model costs some twenty batches a second."""
SNAPSHOT_GAP_S = 0.2
"""A snapshot may be long, and any watcher may ask for one: no more of them than this."""
GATHERED_MAX = 512
"""Events that are gathered at most; then they are sent at once."""
_log = get_logger(__name__)


class LiveRelay:
    """The events of one run, on their way to watchers elsewhere."""

    def __init__(
        self,
        sender: LiveSender,
        publisher: EventPublisher,
        take_snapshot: Callable[[], tuple[LiveItem, ...]],
    ) -> None:
        """Make a relay; `take_snapshot` returns what a new watcher must receive."""
        self._sender = sender
        self._publisher = publisher
        self._take_snapshot = take_snapshot
        self._is_closed = False
        self._driver = os.urandom(8).hex()
        self._number = 0
        self._gathered = EventBuffer()
        self._is_attached = False
        self._needs_snapshot = False
        self._timer: asyncio.TimerHandle | None = None
        self._next_flush_at = 0.0
        self._next_snapshot_at = 0.0

    def close(self) -> None:
        """Send what was gathered, and nothing more."""
        self._flush()
        self._detach()
        self._is_closed = True

    def note_interest(self, is_wanted: bool) -> None:  # noqa: FBT001 - it is a callback
        """Begin with a snapshot if watchers in other processes want one; stop if none is left."""
        if self._is_closed:
            return
        if is_wanted:
            self._needs_snapshot = True
            self._schedule_flush()
        else:
            self._detach()

    def _detach(self) -> None:
        self._publisher.remove_watcher(self._take_event)
        self._is_attached = False
        self._needs_snapshot = False
        self._gathered.take_all()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take_event(self, event: Event) -> None:
        gathered = self._gathered
        if not gathered.merge(event):
            gathered.append(event)
        if len(gathered) >= GATHERED_MAX:
            self._flush()
        elif self._timer is None:
            self._schedule_flush()

    def _schedule_flush(self) -> None:
        # The first event after a silence goes out in this turn of the loop; others are gathered.
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._next_flush_at), self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = asyncio.get_running_loop().time()
        self._next_flush_at = now + FLUSH_S
        if len(self._gathered):
            self._send(tuple(_mark_facts(self._gathered.take_all())))
        if self._needs_snapshot and now >= self._next_snapshot_at:
            self._needs_snapshot = False
            self._next_snapshot_at = now + SNAPSHOT_GAP_S
            self._send_snapshot()
        elif self._needs_snapshot:
            self._schedule_flush()

    def _send_snapshot(self) -> None:
        snapshot = self._take_snapshot()
        if not self._is_attached:
            self._is_attached = True
            self._publisher.add_watcher(self._take_event, counts=False)
        self._send(snapshot, is_snapshot=True)

    def _send(self, items: tuple[LiveItem, ...], *, is_snapshot: bool = False) -> None:
        self._number += 1
        batch = LiveBatch(
            driver=self._driver, number=self._number, items=items, is_snapshot=is_snapshot
        )
        try:
            self._sender.send(batch)
        except Exception:  # noqa: BLE001 - what is shown cannot stop a run
            _log.exception("a batch of deltas could not be sent to watchers in other processes")


def _mark_facts(events: tuple[Event, ...]) -> list[LiveItem]:
    """Return the events with a mark in place of each run of facts."""
    items: list[LiveItem] = []
    for event in events:
        if not isinstance(event, Fact):
            items.append(event)
        elif items and isinstance(items[-1], FactMark):
            items[-1] = FactMark(event.seq)
        else:
            items.append(FactMark(event.seq))
    return items
