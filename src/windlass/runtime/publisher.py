"""What watchers receive: pieces of a reply and other deltas at once, facts once they are durable.

Invariant: a watcher never sees a secret, sees a reply that its gate must judge only after the gate
has allowed it, and can tell the order of all events from their places (`seq`, `nth`). Publishing
never stops a run: a watcher that raises is dropped.

A relay passes the events on to watchers in other processes, while there are any. Invariant: a run
never waits for them and never changes because of them. While none watches, the relay is not among
the watchers of the run, so that a delta costs nothing. It is sent what watchers in this process
see: masked, and without replies that are withheld.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar, cast

from msgspec.structs import replace

from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    CallDelta,
    CallFinished,
    ContentPiece,
    Delta,
    Event,
    Fact,
    NestedEvent,
    StepProposed,
    TextDelta,
    ThinkingDelta,
)
from windlass.core.live_batch import EventBuffer, FactMark, LiveBatch, LiveItem, count_places
from windlass.core.reply_hold import ReplyHold
from windlass.core.secrets.mask import Mask
from windlass.core.state import State
from windlass.logs import get_logger
from windlass.ports import LiveSender, Watcher
from windlass.runtime import lazy_imports

DeltaT = TypeVar("DeltaT", bound=Delta)
_log = get_logger(__name__)
_TEXTS = (TextDelta, ThinkingDelta)
_END_DELTAS = (StepProposed, AttemptStarted, AttemptFailed, CallFinished)
"""The facts that settle the deltas before them."""


class EventPublisher:
    """Masks, withholds and places the events of one session, and passes them to its watchers."""

    def __init__(
        self,
        mask: Mask,
        watcher: Watcher | None = None,
        *,
        observer: Watcher | None = None,
    ) -> None:
        """Make a publisher.

        `observer` is a watcher that does not count as one: what it alone was shown is unseen.
        """
        self._mask = mask
        self._piece_mask: lazy_imports.PieceMask | None = None
        """Made with the first delta that is shown."""
        self._uncounted = [observer] if observer is not None else []
        """Watchers that do not count as such: what they alone were shown counts as unseen."""
        self._watchers = (*self._uncounted, *([watcher] if watcher is not None else []))
        """Replaced by a new tuple at each change: watchers may come or go during a notification."""
        self._is_mask_behind = True
        """Pieces of this attempt went by without a watcher, so the mask has not seen them."""
        self._shown_pieces: list[ContentPiece] = []
        """What watchers saw of this attempt, for later watchers."""
        self.on_activity: Callable[[], None] | None = None
        """Called for each piece, delta and append, so it must cost next to nothing."""
        self._reply_hold: ReplyHold | None = None
        """Made for a run whose replies are shown only once they have been judged."""
        self.seq = 0
        """The number of the last durable fact: deltas are placed after it."""
        self._deltas_since_fact = 0
        self._is_closed = False

    def add_watcher(self, watcher: Watcher, *, counts: bool = True) -> None:
        """Tell a watcher everything from now on.

        One that does not count never changes what happens after an attempt that broke off.
        """
        self._watchers = (*self._watchers, watcher)
        if not counts:
            self._uncounted.append(watcher)

    def remove_watcher(self, watcher: Watcher) -> None:
        """Stop telling a watcher; it may have been dropped already."""
        if watcher in self._watchers:
            at = self._watchers.index(watcher)
            self._watchers = (*self._watchers[:at], *self._watchers[at + 1 :])
        if watcher in self._uncounted:
            self._uncounted.remove(watcher)
        if not self._watchers and self._reply_hold is None:
            self._is_mask_behind = True

    def start_from(self, state: State) -> None:
        """Place what comes next after the last fact of this state."""
        self.seq = state.seq
        setup = state.setup
        if setup is None or not setup.withhold_replies:
            self._reply_hold = None
        elif self._reply_hold is None:
            self._reply_hold = ReplyHold()

    def close(self) -> None:
        """Show nothing more to any watcher."""
        self._is_closed = True

    # Facts, which the recorder hands over once they are durable.

    def publish_facts(self, facts: Sequence[Fact], state: State) -> None:
        """Publish facts that are durable now; `state` is what they led to."""
        for fact in facts:
            if isinstance(fact, _END_DELTAS):
                self._prepare_for(fact)
        self.start_from(state)
        self._deltas_since_fact = 0
        if self.on_activity is not None:
            self.on_activity()
        if not self._is_closed:
            self.publish(*facts)

    def _prepare_for(self, fact: Fact) -> None:
        """Before a fact is published: place or drop the deltas that came before it."""
        match fact:
            case StepProposed():
                if self._reply_hold is not None:
                    self._reply_hold.place_pieces(self.place_delta)
                # From now on the fact carries the reply: a later watcher must not get it twice.
                self._shown_pieces = []
            case AttemptStarted() | AttemptFailed():
                if self._reply_hold is not None:
                    self._reply_hold.drop_pieces()
                if self._piece_mask is not None:
                    self._piece_mask.start_attempt()
                self._shown_pieces = []
                self._is_mask_behind = not self._watchers and self._reply_hold is None
            case CallFinished(call_id) if self._piece_mask is not None:
                # The end of a progress text is held back while it could begin a secret.
                rest = self._piece_mask.end_progress(call_id)
                if rest is not None and self._watchers and not self._is_closed:
                    self.publish(self.place_delta(rest))
            case _:
                pass

    # Deltas, which are shown at once and kept nowhere.

    def _mask_of_pieces(self) -> "lazy_imports.PieceMask":
        if self._piece_mask is None:
            self._piece_mask = lazy_imports.PieceMask(self._mask)
        return self._piece_mask

    def show_delta(self, delta: Delta) -> None:
        """Show the watchers a delta that is not a piece of a reply."""
        if self.on_activity is not None:
            self.on_activity()
        if not self._watchers or self._is_closed:
            return
        shown = self._mask_of_pieces().mask_delta(delta)
        if shown is not None:
            self.publish(self.place_delta(shown))

    def show_pieces(self, pieces: Sequence[ContentPiece]) -> bool:
        """Show pieces of a reply, one by one. Returns whether a watcher has now seen text of it.

        They came together, so they are masked together.
        """
        if self.on_activity is not None:
            self.on_activity()
        hold = self._reply_hold
        if self._is_closed or not (self._watchers or hold):
            return False
        placed: list[ContentPiece] = []
        has_seen_text = False
        for shown in self._mask_of_pieces().mask_pieces(pieces):
            if isinstance(shown, _TEXTS) and not shown.text:
                continue
            if hold is not None and isinstance(shown, TextDelta | ThinkingDelta | CallDelta):
                hold.hold_piece(shown)
                continue
            self._shown_pieces.append(shown)
            self._deltas_since_fact += 1
            placed.append(replace(shown, seq=self.seq, nth=self._deltas_since_fact))
            has_seen_text = has_seen_text or type(shown) is TextDelta
        self.publish(*placed)
        return has_seen_text and (
            not self._uncounted or any(watcher not in self._uncounted for watcher in self._watchers)
        )

    def masked_so_far(self, pieces: Iterable[ContentPiece]) -> tuple[ContentPiece, ...]:
        """Return the running attempt as a late watcher may see it, from all of its pieces so far.

        Called before the watcher is added. Present watchers notice nothing of it.
        """
        if self._reply_hold is not None:
            return ()
        if self._is_mask_behind:
            mask = self._mask_of_pieces()
            mask.start_attempt()
            masked = mask.mask_pieces(tuple(pieces))
            self._shown_pieces = [
                piece for piece in masked if not isinstance(piece, _TEXTS) or piece.text
            ]
            self._is_mask_behind = False
        merged = EventBuffer()
        for piece in self._shown_pieces:
            if not merged.merge(piece):
                merged.append(piece)
        return tuple(self.place_delta(cast("ContentPiece", piece)) for piece in merged.take_all())

    def masked_nested(self, nested: Iterable[NestedEvent]) -> tuple[NestedEvent, ...]:
        """Return what sub-agents have done so far as a late watcher may see it.

        Called before the watcher is added, like `masked_so_far`.
        """
        mask = self._mask_of_pieces()
        return tuple(self.place_delta(mask.mask_nested(delta)) for delta in nested)

    def place_delta(self, delta: DeltaT) -> DeltaT:
        """Return a delta with the next place after the last durable fact."""
        self._deltas_since_fact += count_places(delta) if type(delta) is NestedEvent else 1
        return replace(delta, seq=self.seq, nth=self._deltas_since_fact)

    def publish(self, *events: Event) -> None:
        """Show the watchers events, or hold them back until the reply before them is judged."""
        for event in events if self._reply_hold is None else self._release_events(events):
            for watcher in self._watchers:
                try:
                    watcher(event)
                except Exception:  # noqa: BLE001 - a watcher cannot stop a run, however it fails
                    _log.exception("a watcher failed and gets no more events")
                    self.remove_watcher(watcher)

    def _release_events(self, events: Sequence[Event]) -> Iterator[Event]:
        for event in events:
            if self._reply_hold is not None:
                yield from self._reply_hold.release_events(event)


FLUSH_S = 0.05
"""How long deltas are gathered, so that a fast model costs some twenty batches a second."""
SNAPSHOT_GAP_S = 0.2
"""A snapshot may be long, and any watcher may ask for one: no more of them than this."""
GATHERED_MAX = 512
"""Events that are gathered at most; then they are sent at once."""


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
            snapshot = self._take_snapshot()
            if not self._is_attached:
                self._is_attached = True
                self._publisher.add_watcher(self._take_event, counts=False)
            self._send(snapshot, is_snapshot=True)
        elif self._needs_snapshot:
            self._schedule_flush()

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
