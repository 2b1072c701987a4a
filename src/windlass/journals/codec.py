"""Facts to bytes and back.

A record is one JSON object with its version in front: `{"v":1,"type":"CallStarted",…}`. Attachments
and long texts leave the record and are kept once, under their hash; the record says which parts of
its content to fill again: `{"v":1,"blobs":[[0,"<hash>"]],"type":…}`.

The law: what was encoded once is decoded for ever. When the vocabulary changes so that an old
record would be misread, its version grows and `UPCASTS` learns the way from the old one.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from windlass.core.errors import JournalFailed
from windlass.core.events import (
    VOCABULARY_VERSION,
    CallFinished,
    CallLate,
    Fact,
    RunStarted,
    SteeringGiven,
)
from windlass.core.messages import ContentPart, TextPart

LARGE_TEXT_CHARS = 16_384
"""Characters from which on a text is kept apart from its record."""

BLOB_NAME_CHARS = 64
BLOB_PREFIX_CHARS_MIN = 16
"""How much of a name tells it from all others."""

RecordUpcast = Callable[[dict[str, Any]], dict[str, Any]]
UPCASTS: Mapping[int, RecordUpcast] = {}
"""For each old version, what turns a record of it into one of the next version."""

BlobFetcher = Callable[[str], bytes]
"""Gives the bytes that are kept under a hash; raises Unreadable when they are not there."""


class UnreadableRecord(ValueError):
    """These bytes are not the record that was written."""


class FactRecord(NamedTuple):
    """A fact as it is kept."""

    body: bytes
    blobs: tuple[tuple[str, bytes], ...] = ()


class _RecordEnvelope(msgspec.Struct):
    """What stands around a fact in its record."""

    v: int
    blobs: tuple[tuple[int, str], ...] = ()


_PLAIN_PREFIX = b'{"v":%d,"type":' % VOCABULARY_VERSION
_encode_json = msgspec.json.Encoder().encode
_decode_fact_json = msgspec.json.Decoder[Fact](Fact).decode
_decode_envelope = msgspec.json.Decoder(_RecordEnvelope).decode
_decode_tree = msgspec.json.Decoder(dict[str, Any]).decode


def encode_fact(fact: Fact) -> FactRecord:
    """The record of a fact; raises JournalFailed for what no JSON can hold."""
    try:
        content = _content_of(fact)
        if content and any(map(_is_kept_as_blob, content)):
            record = _encode_with_blobs(fact, content)
        else:
            record = FactRecord(b'{"v":%d,%b' % (VOCABULARY_VERSION, _encode_json(fact)[1:]))
        _decode_fact_json(record.body)  # What cannot be read back is never written.
        return record
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        msg = f"{type(fact).__name__} cannot be written down: {error}"
        raise JournalFailed(msg) from error


def decode_fact(
    body: bytes, fetch: BlobFetcher, upcasts: Mapping[int, RecordUpcast] = UPCASTS
) -> Fact:
    """The fact of a record. Raises Unreadable for damage, JournalFailed for a newer version."""
    try:
        if body.startswith(_PLAIN_PREFIX):
            return _decode_fact_json(body)
        envelope = _decode_envelope(body)
        if envelope.v > VOCABULARY_VERSION:
            msg = f"a record has version {envelope.v}, this Windlass knows {VOCABULARY_VERSION}: upgrade it"
            raise JournalFailed(msg)
        fact = _decode_fact_json(
            body if envelope.v == VOCABULARY_VERSION else _upcast_record(body, envelope.v, upcasts)
        )
        return _fill_blobs(fact, {at: fetch(blob) for at, blob in envelope.blobs})
    except UnreadableRecord:
        raise
    except (msgspec.MsgspecError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise UnreadableRecord(f"it is no record: {error}") from error


def blob_name(data: bytes) -> str:
    """The hash that these bytes are kept under."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def is_blob_name(text: str) -> bool:
    """Whether a text can be the name of kept bytes, or as much of one as tells it from others."""
    return BLOB_PREFIX_CHARS_MIN <= len(text) <= BLOB_NAME_CHARS and not text.strip(
        "0123456789abcdef"
    )


def _upcast_record(body: bytes, version: int, upcasts: Mapping[int, RecordUpcast]) -> bytes:
    tree = _decode_tree(body)
    for step in range(version, VOCABULARY_VERSION):
        tree = upcasts[step](tree)
    return _encode_json(tree)


def _content_of(fact: Fact) -> tuple[ContentPart, ...]:
    """Where a fact can hold attachments and long texts."""
    if isinstance(fact, CallFinished | CallLate):
        return fact.result.content
    return fact.prompt if isinstance(fact, RunStarted | SteeringGiven) else ()


def _is_kept_as_blob(part: ContentPart) -> bool:
    return (
        len(part.text) > LARGE_TEXT_CHARS if isinstance(part, TextPart) else part.data is not None
    )


def _encode_with_blobs(fact: Fact, content: Iterable[ContentPart]) -> FactRecord:
    blobs: list[tuple[str, bytes]] = []
    places: list[tuple[int, str]] = []
    lean: list[ContentPart] = []
    for at, part in enumerate(content):
        if not _is_kept_as_blob(part):
            lean.append(part)
            continue
        is_text = isinstance(part, TextPart)
        data = part.text.encode() if is_text else part.data or b""
        lean.append(replace(part, text="") if is_text else replace(part, data=None))
        blobs.append((blob_name(data), data))
        places.append((at, blobs[-1][0]))
    fields = _encode_json(_replace_content(fact, tuple(lean)))[1:]
    return FactRecord(
        b'{"v":%d,"blobs":%b,%b' % (VOCABULARY_VERSION, _encode_json(places), fields), tuple(blobs)
    )


def _fill_blobs(fact: Fact, blobs: Mapping[int, bytes]) -> Fact:
    if not blobs:
        return fact
    content = list(_content_of(fact))
    for at, data in blobs.items():
        part = content[at]
        is_text = isinstance(part, TextPart)
        content[at] = replace(part, text=data.decode()) if is_text else replace(part, data=data)
    return _replace_content(fact, tuple(content))


def _replace_content(fact: Fact, content: tuple[ContentPart, ...]) -> Fact:
    if isinstance(fact, CallFinished | CallLate):
        return replace(fact, result=replace(fact.result, content=content))
    return replace(fact, prompt=content)
