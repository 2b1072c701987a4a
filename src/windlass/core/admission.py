"""Who is next, and how many at once: a fair queue, and a window that learns what a server bears.

Both are the well-known means of networks. The queue is start-time fair queueing: each group gets
the same share of what is admitted, however much it asks for. The window is that of TCP: it begins
small, grows as long as all goes well, and is halved when the server refuses.
"""

import heapq
from collections.abc import Mapping
from itertools import count
from typing import Any, Generic, TypeVar

import msgspec

ItemT = TypeVar("ItemT")
PRIORITY_KEY = "windlass_priority"
"""The key of a run's priority in its context."""
WINDOW_START = 8.0
"""Requests at once to a server of which nothing is known yet."""
WINDOW_MIN = 1.0


def read_priority(context: Mapping[str, Any]) -> int:
    """Return the priority that a run was given; 0 if it was given none."""
    priority = context.get(PRIORITY_KEY, 0)
    return priority if isinstance(priority, int) else 0


class QueuePlace(msgspec.Struct, frozen=True, order=True):
    """The place of an item in a fair queue: by priority, then by its group's share, then by age."""

    rank: int
    start: float
    number: int


class FairQueue(Generic[ItemT]):
    """A queue that serves groups in turn, and a higher priority before all others."""

    def __init__(self) -> None:
        self._heap: list[tuple[QueuePlace, ItemT]] = []
        self._numbers = count()
        self._served_upto = 0.0
        self._group_ends: dict[str, float] = {}
        """Up to where each group has asked, on the scale of what was served."""

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, group: str, item: ItemT, priority: int = 0) -> None:
        """Add an item. Of two groups, the one that had less comes first."""
        start = max(self._served_upto, self._group_ends.get(group, 0.0))
        self._group_ends[group] = start + 1.0
        place = QueuePlace(-priority, start, next(self._numbers))
        heapq.heappush(self._heap, (place, item))

    def peek(self) -> ItemT:
        """Return the next item. Raises IndexError if there is none."""
        return self._heap[0][1]

    def pop(self) -> ItemT:
        """Remove the next item and return it. Raises IndexError if there is none."""
        place, item = heapq.heappop(self._heap)
        self._served_upto = max(self._served_upto, place.start)
        if not self._heap:
            # The queue is empty, so no group is ahead of another.
            self._group_ends.clear()
            self._served_upto = 0.0
        return item

    def items(self) -> list[ItemT]:
        """Return all items, in no particular order."""
        return [item for _, item in self._heap]


class RequestWindow:
    """How many requests may be under way at once."""

    def __init__(self, most: int | None = None) -> None:
        """Make a window that never allows more than `most` requests."""
        self._most = float("inf") if most is None else float(most)
        self._size = min(WINDOW_START, self._most)
        self._careful_from = float("inf")
        """The size from which on it grows slowly: half of the one that was refused."""
        self._cut_again_at = 0.0
        self.in_flight = 0

    @property
    def size(self) -> int:
        return int(self._size)

    @property
    def has_room(self) -> bool:
        return self.in_flight < int(self._size)

    def note_accepted(self) -> None:
        """Note that the server took a request. A window that is hardly used does not grow."""
        if self.in_flight * 2 < self._size:
            return
        step = 1.0 if self._size < self._careful_from else 1.0 / self._size
        self._size = min(self._most, self._size + step)

    def note_refused(self, now: float, wait_s: float) -> None:
        """Halve the window, once for all the requests that were under way together."""
        if now < self._cut_again_at:
            return
        self._careful_from = max(WINDOW_MIN, min(self._size, float(self.in_flight)) / 2)
        self._size = self._careful_from
        self._cut_again_at = now + wait_s
