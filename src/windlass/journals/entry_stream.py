"""A numbered stream beside the sessions of a fact store, and what its entries add up to.

A stream is a session with a reserved name, whose facts are entries (`EntryKept`).

Invariant: an entry is decided from all entries before it. The store refuses a number that is taken;
then the new entries are read, and the next one is decided again.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from windlass.core.errors import JournalCorrupt, SessionBusy
from windlass.core.events import EntryKept, Fact
from windlass.core.session_summary import SessionSummary
from windlass.journals.mail_book import FactsOf
from windlass.ports.journals import FactStore

STREAM_PREFIX = "windlass stream "
"""What the names of streams begin with. No session may have such a name."""
DecodeEntry = Callable[[str], object]
"""Reads an entry. Raises msgspec.MsgspecError if it cannot."""
EntryT = TypeVar("EntryT")


class EntryState(Protocol):
    """What the entries of a stream add up to."""

    def apply(self, entry: Any, /) -> None:  # noqa: ANN401 - each state has entries of its own
        """Add an entry."""
        ...


StateT = TypeVar("StateT", bound=EntryState)


class EntryStream(Generic[StateT]):
    """A numbered stream of a fact store, and what its entries add up to."""

    def __init__(self, store: FactStore, name: str, state: StateT, decode: DecodeEntry) -> None:
        self._store = store
        self._name = STREAM_PREFIX + name
        self._state = state
        self._decode_entry = decode
        self._seq = 0
        # Event loops in several threads may share a journal.
        self._mutex = Lock()

    async def read(self) -> StateT:
        """Return what all entries add up to."""
        facts = await self._store.read(self._name, self._seq)
        with self._mutex:
            for fact in facts:
                if fact.seq == self._seq + 1:
                    self._apply(self._decode(fact))
        return self._state

    async def add(
        self,
        plan: Callable[[StateT, FactsOf], EntryT | None],
        now: Callable[[], float],
        sessions: Collection[str] = (),
    ) -> EntryT | None:
        """Add the entry that `plan` makes of the state, if any, and of the facts of `sessions`.

        It is called again if another entry came first, and what it raises is raised here.
        """
        while True:
            await self.read()
            seq = self._seq
            facts = {name: await self._store.read(name) for name in sessions}
            with self._mutex:
                if seq != self._seq:
                    # An entry came in the meantime, and may be decided from later facts than these.
                    continue
                entry = plan(self._state, facts.__getitem__)
            if entry is None:
                return None
            kept = EntryKept(msgspec.json.encode(entry).decode(), seq=seq + 1, at=now())
            with suppress(SessionBusy):
                await self._store.append(self._name, [kept], SessionSummary(self._name))
                with self._mutex:
                    if seq == self._seq:
                        self._apply(entry)
                return entry

    def _apply(self, entry: object) -> None:
        self._state.apply(entry)
        self._seq += 1

    def _decode(self, fact: Fact) -> object:
        try:
            if isinstance(fact, EntryKept):
                return self._decode_entry(fact.body)
        except msgspec.MsgspecError as error:
            raise self._damaged(fact) from error
        raise self._damaged(fact)

    def _damaged(self, fact: Fact) -> JournalCorrupt:
        return JournalCorrupt(
            f"{self._name!r}: record {fact.seq} is not an entry of this stream; restore the "
            "journal from a backup"
        )
