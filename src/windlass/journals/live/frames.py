"""Batches of deltas as bytes, and the frames that carry them over a socket.

Invariant: what a peer sends is never trusted. A frame that is too long or that is not what it
should be raises BadFrame, and its connection is closed.
"""

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from windlass.core.events import Event, NestedEvent
from windlass.core.live_batch import FactMark, LiveBatch, LiveItem

BATCH_BYTES_MAX = 4_000_000
"""A batch that is longer is not sent: its text comes with the step."""
LENGTH_BYTES = 4

_encode_json = msgspec.json.Encoder().encode
_decode_batch = msgspec.json.Decoder(LiveBatch).decode


class BadFrame(ValueError):
    """A peer sent something that is not a frame of the live channel."""


def encode_batch(batch: LiveBatch) -> bytes | None:
    """Return a batch as JSON; None if it is too long or cannot be written as JSON."""
    try:
        body = _encode_json(batch)
    except (msgspec.MsgspecError, TypeError, ValueError):
        return None
    return body if len(body) <= BATCH_BYTES_MAX else None


def decode_batch(body: bytes) -> LiveBatch:
    """Return the batch of a JSON text. Raises BadFrame."""
    try:
        batch = _decode_batch(body)
        return replace(batch, items=tuple(map(_decode_nested, batch.items)))
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise BadFrame(f"it is not a batch: {error}") from error


def _decode_nested(item: LiveItem) -> LiveItem:
    """Return an item with its nested event, which is decoded as plain data, as an event."""
    if not isinstance(item, NestedEvent):
        return item
    event = msgspec.convert(item.event, Event | FactMark, strict=False)
    if isinstance(event, NestedEvent):
        event = _decode_nested(event)
    return replace(item, event=event)


def build_frame(body: bytes) -> bytes:
    """Return a body with its length before it."""
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


class FrameReader:
    """Cuts the bytes of a connection into frames, of which none may be longer than a limit."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the bodies of the frames that are complete now. Raises BadFrame."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= LENGTH_BYTES:
            length = int.from_bytes(buffer[:LENGTH_BYTES], "big")
            if not 0 < length <= self._bytes_max:
                raise BadFrame(f"a frame of {length} bytes")
            end = LENGTH_BYTES + length
            if len(buffer) < end:
                return
            body = bytes(buffer[LENGTH_BYTES:end])
            del buffer[:end]
            yield body
