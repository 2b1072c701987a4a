"""What every store does with shared records: it checks them, and says why one is refused."""

from windlass.core.errors import ConfigError, JournalCorrupt, RecordConflict
from windlass.core.text_clip import printable_line

RECORD_BYTES_MAX = 1_000_000
"""Of the data of one record: it is a small document, and is read as a whole."""
NAME_CHARS_MAX = 1_000
"""Of a kind and of a name."""
ANCHORED_KINDS = frozenset(("login", "quota", "schedule", "token", "webhook"))
"""Kinds of records that give a right, or take one away: an old one must not count again."""
SIGNED_KINDS = ANCHORED_KINDS | {"engine-schedule"}
"""Kinds of records that count in Postgres only if a service signed them, once keys are given."""
PAGE_RECORDS_MAX = 1_000
"""Records that one call of `list_records` returns, at most."""


def check_record_key(kind: str, name: str) -> None:
    """Raise ConfigError if no store could keep a record under this kind and name."""
    for what, text in (("kind", kind), ("name", name)):
        if not text or len(text) > NAME_CHARS_MAX or "\0" in text or not _is_unicode(text):
            raise ConfigError(
                f"{printable_line(text)!r} cannot be the {what} of a shared record: it must have 1 "
                f"to {NAME_CHARS_MAX} characters, and no NUL among them"
            )


def check_record_data(kind: str, name: str, data: bytes) -> None:
    """Raise ConfigError if the data is too long for a record."""
    if len(data) > RECORD_BYTES_MAX:
        raise ConfigError(
            f"{printable_line(kind)} {printable_line(name)!r}: {len(data):,} bytes are too long "
            f"for a shared record, which may have {RECORD_BYTES_MAX:,}"
        )


def clamp_page(limit: int) -> int:
    """Return how many records a page has."""
    return max(0, min(limit, PAGE_RECORDS_MAX))


def record_conflict_error(kind: str, name: str, version: int) -> RecordConflict:
    """The record is not the one that the caller has read."""
    named = f"{printable_line(kind)} {printable_line(name)!r}"
    if not version:
        return RecordConflict(f"{named} exists already; read it before you change it")
    return RecordConflict(f"{named} was changed or deleted by somebody else; read it again")


def forged_record_error(location: str, kind: str, name: str) -> JournalCorrupt:
    """A record in a file was not written with the user's key."""
    return JournalCorrupt(
        f"{location}: {printable_line(kind)} {printable_line(name)!r} is not signed with this "
        "user's key, and is not used: another program wrote it, or the file comes from another "
        "user; if you moved the file here yourself, run `windlass sessions verify --accept`"
    )


def old_record_error(location: str, kind: str, name: str) -> JournalCorrupt:
    """A record in a file is not the last one that was written with the user's key."""
    return JournalCorrupt(
        f"{location}: {printable_line(kind)} {printable_line(name)!r} is not the last one of this "
        "name, and is not used: another program put it back after it was changed or deleted; if "
        "you restored the file yourself, run `windlass sessions verify --accept`"
    )


def _is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8: half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
