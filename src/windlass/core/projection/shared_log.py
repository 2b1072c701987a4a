"""An append-only sequence that shares its past, for snapshots that cost one list append.

Appending returns a new log and leaves the old one as it was. All logs that grew out of one another
share one list, and each knows how much of the list belongs to it.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar, cast, final, overload

from typing_extensions import override

ItemT = TypeVar("ItemT")


@final
class _Items(list[ItemT]):
    """What logs share. Only a log may hold it."""


@final
class SharedLog(Sequence[ItemT], Generic[ItemT]):
    """Items in order. None is ever changed or removed."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: Sequence[ItemT] = ()) -> None:
        self._items = items if isinstance(items, _Items) else _Items(items)
        self._length = len(self._items)

    def append(self, *items: ItemT) -> "SharedLog[ItemT]":
        """Return a log with these items at its end."""
        shared = self._items
        # Only the longest log may extend the list. A log that branches off takes a copy.
        if self._length != len(shared):
            shared = _Items(shared[: self._length])
        shared.extend(items)
        return SharedLog(shared)

    def is_beginning_of(self, other: "SharedLog[ItemT]") -> bool:
        """Whether the other log grew out of this one, without comparing their items."""
        return self.past_id == other.past_id and len(self) <= len(other)

    @property
    def past_id(self) -> int:
        """What names the list that logs share; it lives as long as one of them."""
        return id(self._items)

    def since(self, start: int) -> Iterator[ItemT]:
        """Yield the items from an index on, at the cost of those items alone."""
        return (self._items[at] for at in range(start, self._length))

    @overload
    def __getitem__(self, index: int) -> ItemT: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ItemT]: ...
    @override
    def __getitem__(self, index: int | slice) -> ItemT | Sequence[ItemT]:
        if isinstance(index, slice):
            return [self._items[at] for at in range(self._length)[index]]
        return self._items[range(self._length)[index]]

    @override
    def __len__(self) -> int:
        return self._length

    @override
    def __iter__(self) -> Iterator[ItemT]:
        return islice(self._items, self._length)

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SharedLog):
            return False
        return list(self) == list(cast("SharedLog[ItemT]", other))

    @override
    def __hash__(self) -> int:
        return hash(tuple(self))

    @override
    def __repr__(self) -> str:
        return f"SharedLog({list(self)!r})"


@final
class JoinedLog(Sequence[ItemT], Generic[ItemT]):
    """A log and the few items after it as one sequence, without copying them."""

    __slots__ = ("_log", "_tail")

    def __init__(self, log: SharedLog[ItemT], tail: tuple[ItemT, ...]) -> None:
        self._log = log
        self._tail = tail

    @overload
    def __getitem__(self, index: int) -> ItemT: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ItemT]: ...
    @override
    def __getitem__(self, index: int | slice) -> ItemT | Sequence[ItemT]:
        if isinstance(index, slice):
            return [self[at] for at in range(len(self))[index]]
        at = range(len(self))[index]
        if at < len(self._log):
            return self._log[at]
        return self._tail[at - len(self._log)]

    @override
    def __len__(self) -> int:
        return len(self._log) + len(self._tail)

    @override
    def __iter__(self) -> Iterator[ItemT]:
        yield from self._log
        yield from self._tail
