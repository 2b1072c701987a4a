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
from windlass.core.events import VERSION, CallFinished, CallLate, Fact, RunStarted, Steered
from windlass.core.messages import Content, Text

LARGE = 16_384
"""Characters from which on a text is kept apart from its record."""

NAME_CHARS = 64
NAME_CHARS_MIN = 16
"""How much of a name tells it from all others."""

Upcast = Callable[[dict[str, Any]], dict[str, Any]]
UPCASTS: Mapping[int, Upcast] = {}
"""For each old version, what turns a record of it into one of the next version."""

Fetch = Callable[[str], bytes]
"""Gives the bytes that are kept under a hash; raises Unreadable when they are not there."""


class Unreadable(ValueError):
    """These bytes are not the record that was written."""


class Record(NamedTuple):
    """A fact as it is kept."""

    body: bytes
    blobs: tuple[tuple[str, bytes], ...] = ()


class _Envelope(msgspec.Struct):
    """What stands around a fact in its record."""

    v: int
    blobs: tuple[tuple[int, str], ...] = ()


_PLAIN = b'{"v":%d,"type":' % VERSION
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder[Fact](Fact).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_tree = msgspec.json.Decoder(dict[str, Any]).decode


def encode(fact: Fact) -> Record:
    """The record of a fact; raises JournalFailed for what no JSON can hold."""
    try:
        content = _content(fact)
        if content and any(map(_kept_apart, content)):
            record = _encode_apart(fact, content)
        else:
            record = Record(b'{"v":%d,%b' % (VERSION, _encode(fact)[1:]))
        _decode(record.body)  # What cannot be read back is never written.
        return record
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        msg = f"{type(fact).__name__} cannot be written down: {error}"
        raise JournalFailed(msg) from error


def decode(body: bytes, fetch: Fetch, upcasts: Mapping[int, Upcast] = UPCASTS) -> Fact:
    """The fact of a record. Raises Unreadable for damage, JournalFailed for a newer version."""
    try:
        if body.startswith(_PLAIN):
            return _decode(body)
        envelope = _decode_envelope(body)
        if envelope.v > VERSION:
            msg = f"a record has version {envelope.v}, this Windlass knows {VERSION}: upgrade it"
            raise JournalFailed(msg)
        fact = _decode(body if envelope.v == VERSION else _upcast(body, envelope.v, upcasts))
        return _fill(fact, {at: fetch(blob) for at, blob in envelope.blobs})
    except Unreadable:
        raise
    except (msgspec.MsgspecError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise Unreadable(f"it is no record: {error}") from error


def blob_name(data: bytes) -> str:
    """The hash that these bytes are kept under."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def is_blob_name(text: str) -> bool:
    """Whether a text can be the name of kept bytes, or as much of one as tells it from others."""
    return NAME_CHARS_MIN <= len(text) <= NAME_CHARS and not text.strip("0123456789abcdef")


def _upcast(body: bytes, version: int, upcasts: Mapping[int, Upcast]) -> bytes:
    tree = _decode_tree(body)
    for step in range(version, VERSION):
        tree = upcasts[step](tree)
    return _encode(tree)


def _content(fact: Fact) -> tuple[Content, ...]:
    """Where a fact can hold attachments and long texts."""
    if isinstance(fact, CallFinished | CallLate):
        return fact.result.content
    return fact.prompt if isinstance(fact, RunStarted | Steered) else ()


def _kept_apart(part: Content) -> bool:
    return len(part.text) > LARGE if isinstance(part, Text) else part.data is not None


def _encode_apart(fact: Fact, content: Iterable[Content]) -> Record:
    blobs: list[tuple[str, bytes]] = []
    places: list[tuple[int, str]] = []
    lean: list[Content] = []
    for at, part in enumerate(content):
        if not _kept_apart(part):
            lean.append(part)
            continue
        is_text = isinstance(part, Text)
        data = part.text.encode() if is_text else part.data or b""
        lean.append(replace(part, text="") if is_text else replace(part, data=None))
        blobs.append((blob_name(data), data))
        places.append((at, blobs[-1][0]))
    fields = _encode(_with_content(fact, tuple(lean)))[1:]
    return Record(b'{"v":%d,"blobs":%b,%b' % (VERSION, _encode(places), fields), tuple(blobs))


def _fill(fact: Fact, blobs: Mapping[int, bytes]) -> Fact:
    if not blobs:
        return fact
    content = list(_content(fact))
    for at, data in blobs.items():
        part = content[at]
        is_text = isinstance(part, Text)
        content[at] = replace(part, text=data.decode()) if is_text else replace(part, data=data)
    return _with_content(fact, tuple(content))


def _with_content(fact: Fact, content: tuple[Content, ...]) -> Fact:
    if isinstance(fact, CallFinished | CallLate):
        return replace(fact, result=replace(fact.result, content=content))
    return replace(fact, prompt=content)
