"""The order of a session's records, and the proof that it was not changed.

Each record is chained to the one before it by a hash, and the first one to the name of its session.
A record that was changed, removed or moved breaks the chain at its place. A store also keeps the
number and the hash of the last record beside the session, so that missing records at the end are
noticed as well.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

import msgspec

from windlass.core.errors import JournalFailed, SessionBusy
from windlass.core.events import Fact
from windlass.journals.codec import BlobFetcher, UnreadableRecord, decode_fact
from windlass.ports import RecordProblem

RecordRow = tuple[int, bytes, bytes]
"""A record as it is stored: its number, its bytes, its hash."""
EncodedRow = tuple[int, bytes, bytes, str]
"""Besides, how the bytes are encoded: empty for the JSON of the codec. The hash is of the bytes."""


class ChainLink(msgspec.Struct, frozen=True):
    """A place in the chain: the number of a record, and the hash of all records up to it."""

    seq: int
    hash: bytes


def chain_root(session: str) -> ChainLink:
    """Return the link that the first record of a session is chained to."""
    return ChainLink(0, chain_hash(b"", session.encode()))


def chain_hash(previous: bytes, body: bytes) -> bytes:
    """Return the hash of a record whose predecessor has the hash `previous`."""
    return blake2b(previous + body, digest_size=32).digest()


def check_order(session: str, last: int, facts: Sequence[Fact]) -> None:
    """Check that the facts are numbered one by one and follow record number `last`.

    Raises SessionBusy if the numbers are taken, which is how a second driver is stopped, and
    JournalFailed if they have gaps.
    """
    first = facts[0].seq
    if [fact.seq for fact in facts] != list(range(first, first + len(facts))) or first < 1:
        numbers = ", ".join(str(fact.seq) for fact in facts)
        raise JournalFailed(
            f"session {session!r}: records must be numbered one by one from 1, not {numbers}"
        )
    if first <= last:
        raise SessionBusy(
            f"session {session!r}: another driver has already written record {first}; "
            "wait until it ends, or watch the session"
        )
    if first > last + 1:
        raise JournalFailed(f"session {session!r}: record {first} cannot follow record {last}")


def walk_chain(
    rows: Iterable[RecordRow | EncodedRow], start: ChainLink, end: ChainLink, fetch: BlobFetcher
) -> Iterator[Fact | RecordProblem]:
    """Yield the facts after `start` up to `end`, and a problem in place of each damaged record.

    After a problem the chain is taken up again at the next record, so that all of them are found.
    """
    expected = start.seq + 1
    previous = start.hash
    for seq, body, stored, *encoding in rows:
        if seq != expected:
            yield _missing_records(expected, seq - 1)
        elif chain_hash(previous, body) != stored:
            yield RecordProblem(seq, "it was changed or moved")
        elif any(encoding):
            what = f"it is encoded as {encoding[0]!r}, which this version of Windlass cannot read"
            yield RecordProblem(seq, what)
        else:
            yield _decode_record(seq, body, fetch)
        expected = seq + 1
        previous = stored
    if expected <= end.seq:
        yield _missing_records(expected, end.seq)
    elif (expected - 1, previous) != (end.seq, end.hash):
        yield RecordProblem(expected - 1, "the session should not end with it")


def _missing_records(first: int, last: int) -> RecordProblem:
    if first == last:
        return RecordProblem(first, "it is missing")
    return RecordProblem(first, f"it is missing, and so are all records up to {last}")


def _decode_record(seq: int, body: bytes, fetch: BlobFetcher) -> Fact | RecordProblem:
    try:
        fact = decode_fact(body, fetch)
    except UnreadableRecord as error:
        return RecordProblem(seq, str(error))
    if fact.seq != seq:
        return RecordProblem(seq, f"it contains record {fact.seq}")
    return fact
