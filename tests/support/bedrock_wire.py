"""Replies as Amazon Bedrock streams them, in binary messages, for the script of a `FaultServer`.

bedrock_answer(*text_frames("Hello"))
bedrock_answer(*call_frames("read", '{"path":', '"a.txt"}'))
"""

import struct
from binascii import crc32
from typing import Any

import msgspec

from windlass.testing.wire import WireAct, WireAnswer, stream_answer

CONTENT_TYPE = "application/vnd.amazon.eventstream"
USAGE: dict[str, Any] = {
    "inputTokens": 12,
    "outputTokens": 5,
    "totalTokens": 21,
    "cacheReadInputTokens": 4,
    "cacheWriteInputTokens": 0,
}


def encode_frame(payload: bytes, headers: dict[str, str]) -> bytes:
    """Return one message of the event stream, with its checksums."""
    encoded = b"".join(
        struct.pack(">B", len(name))
        + name.encode()
        + struct.pack(">BH", 7, len(value.encode()))
        + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack(">II", 16 + len(encoded) + len(payload), len(encoded))
    message = prelude + struct.pack(">I", crc32(prelude)) + encoded + payload
    return message + struct.pack(">I", crc32(message))


def event_frame(event: str, body: dict[str, Any]) -> bytes:
    """Return one event, such as `contentBlockDelta`."""
    headers = {
        ":event-type": event,
        ":content-type": "application/json",
        ":message-type": "event",
    }
    return encode_frame(msgspec.json.encode(body), headers)


def exception_frame(exception: str, message: str) -> bytes:
    """Return the notice that the service failed in the middle of its reply."""
    headers = {":exception-type": exception, ":message-type": "exception"}
    return encode_frame(msgspec.json.encode({"message": message}), headers)


def delta_frame(delta: dict[str, Any], index: int = 0) -> bytes:
    return event_frame("contentBlockDelta", {"contentBlockIndex": index, "delta": delta})


def text_frames(*texts: str) -> list[bytes]:
    """Return the deltas of a text."""
    return [delta_frame({"text": text}) for text in texts]


def call_frames(
    name: str, *arguments: str, call_id: str = "tooluse_1", index: int = 1
) -> list[bytes]:
    """Return a tool call whose arguments come in pieces."""
    start = {"toolUse": {"toolUseId": call_id, "name": name}}
    opened = event_frame("contentBlockStart", {"contentBlockIndex": index, "start": start})
    pieces = [delta_frame({"toolUse": {"input": piece}}, index) for piece in arguments]
    return [opened, *pieces, event_frame("contentBlockStop", {"contentBlockIndex": index})]


def end_frames(reason: str = "end_turn", usage: dict[str, Any] | None = None) -> list[bytes]:
    """Return the end of a reply: why it stopped, and the usage."""
    metadata = {"usage": USAGE if usage is None else usage, "metrics": {"latencyMs": 250}}
    return [event_frame("messageStop", {"stopReason": reason}), event_frame("metadata", metadata)]


def bedrock_stream(*acts: WireAct) -> WireAnswer:
    """Return a stream of these acts, which need not be a whole reply."""
    opened = event_frame("messageStart", {"role": "assistant"})
    return stream_answer(opened, *acts, content_type=CONTENT_TYPE)


def bedrock_answer(*frames: bytes, reason: str = "end_turn") -> WireAnswer:
    """Return a whole reply."""
    return bedrock_stream(*frames, *end_frames(reason))
