"""Facts to bytes and back, and the proof that their order was not changed.

A record is one JSON object that begins with its version: `{"v":1,"type":"CallStarted",…}`.
Attachments and long texts are not part of the record. They are stored once, as blobs named by their
hash, and the record lists which of its content parts have to be filled in again:
`{"v":1,"blobs":[[0,"<hash>"]],"type":…}`.

Invariant: a record that was encoded once can be decoded forever. A new field with a default needs
nothing else. When a fact changes so that an old record would be misread, `VOCABULARY_VERSION` in
`core/events.py` goes up, and `UPCASTS` gets a function from the old version to the next.

Each record is chained to the one before it by a hash, and the first one to the name of its session.
A record that was changed, removed or moved breaks the chain at its place. A store also keeps the
number and the hash of the last record beside the session, so that missing records at the end are
noticed as well.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from itertools import chain, islice
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from windlass.core.errors import JournalFailed, SessionBusy
from windlass.core.events import (
    VOCABULARY_VERSION,
    CallFinished,
    CallLate,
    Fact,
    RunStarted,
    SteeringGiven,
)
from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    ContentPart,
    Message,
    TextPart,
    ToolResults,
    UserMessage,
)
from windlass.ports.records import RecordProblem

LARGE_TEXT_CHARS = 16_384
"""A text with more characters than this is stored as a blob."""

BLOB_NAME_CHARS = 64
BLOB_PREFIX_CHARS_MIN = 16
"""The shortest beginning of a blob name that is accepted in place of the whole name."""

RecordUpcast = Callable[[dict[str, Any]], dict[str, Any]]
UPCASTS: Mapping[int, RecordUpcast] = {}
"""For each old version, the function that turns its records into records of the next version."""

BlobFetcher = Callable[[str], bytes]
"""Returns the blob with this name; raises UnreadableRecord if it is missing or was changed."""


class UnreadableRecord(ValueError):
    """These bytes are not the record that was written."""


class FactRecord(NamedTuple):
    """A fact as it is stored: its JSON, and the blobs that belong to it by name."""

    body: bytes
    blobs: tuple[tuple[str, bytes], ...] = ()


class _RecordEnvelope(msgspec.Struct):
    """The fields of a record that are not fields of its fact."""

    v: int
    blobs: tuple[tuple[int, str], ...] = ()
    """The index of a content part, and the name of the blob that fills it."""


_PLAIN_PREFIX = b'{"v":%d,"type":' % VOCABULARY_VERSION
_encode_json = msgspec.json.Encoder().encode
_decode_envelope = msgspec.json.Decoder(_RecordEnvelope).decode
_decode_tree = msgspec.json.Decoder(dict[str, Any]).decode


@cache
def _fact_decoder() -> msgspec.json.Decoder[Fact]:
    """Made for the first record, because it takes longer to make than any module to import."""
    return msgspec.json.Decoder[Fact](Fact)


def encode_fact(fact: Fact) -> FactRecord:
    """Return the record of a fact; raises JournalFailed if it cannot be written as JSON."""
    try:
        content = _content_of(fact)
        if content and any(map(_is_stored_as_blob, content)):
            record = _encode_with_blobs(fact, content)
        else:
            record = FactRecord(b'{"v":%d,%b' % (VOCABULARY_VERSION, _encode_json(fact)[1:]))
        # A record that cannot be read back must not be written: it would make the session useless.
        _fact_decoder().decode(record.body)
        return record
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise JournalFailed(f"{type(fact).__name__} cannot be recorded as JSON: {error}") from error


def decode_fact(
    body: bytes, fetch: BlobFetcher, upcasts: Mapping[int, RecordUpcast] = UPCASTS
) -> Fact:
    """Return the fact of a record.

    Raises UnreadableRecord if the record is damaged, and JournalFailed if its version is newer than
    this program.
    """
    try:
        # Nearly all records are like this, and need no second look at their JSON.
        if body.startswith(_PLAIN_PREFIX):
            return _fact_decoder().decode(body)
        envelope = _decode_envelope(body)
        if envelope.v > VOCABULARY_VERSION:
            raise JournalFailed(
                f"a record was written by a newer Windlass; upgrade this one to read it "
                f"(the record has version {envelope.v}, this Windlass supports up to "
                f"{VOCABULARY_VERSION})"
            )
        if envelope.v < VOCABULARY_VERSION:
            version = envelope.v
            tree = _decode_tree(body)
            for step in range(version, VOCABULARY_VERSION):
                tree = upcasts[step](tree)
            body = _encode_json(tree)
        fact = _fact_decoder().decode(body)
        return _fill_blobs(fact, {index: fetch(name) for index, name in envelope.blobs})
    except UnreadableRecord:
        raise
    except (msgspec.MsgspecError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise UnreadableRecord(f"it is not a record: {error}") from error


def blob_name(data: bytes) -> str:
    """Return the name that these bytes are stored under: their hash in hexadecimal."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def is_blob_name(text: str) -> bool:
    """Whether a text can be the name of a blob, or a long enough beginning of one."""
    is_hexadecimal = not text.strip("0123456789abcdef")
    return is_hexadecimal and BLOB_PREFIX_CHARS_MIN <= len(text) <= BLOB_NAME_CHARS


