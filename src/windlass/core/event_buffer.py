"""A queue of events in which adjacent fragments can be merged.

Invariant: merging loses nothing but the boundaries between fragments. Events that are not fragments
are kept, however many they are.
"""

from collections import deque

from msgspec.structs import replace

from windlass.core.events import (
    CallDelta,
    CallProgress,
    Event,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)


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
