"""Parses the binary event stream of AWS (`application/vnd.amazon.eventstream`).

A message is a prelude (its length, the length of its headers, a checksum), headers, a payload and a
checksum of all of it.

Invariant: however the bytes are split, the events are the same. A message whose checksums do not
match is an error and never an event, and so is a length that no message of this API has: a damaged
length would otherwise make the parser wait for bytes that never come.
"""

import struct
from binascii import crc32

import msgspec

from windlass.core.errors import ModelError
from windlass.models.http.sse import SseEvent

ERROR_EVENT = "error"
"""The name of an event that announces an error; its data has the error's name as `type`."""
FRAME_BYTES_MAX = 16 * 2**20
"""The format allows no longer message."""

_PRELUDE = struct.Struct(">II")
_CRC = struct.Struct(">I")
_HEAD_BYTES = _PRELUDE.size + _CRC.size
_FRAME_BYTES_MIN = _HEAD_BYTES + _CRC.size
# How many bytes the value of a header takes, by its type. None: two bytes say how many follow.
_VALUE_BYTES: dict[int, int | None] = {
    0: 0,  # true
    1: 0,  # false
    2: 1,
    3: 2,
    4: 4,
    5: 8,
    6: None,  # bytes
    7: None,  # text
    8: 8,  # a time
    9: 16,  # a UUID
}


class FrameParser:
    """Parses one stream. Each event has the type of its message as its name."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that this chunk completes. Raises ModelError for damaged bytes."""
        self._buffer += chunk
        events: list[SseEvent] = []
        start = 0
        while (length := self._frame_length(start)) is not None:
            events.append(_parse_frame(bytes(self._buffer[start : start + length])))
            start += length
        del self._buffer[:start]
        return events

    def finish(self) -> list[SseEvent]:
        """Return nothing: a message that was cut off never happened."""
        return []

    def _frame_length(self, start: int) -> int | None:
        """Return the length of the message that begins at `start`; None if it is incomplete."""
        available = len(self._buffer) - start
        if available < _HEAD_BYTES:
            return None
        length, _ = _PRELUDE.unpack_from(self._buffer, start)
        (expected,) = _CRC.unpack_from(self._buffer, start + _PRELUDE.size)
        if crc32(self._buffer[start : start + _PRELUDE.size]) != expected:
            raise _damaged_error("a checksum does not match")
        if not _FRAME_BYTES_MIN <= length <= FRAME_BYTES_MAX:
            raise _damaged_error(f"a message has {length} bytes")
        return length if available >= length else None


def _parse_frame(frame: bytes) -> SseEvent:
    _, headers_length = _PRELUDE.unpack_from(frame)
    (expected,) = _CRC.unpack_from(frame, len(frame) - _CRC.size)
    if crc32(frame[: -_CRC.size]) != expected:
        raise _damaged_error("a checksum does not match")
    headers_end = _HEAD_BYTES + headers_length
    if headers_end > len(frame) - _CRC.size:
        raise _damaged_error("its headers are longer than the message")
    headers = _parse_headers(frame[_HEAD_BYTES:headers_end])
    payload = frame[headers_end : -_CRC.size]
    match headers.get(":message-type"):
        case "exception":
            return ERROR_EVENT, _name_error(headers.get(":exception-type", ""), payload)
        case "error":
            message = headers.get(":error-message", "").encode()
            return ERROR_EVENT, _name_error(headers.get(":error-code", ""), message)
        case _:
            # No event has no data: to the caller, that means that the stream has opened.
            return headers.get(":event-type", ""), payload or b"{}"


def _name_error(name: str, payload: bytes) -> bytes:
    """Return an error as JSON of the shape that other providers use, whatever its payload is."""
    try:
        fields = msgspec.json.decode(payload, type=dict[str, object])
        message = fields.get("message") or fields.get("Message") or ""
    except msgspec.DecodeError:
        message = payload.decode("utf-8", "replace")
    return msgspec.json.encode({"type": name, "message": message})


def _parse_headers(data: bytes) -> dict[str, str]:
    """Return the headers with values of text; all others are skipped."""
    headers: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            name_end = at + 1 + data[at]
            name = data[at + 1 : name_end].decode("utf-8")
            kind = data[name_end]
            at = name_end + 1
            size = _VALUE_BYTES[kind]
            if size is None:
                size = int.from_bytes(data[at : at + 2], "big")
                at += 2
            if kind == 7:  # noqa: PLR2004 - text
                headers[name] = data[at : at + size].decode("utf-8")
            at += size
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise _damaged_error("its headers cannot be read") from error
    return headers


def _damaged_error(problem: str) -> ModelError:
    return ModelError(
        "malformed_stream",
        f"the server sent a damaged event stream ({problem}). If this happens again, check "
        "base_url and what stands between: a proxy may damage binary replies.",
    )
