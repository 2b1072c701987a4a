"""What watchers receive: pieces of a reply and other deltas at once, facts once they are durable.

Invariant: a watcher never sees a secret, sees a reply that its gate must judge only after the gate
has allowed it, and can tell the order of all events from their places (`seq`, `nth`). Publishing
never stops a run: a watcher that raises is dropped.
"""

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
from windlass.core.live_batch import EventBuffer, count_places
from windlass.core.reply_hold import ReplyHold
from windlass.core.secrets.mask import Mask
from windlass.core.secrets.mask_pieces import PieceMask
from windlass.core.state import State
from windlass.logs import get_logger
from windlass.ports import Watcher

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
        self._piece_mask: PieceMask | None = None
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

    def _mask_of_pieces(self) -> PieceMask:
        if self._piece_mask is None:
            self._piece_mask = PieceMask(self._mask)
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
        return has_seen_text and (not self._uncounted or self._has_counted_watcher())

    def _has_counted_watcher(self) -> bool:
        return any(watcher not in self._uncounted for watcher in self._watchers)

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
