"""The order of a session's records, and the proof of it.

Each record is chained to the one before it by a hash, and the first one to the name of its session:
a record that was changed, taken out, or moved breaks the chain at its place. A store keeps the
number and the hash of the last record beside the session, so that a missing tail shows as well.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

import msgspec
from typing_extensions import override

from windlass.core.errors import JournalFailed, SessionBusy
from windlass.core.events import Fact
from windlass.journals.codec import BlobFetcher, UnreadableRecord, decode_fact

RecordRow = tuple[int, bytes, bytes]
"""A record as it is stored: its number, its bytes, its hash."""


class ChainLink(msgspec.Struct, frozen=True):
    """A place in the chain: the number of a record, and the hash up to and with it."""

    seq: int
    hash: bytes


class RecordProblem(msgspec.Struct, frozen=True):
    """What is wrong with a journal, and at which record."""

    seq: int
    what: str

    @override
    def __str__(self) -> str:
        return f"record {self.seq}: {self.what}"


def chain_root(session: str) -> ChainLink:
    """What the first record of a session is chained to."""
    return ChainLink(0, chain_hash(b"", session.encode()))


def chain_hash(previous: bytes, body: bytes) -> bytes:
    return blake2b(previous + body, digest_size=32).digest()


def check_order(session: str, last: int, facts: Sequence[Fact]) -> None:
    """Refuse facts that do not follow record `last` one by one."""
    first = facts[0].seq
    if [fact.seq for fact in facts] != list(range(first, first + len(facts))) or first < 1:
        numbers = ", ".join(str(fact.seq) for fact in facts)
        msg = f"session {session!r}: records must be numbered one by one from 1, not {numbers}"
        raise JournalFailed(msg)
    if first <= last:
        msg = f"session {session!r}: record {first} is taken; another driver writes this session"
        raise SessionBusy(msg)
    if first > last + 1:
        msg = f"session {session!r}: record {first} cannot follow record {last}"
        raise JournalFailed(msg)


def walk_chain(
    rows: Iterable[RecordRow], start: ChainLink, end: ChainLink, fetch: BlobFetcher
) -> Iterator[Fact | RecordProblem]:
    """The facts after `start` up to `end`, with a problem in place of each that is not as it was.

    After a problem the chain is taken up again at the next record, so that all of them are found.
    """
    expected, previous = start.seq + 1, start.hash
    for seq, body, stored in rows:
        if seq != expected:
            yield _missing_records(expected, seq - 1)
        elif chain_hash(previous, body) != stored:
            yield RecordProblem(seq, "it was changed or moved")
        else:
            yield _decode_record(seq, body, fetch)
        expected, previous = seq + 1, stored
    if expected <= end.seq:
        yield _missing_records(expected, end.seq)
    elif (expected - 1, previous) != (end.seq, end.hash):
        yield RecordProblem(expected - 1, "it is not where the session ends")


def _missing_records(first: int, last: int) -> RecordProblem:
    return RecordProblem(
        first, "it is missing" if first == last else f"it is missing, and up to {last}"
    )


def _decode_record(seq: int, body: bytes, fetch: BlobFetcher) -> Fact | RecordProblem:
    try:
        fact = decode_fact(body, fetch)
    except UnreadableRecord as error:
        return RecordProblem(seq, str(error))
    return fact if fact.seq == seq else RecordProblem(seq, f"it holds record {fact.seq}")
