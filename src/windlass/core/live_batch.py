"""What a driver sends to watchers in other processes: its deltas, and marks in place of its facts.

Facts themselves are never sent. A watcher reads them from the journal, where they are checked. The
marks tell when they are there, and keep the order of facts and deltas.

They wait in a queue in which adjacent fragments can be merged. Invariant: merging loses nothing but
the boundaries between fragments. Events that are not fragments are kept, no matter how many they
are.
"""

from collections import deque

import msgspec
from msgspec.structs import replace

from windlass.core.events import (
    CallDelta,
    CallProgress,
    Delta,
    Event,
    NestedEvent,
    RunResumed,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)


class FactMark(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="FactMark"):
    """The facts up to this number are in the journal. A nested one is about that session."""

    seq: int


LiveItem = Delta | FactMark


class LiveBatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What has happened in a run since the batch before."""

    driver: str
    """Distinguishes the drivers of the session: each counts its batches from 1."""
    number: int
    """One more than that of the batch before. A watcher that finds a gap has missed something."""
    items: tuple[LiveItem, ...] = ()
    is_snapshot: bool = False
    """It starts over: a mark of all facts so far, then the reply so far, if any. The same follows
    for the session of each sub-agent that works, as nested events."""


def count_places(delta: Delta) -> int:
    """Return how many places a delta takes: room for the facts that a late watcher reads for it.

    Those are the facts of a sub-agent: before a mark, or before the fact that continues it.
    """
    event = delta.event if isinstance(delta, NestedEvent) else delta
    while isinstance(event, NestedEvent):
        event = event.event
    if isinstance(event, FactMark | RunResumed):
        return max(1, event.seq)
    return 1


class EventBuffer:
    """Events on their way to a reader. A merged event keeps the place of its first fragment."""

    def __init__(self) -> None:
        self.queue: deque[Event] = deque()
        """While nothing is merged, a reader that must be fast may use the queue itself."""
        self.merged_texts: list[str] = []
        """What belongs to the end of the last event, and is not in it yet."""

    def __len__(self) -> int:
        return len(self.queue)

    def append(self, event: Event) -> None:
        """Add an event by itself."""
        if self.merged_texts:
            self._join_merged()
        self.queue.append(event)

    def merge(self, event: Event) -> bool:
        """Merge an event into the last one. Returns whether that was possible."""
        last = self.queue[-1] if self.queue else None
        if type(event) is TextDelta:  # Nearly every event that comes too fast.
            if type(last) is not TextDelta:
                return False
            self.merged_texts.append(event.text)
            return True
        match last, event:
            case ThinkingDelta(signature=None), ThinkingDelta(text, None):
                self.merged_texts.append(text)
            case CallDelta(at), CallDelta(index, None, None, text, None) if at == index:
                self.merged_texts.append(text)
            case CallProgress(of), CallProgress(call_id, text) if of == call_id:
                self.merged_texts.append(text)
            case UsageDelta(), UsageDelta():
                self.queue[-1] = event
            case _:
                return False
        return True

    def popleft(self) -> Event:
        """Take the first event. Raises IndexError if there is none."""
        if len(self.queue) == 1:
            self._join_merged()
        return self.queue.popleft()

    def take_all(self) -> tuple[Event, ...]:
        """Take all events, in order."""
        self._join_merged()
        events = tuple(self.queue)
        self.queue.clear()
        return events

    def _join_merged(self) -> None:
        """Put the merged fragments into their event: one join, so that many merges cost little."""
        if not self.merged_texts:
            return
        last = self.queue[-1]
        more = "".join(self.merged_texts)
        self.merged_texts.clear()
        if isinstance(last, CallDelta):
            self.queue[-1] = replace(last, arguments=last.arguments + more)
        elif isinstance(last, TextDelta | ThinkingDelta | CallProgress):
            self.queue[-1] = replace(last, text=last.text + more)
