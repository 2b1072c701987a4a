"""Export and import: a session as the lines of a file.

A file holds one JSON object per line. The first line says what the file is. Then come the records,
each exactly as the codec wrote it and with its hash in the chain; an attachment has a line of its
own before the first record that uses it. The last line says where the session ends. So a line that
was changed, moved or removed is noticed, and so is a missing end.

Both need a journal that can read and append, and nothing else.
"""

import base64
import binascii
import time
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from importlib import metadata
from typing import IO

import msgspec

from windlass.core.errors import (
    ConfigError,
    IllegalFact,
    JournalCorrupt,
    JournalFailed,
    SessionBusy,
)
from windlass.core.events import (
    AttemptStarted,
    Fact,
    PromptWithdrawn,
    RunQueued,
    SessionImported,
)
from windlass.core.fold.control import mail_places
from windlass.core.fold.run import fold
from windlass.core.messages import Charge
from windlass.core.session_summary import check_session, row_of
from windlass.journals.codec import (
    ChainLink,
    UnreadableRecord,
    chain_hash,
    chain_root,
    check_blob,
    decode_fact,
    encode_fact,
    first_hash,
)
from windlass.journals.completing import complete_journal
from windlass.journals.forking import has_waiting_prompts
from windlass.journals.tombstones import erased_error
from windlass.journals.wording import no_session_error, session_exists_error
from windlass.ports.journals import GivenJournal, Journal

FILE_FORMAT = "windlass-session"
FILE_VERSION = 1
"""The version of the file. The records in it have their own version."""
LINE_BYTES_MAX = 256 * 2**20
"""Of one line, which may hold an attachment."""
NAME_CHARS_MAX = 200
NUMBER_MAX = 2**53
"""Of a message, of tokens, of money: more than any run has, and less than a store can hold."""
CLOCK_AHEAD_S_MAX = 86_400.0
"""How far the clock of the other machine may be ahead of ours."""

ProgressCallback = Callable[[int], None]
"""Is called with the number of records that are done."""


class _ArchiveHead(msgspec.Struct, forbid_unknown_fields=True):
    """The first line: what the file is."""

    format: str
    version: int
    session: str
    windlass: str = ""


