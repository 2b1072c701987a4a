"""What this process was acknowledged besides records of runs, kept to do it again after a failover.

Invariant: a repetition changes only what the failover set back. A record is changed again only if
it is there in a version that this process replaced; a message has its number, or a fact names it; a
session is deleted again only if it is the same one. Deletions, revocations and changes of rights
come first, because until then a right counts that was taken away.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from windlass.core.errors import NothingToDo, QuestionDecided, WindlassError
from windlass.core.mail import MailLane
from windlass.journals.postgres.boot_clock import boot_time
from windlass.journals.postgres.history import TAIL_S
from windlass.journals.postgres.mail import ServerLetter
from windlass.journals.record_rules import SIGNED_KINDS
from windlass.logs import get_logger

T = TypeVar("T")
KEPT_MAX = 10_000
"""Of each sort. Beyond that the oldest are dropped."""
ERASURE_KIND = "erasure"
REPEATED_KINDS = (SIGNED_KINDS - {"tombstone"}) | {ERASURE_KIND}
"""Kinds of records that give or take rights, and orders to erase a caller."""
_log = get_logger(__name__)


@dataclass(slots=True)
class KeptRecord:
    """The last change of a record, and the versions that it and those before it replaced."""

    kind: str
    name: str
    data: bytes | None
    """None if it was deleted."""
    first: bytes | None
    """What was written first: an order to erase begins again with it."""
    version: int
    at: float
    replaced: set[int] = field(default_factory=set[int])


class KeptLetter(NamedTuple):
    """A message that was accepted."""

    letter: ServerLetter
    lane: MailLane
    number: int
    at: float


class KeptDeletion(NamedTuple):
    """A session that was deleted, by the hash of its first record."""

    session: str
    first: bytes
    erase: bool
    at: float


@dataclass(slots=True, kw_only=True)
class Repeaters:
    """How a journal does something again."""

    records: Callable[[KeptRecord], Awaitable[None]]
    letters: Callable[[KeptLetter], Awaitable[None]]
    deletions: Callable[[KeptDeletion], Awaitable[None]]


class KeptChanges:
    """What one process has changed in the last minute."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], KeptRecord] = {}
        self._letters: dict[str, KeptLetter] = {}
        self._deletions: dict[bytes, KeptDeletion] = {}

    def keep_record(
        self, place: tuple[str, str], data: bytes | None, replaced: int, version: int
    ) -> None:
        """Keep a change of a record that had the version `replaced`, or its deletion."""
        if place[0] not in REPEATED_KINDS:
            return
        kept = self._records.pop(place, None)
        if kept is None:
            kept = KeptRecord(*place, data, data, version, 0.0)
        kept.data, kept.version, kept.at = data, version, boot_time()
        kept.replaced.add(replaced)
        self._records[place] = kept
        _drop_old(self._records)

    def keep_letter(self, letter: ServerLetter, lane: MailLane, number: int) -> None:
        """Keep a message that was accepted under a number."""
        self._letters.setdefault(letter.nonce, KeptLetter(letter, lane, number, boot_time()))
        _drop_old(self._letters)

    def keep_deletion(self, session: str, first: bytes, *, erase: bool) -> None:
        """Keep that a session was deleted."""
        self._deletions[first] = KeptDeletion(session, first, erase, boot_time())
        _drop_old(self._deletions)

    async def repeat(self, repeaters: Repeaters) -> None:
        """Do everything again that a failover may have undone."""
        for kept in (self._records, self._deletions, self._letters):
            _drop_old(kept)
        for record in tuple(self._records.values()):
            await _try(repeaters.records, record, f"{record.kind} {record.name}")
        for deletion in tuple(self._deletions.values()):
            await _try(repeaters.deletions, deletion, f"the deletion of {deletion.session}")
        for letter in tuple(self._letters.values()):
            await _try(repeaters.letters, letter, f"a message to {letter.letter.session}")


def _drop_old(kept: dict[Any, Any]) -> None:
    limit = boot_time() - TAIL_S
    while kept:
        oldest = next(iter(kept))
        if kept[oldest].at > limit and len(kept) <= KEPT_MAX:
            return
        del kept[oldest]


async def _try(repeat: Callable[[T], Awaitable[None]], item: T, what: str) -> None:
    try:
        await repeat(item)
    except (NothingToDo, QuestionDecided):
        pass  # It was done again in the meantime, or its run is gone.
    except WindlassError as error:
        _log.error("%s could not be repeated after the failover: %s", what, error)
