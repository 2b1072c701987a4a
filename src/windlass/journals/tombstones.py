"""Tombstones: what stays of a session that was deleted, so that a deletion is told from a loss.

A tombstone is a shared record, written in the transaction that deletes. It holds no content, and
its name is a keyed hash: with the database alone, no one can find out whose session it was. There
is one for the name of the session, and one for its first record, which no other session has. So a
name may be used again, and a copy of an erased session is recognised under any name.

A file signs its tombstones with the user's key, as all of its records. In Postgres a service signs.
"""

import hashlib
import hmac
import time

import msgspec

from windlass.core.errors import ConfigError
from windlass.ports.records import RecordProblem, Tombstone

KIND = "tombstone"


def make_tombstone(*, erased: bool) -> bytes:
    """Return the data of a tombstone for a deletion that happens now."""
    return msgspec.json.encode(Tombstone(round(time.time(), 3), erased))


def read_tombstone(data: bytes) -> Tombstone:
    """Return a tombstone."""
    return msgspec.json.decode(data, type=Tombstone)


def hash_without_key(journal: str, *values: object) -> str:
    """Return the hash of values where no key is given: by the random id of the journal."""
    text = msgspec.msgpack.encode(("erased", *values))
    return hmac.digest(journal.encode(), text, "sha256").hex()


def hash_signature(signature: str) -> str:
    """Return the hash of values that were signed with a key, whose signature is always the same."""
    return hashlib.sha256(signature.encode()).hexdigest()


def find_put_back(tombstone: Tombstone | None) -> list[RecordProblem]:
    """Return the problem of a session whose first record has a tombstone."""
    if tombstone is None or not tombstone.erased:
        return []
    what = f"this session was {tombstone.describe()}, and another program has put it back"
    return [RecordProblem(1, what)]


def erased_error(session: str, tombstone: Tombstone) -> ConfigError:
    """A session that was erased is to be imported."""
    return ConfigError(
        f"session {session!r} was {tombstone.describe()} in this journal, and is not brought back"
    )