class _ArchiveLine(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Any other line: a record, an attachment, or the end."""

    hash: str
    record: msgspec.Raw = msgspec.Raw(b"")
    blob: str | None = None
    end: int | None = None


_encode_json = msgspec.json.Encoder().encode
_decode_head = msgspec.json.Decoder(_ArchiveHead).decode
_decode_line = msgspec.json.Decoder(_ArchiveLine).decode


# ── export ───────────────────────────────────────────────────────────────────


async def export_session(
    journal: GivenJournal,
    session: str,
    write: Callable[[bytes], object],
    progress: ProgressCallback | None = None,
) -> int:
    """Write a session line by line with `write`; returns how many records it has.

    Raises ConfigError if there is no such session.
    """
    facts = await journal.read(check_session(session))
    if not facts:
        raise await no_session_error(complete_journal(journal), session)
    for records_done, line in archive_lines(session, facts):
        write(line + b"\n")
        if progress is not None:
            progress(records_done)
    return len(facts)


def archive_lines(session: str, facts: Sequence[Fact]) -> Iterator[tuple[int, bytes]]:
    """Yield each line, with the number of records up to it."""
    yield 0, _encode_json(_ArchiveHead(FILE_FORMAT, FILE_VERSION, session, _windlass_version()))
    last = chain_root(session)
    written = set[str]()
    for fact in facts:
        record = encode_fact(fact)
        for name, data in record.blobs:
            if name not in written:
                written.add(name)
                line = _ArchiveLine(name, blob=base64.b64encode(data).decode())
                yield last.seq, _encode_json(line)
        last = ChainLink(fact.seq, chain_hash(last.hash, record.body))
        yield last.seq, _encode_json(_ArchiveLine(last.hash.hex(), msgspec.Raw(record.body)))
    yield last.seq, _encode_json(_ArchiveLine(last.hash.hex(), end=last.seq))


def _windlass_version() -> str:
    try:
        return metadata.version("windlass")
    except metadata.PackageNotFoundError:
        return ""


# ── import ───────────────────────────────────────────────────────────────────


async def import_session(
    journal: GivenJournal,
    file: IO[bytes],
    into: str | None = None,
    progress: ProgressCallback | None = None,
) -> str:
    """Append a session from an exported file to a journal; returns the session's name.

    The whole file is checked before any of it is written, and it is written in one append: never
    without the fact `SessionImported` behind it, which makes void what the file says was allowed.
    With another name (`into`), the records are chained again under that name.

    Raises JournalCorrupt, with the number of the line, if the file is not as it was exported,
    JournalFailed if it is of a newer version, and ConfigError if the session exists already, was
    erased here, or has a name that cannot be shown on one line.
    """
    journal = complete_journal(journal)
    reader = _ArchiveReader(file)
    session = into or reader.session
    _check_name(session)
    if await has_waiting_prompts(journal, session):
        raise session_exists_error(session)
    facts = list(reader.read_facts())
    if facts:
        await _refuse_erased(journal, reader.session, facts[0])
    facts.append(_mark_import(session, facts, reader.session))
    try:
        await journal.append(session, facts, row_of(fold(session, facts)))
    except SessionBusy:
        raise session_exists_error(session) from None
    if progress is not None:
        progress(len(facts))
    return session


async def _refuse_erased(journal: Journal, session: str, first: Fact) -> None:
    """Raise ConfigError if the session of a file was erased here, whatever it is called now."""
    tombstone = await journal.find_tombstone(session, first_hash(session, first))
    if tombstone is not None and tombstone.erased:
        raise erased_error(session, tombstone)


def _check_name(session: str) -> None:
    if not session or len(session) > NAME_CHARS_MAX or not session.isprintable():
        raise ConfigError(
            "the name of the session in the file is too long or cannot be shown: choose another "
            "name for it (`--as NAME`, or `into=`)"
        )


def _mark_import(session: str, facts: Sequence[Fact], source: str) -> SessionImported:
    """Return the end fact of an imported session. Raises JournalCorrupt if it is not a session."""
    try:
        state = fold(session, facts)
    except IllegalFact as error:
        raise JournalCorrupt(f"the file is not a session: {error}") from None
    if state.at > time.time() + CLOCK_AHEAD_S_MAX:
        # Time would stop, and with it the limits on it.
        raise JournalCorrupt(
            "the file is not a session of today: its records are from the future; check the clock "
            "of this machine and of the one that exported it"
        )
    return SessionImported(source, state.unfinished_calls, seq=state.seq + 1, at=state.at)


def _list_numbers(fact: Fact) -> Iterator[int | Decimal]:
    """Yield what a fact adds to the accounts of its session: spending, and numbers of messages.

    A negative charge would pay for what comes after it, in spite of every limit.
    """
    yield from (number for _, number in mail_places(fact))
    if isinstance(fact, RunQueued):
        yield fact.mail
    if isinstance(fact, PromptWithdrawn):
        yield fact.prompt
    charges: list[Charge | None] = [getattr(fact, "charge", None), *getattr(fact, "charges", ())]
    for charge in charges:
        if charge is not None and charge.usage is not None:
            usage = charge.usage
            yield from (usage.input, usage.output, usage.cache_read, usage.cache_write)
            yield usage.reasoning
        if charge is not None and charge.usd is not None:
            yield charge.usd
    if isinstance(fact, AttemptStarted):
        yield from (fact.reserved.input, fact.reserved.output, fact.reserved.usd or 0)


class _ArchiveReader:
    """Reads a file from the first line to the last, and checks every line."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._file.seek(0)
        self._line_number = 0
        self._blob_offsets: dict[str, int] = {}
        """Where the line of each attachment begins. The attachments are not kept in memory."""
        self.session = self._read_head().session

    def _read_head(self) -> _ArchiveHead:
        try:
            head = _decode_head(self._next_line())
        except (msgspec.MsgspecError, RecursionError):
            head = None
        if head is None or head.format != FILE_FORMAT:
            raise self._corrupt_error("this is not an exported session")
        if head.version > FILE_VERSION:
            raise JournalFailed(
                "the file was exported by a newer Windlass; upgrade this one to import it "
                f"(the file has version {head.version}, this Windlass supports {FILE_VERSION})"
            )
        return head

    def read_facts(self) -> Iterator[Fact]:
        """Yield the facts in order; raises JournalCorrupt at the first line that is not right."""
        last = chain_root(self.session)
        while True:
            offset = self._file.tell()
            line = self._read_line()
            if line.end is not None:
                break
            if line.blob is not None:
                self._blob_offsets[line.hash] = offset
                self._decode_attachment(line)
                continue
            body = bytes(line.record)
            last = ChainLink(last.seq + 1, chain_hash(last.hash, body))
            if last.hash.hex() != line.hash:
                raise self._corrupt_error(f"record {last.seq} was changed, moved or removed")
            yield self._decode_record(last.seq, body)
        if (line.end, line.hash) != (last.seq, last.hash.hex()):
            raise self._corrupt_error(f"the session ends at record {line.end}, not at {last.seq}")
        if self._file.readline(LINE_BYTES_MAX).strip():
            raise self._corrupt_error("there are more lines after the end of the session")

    def _decode_record(self, seq: int, body: bytes) -> Fact:
        try:
            fact = decode_fact(body, self._fetch_blob)
        except UnreadableRecord as error:
            raise self._corrupt_error(f"record {seq} cannot be read: {error}") from None
        except RecursionError:
            raise self._corrupt_error(f"record {seq} is nested too deeply") from None
        if fact.seq != seq:
            raise self._corrupt_error(f"record {seq} says that it is record {fact.seq}")
        if not all(0 <= number <= NUMBER_MAX for number in _list_numbers(fact)):
            raise self._corrupt_error(f"record {seq} counts less than nothing, or far too much")
        return fact

    def _fetch_blob(self, name: str) -> bytes:
        offset = self._blob_offsets.get(name)
        if offset is None:
            return check_blob(name, None)
        next_line_offset = self._file.tell()
        self._file.seek(offset)
        line = _decode_line(self._file.readline())
        self._file.seek(next_line_offset)
        return self._decode_attachment(line)

    def _decode_attachment(self, line: _ArchiveLine) -> bytes:
        try:
            return check_blob(line.hash, base64.b64decode(line.blob or "", validate=True))
        except (UnreadableRecord, binascii.Error):
            raise self._corrupt_error(f"attachment {line.hash} was changed") from None

    def _read_line(self) -> _ArchiveLine:
        try:
            return _decode_line(self._next_line())
        except msgspec.MsgspecError as error:
            raise self._corrupt_error(f"this is not a line of a session: {error}") from None
        except RecursionError:
            raise self._corrupt_error("it is nested too deeply") from None

    def _next_line(self) -> bytes:
        line = self._file.readline(LINE_BYTES_MAX + 1)
        self._line_number += 1
        if len(line) > LINE_BYTES_MAX:
            raise self._corrupt_error(f"it is longer than {LINE_BYTES_MAX} bytes")
        if not line.strip():
            raise self._corrupt_error("the file ends before the session does")
        return line

    def _corrupt_error(self, message: str) -> JournalCorrupt:
        return JournalCorrupt(f"line {self._line_number}: {message}; export the session again")