def check_blob(name: str, data: bytes | None) -> bytes:
    """Return a blob that a record refers to; raises UnreadableRecord unless it is the right one."""
    if data is None:
        raise UnreadableRecord(f"its attachment {name} is missing")
    if blob_name(data) != name:
        raise UnreadableRecord(f"its attachment {name} was changed")
    return data


def _content_of(fact: Fact) -> tuple[ContentPart, ...]:
    """Return the parts of a fact that can be attachments or long texts."""
    if isinstance(fact, CallFinished | CallLate):
        return fact.result.content
    if isinstance(fact, RunStarted):
        return (*fact.prompt, *_earlier_content(fact.earlier)) if fact.earlier else fact.prompt
    if isinstance(fact, SteeringGiven):
        return fact.prompt
    return ()


def _earlier_content(messages: Iterable[Message]) -> Iterator[ContentPart]:
    """Yield the content of users and of tools, in the order in which `_refill_message` wants it."""
    for message in messages:
        if isinstance(message, UserMessage):
            yield from message.parts
        elif isinstance(message, ToolResults):
            yield from chain.from_iterable(item.result.content for item in message.items)


def _is_stored_as_blob(part: ContentPart) -> bool:
    if isinstance(part, TextPart):
        return len(part.text) > LARGE_TEXT_CHARS
    return part.data is not None


def _encode_with_blobs(fact: Fact, content: Iterable[ContentPart]) -> FactRecord:
    blobs: list[tuple[str, bytes]] = []
    blob_places: list[tuple[int, str]] = []
    emptied: list[ContentPart] = []
    for index, part in enumerate(content):
        if not _is_stored_as_blob(part):
            emptied.append(part)
            continue
        if isinstance(part, TextPart):
            data = part.text.encode()
            emptied.append(replace(part, text=""))
        else:
            data = part.data or b""
            emptied.append(replace(part, data=None))
        name = blob_name(data)
        blobs.append((name, data))
        blob_places.append((index, name))
    fields = _encode_json(_replace_content(fact, tuple(emptied)))[1:]
    body = b'{"v":%d,"blobs":%b,%b' % (VOCABULARY_VERSION, _encode_json(blob_places), fields)
    return FactRecord(body, tuple(blobs))


def _fill_blobs(fact: Fact, blobs: Mapping[int, bytes]) -> Fact:
    if not blobs:
        return fact
    content = list(_content_of(fact))
    for index, data in blobs.items():
        part = content[index]
        if isinstance(part, TextPart):
            content[index] = replace(part, text=data.decode())
        else:
            content[index] = replace(part, data=data)
    return _replace_content(fact, tuple(content))


def _replace_content(fact: Fact, content: tuple[ContentPart, ...]) -> Fact:
    if isinstance(fact, CallFinished | CallLate):
        return replace(fact, result=replace(fact.result, content=content))
    if isinstance(fact, RunStarted):
        size = len(fact.prompt)
        rest = iter(content[size:])
        earlier = tuple(_refill_message(message, rest) for message in fact.earlier)
        return replace(fact, prompt=content[:size], earlier=earlier)
    return replace(fact, prompt=content)


def _refill_message(message: Message, content: Iterator[ContentPart]) -> Message:
    """Return the message with the next parts of the content in place of its own."""
    if isinstance(message, UserMessage):
        return replace(message, parts=tuple(islice(content, len(message.parts))))
    if isinstance(message, AssistantMessage):
        return message
    items: list[CallOutcome] = []
    for item in message.items:
        parts = tuple(islice(content, len(item.result.content)))
        items.append(replace(item, result=replace(item.result, content=parts)))
    return ToolResults(tuple(items))


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


def first_hash(session: str, fact: Fact) -> bytes:
    """Return the hash of the first record of a session, which no other session has."""
    return chain_hash(chain_root(session).hash, encode_fact(fact).body)


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
