"""The last appends of one event loop, kept for as long as a failover could have lost them."""

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import NamedTuple

from windlass.journals.postgres.boot_clock import boot_time
from windlass.journals.postgres.history import TAIL_S
from windlass.journals.session_rows import PendingAppend

TAIL_BYTES_MAX = 32_000_000
"""Of all sessions. Beyond that the oldest are dropped: a run that lost them is paused."""


class KeptAppend(NamedTuple):
    """An append that the server has acknowledged."""

    append: PendingAppend
    before: bytes
    """The hash of the record before it."""
    after: bytes
    """The hash of its last record."""
    epoch: int
    """Of the lease that it was written with; 0 without one."""
    at: float


class KeptTails:
    """Appends by session, in the order in which they were written."""

    def __init__(self) -> None:
        self._tails: dict[str, deque[KeptAppend]] = {}
        self._order: OrderedDict[int, KeptAppend] = OrderedDict()
        self._size_bytes = 0

    def keep(self, append: PendingAppend, before: bytes, after: bytes, epoch: int) -> None:
        """Keep an append that was acknowledged just now."""
        kept = KeptAppend(append, before, after, epoch, boot_time())
        tail = self._tails.get(append.session)
        if tail and tail[-1].after != before:
            self.forget(append.session)  # Another process has written in between.
        self._tails.setdefault(append.session, deque()).append(kept)
        self._order[id(kept)] = kept
        self._size_bytes += append.size_bytes
        self._drop_old()

    def sessions(self) -> list[str]:
        """Return the sessions of which something is kept."""
        self._drop_old()
        return [*self._tails]

    def of_session(self, session: str) -> Sequence[KeptAppend]:
        """Return what is kept of a session, in order."""
        return tuple(self._tails.get(session, ()))

    def last_seq(self, session: str) -> int:
        """Return the number of the last record that is kept; 0 without one."""
        tail = self._tails.get(session)
        return tail[-1].append.facts[-1].seq if tail else 0

    def forget(self, session: str) -> None:
        """Drop what is kept of a session: it was deleted, or continued without these records."""
        for kept in self._tails.pop(session, ()):
            del self._order[id(kept)]
            self._size_bytes -= kept.append.size_bytes

    def _drop_old(self) -> None:
        limit = boot_time() - TAIL_S
        while self._order:
            kept = next(iter(self._order.values()))
            if kept.at > limit and self._size_bytes <= TAIL_BYTES_MAX:
                return
            session = kept.append.session
            tail = self._tails[session]
            tail.popleft()
            if not tail:
                del self._tails[session]
            del self._order[id(kept)]
            self._size_bytes -= kept.append.size_bytes
