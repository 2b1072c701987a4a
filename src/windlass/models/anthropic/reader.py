"""Reads the events of Anthropic's messages API.

Invariant: only `message_stop` ends a reply, so that a stream that was cut off is never taken for a
complete one. Unknown kinds of events, blocks and deltas are skipped.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from windlass.core.events import (
    CallDelta,
    ReplyEnd,
    ReplyPiece,
    ReplyRestarted,
    StopReason,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.messages import Usage
from windlass.models.http.provider_errors import error_from_stream
from windlass.models.http.sse import SseEvent
from windlass.models.reading import decode_known_event, decode_reply

REDACTED_PREFIX = "redacted:"
"""Marks a signature whose whole block was redacted. No signature of the API has a colon."""

_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    # The server interrupted a long turn of its own tools, so this is not the whole answer.
    "pause_turn": "length",
    "refusal": "refusal",
}


class _AnthropicOutputDetails(msgspec.Struct):
    thinking_tokens: int | None = None


class _AnthropicUsage(msgspec.Struct):
    """Each number is a running total. One that is left out has not changed."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: _AnthropicOutputDetails | None = None


class _AnthropicMessage(msgspec.Struct):
    usage: _AnthropicUsage | None = None


class _AnthropicBlock(msgspec.Struct):
    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"{}")


class _AnthropicDelta(msgspec.Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _AnthropicEvent(msgspec.Struct):
    type: str = ""
    index: int = 0
    delta: _AnthropicDelta | None = None
    content_block: _AnthropicBlock | None = None
    message: _AnthropicMessage | None = None
    usage: _AnthropicUsage | None = None


_KNOWN_KINDS: dict[str, frozenset[str]] = {
    "message_start": frozenset(),
    "message_delta": frozenset(),
    "content_block_start": frozenset(("text", "thinking", "redacted_thinking", "tool_use")),
    "content_block_delta": frozenset(
        ("text_delta", "thinking_delta", "signature_delta", "input_json_delta")
    ),
}
_decode_event = msgspec.json.Decoder(_AnthropicEvent).decode


class _WholeMessage(msgspec.Struct):
    """A reply that did not stream."""

    type: Literal["message"]
    content: list[msgspec.Raw]
    stop_reason: str | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")


_decode_message = msgspec.json.Decoder(_WholeMessage).decode


class AnthropicReader:
    """Reads one response."""

    def __init__(self) -> None:
        self._calls: set[int] = set()
        self._has_started = False
        self._stop: StopReason | None = None
        self._usage = _AnthropicUsage()

    def read_event(self, event: str, data: bytes) -> Iterable[ReplyPiece]:  # noqa: ARG002 - the type is in the data
        got = decode_known_event(_decode_event, data, _KNOWN_KINDS, "content_block", "delta")
        if got is None:
            return ()
        match got.type:
            case "content_block_delta" if got.delta is not None:
                return self._read_delta(got.index, got.delta)
            case "content_block_start" if got.content_block is not None:
                return self._read_block_start(got.index, got.content_block)
            case "message_start" if got.message is not None:
                return self._start_message(got.message)
            case "message_delta":
                reason = got.delta and got.delta.stop_reason
                if reason:
                    self._stop = _STOP_REASONS.get(reason, "end")
                return self._update_usage(got.usage)
            case "message_stop":
                return (ReplyEnd(self._stop or ("calls" if self._calls else "end")),)
            case "error":
                raise error_from_stream(msgspec.json.decode(data))
            case _:
                return ()

    def split_reply(self, body: bytes) -> list[SseEvent] | None:
        """Return the events that a stream would have brought; None if it is not such a reply."""
        reply = decode_reply(_decode_message, body)
        if reply is None:
            return None
        events: list[dict[str, object]] = [
            {"type": "content_block_start", "index": index, "content_block": block}
            for index, block in enumerate(reply.content)
        ]
        end = {"stop_reason": reply.stop_reason}
        events.append({"type": "message_delta", "delta": end, "usage": reply.usage})
        events.append({"type": "message_stop"})
        return [("", msgspec.json.encode(event)) for event in events]

    def _start_message(self, message: _AnthropicMessage) -> Iterable[ReplyPiece]:
        """Begin the reply. A second beginning, of a gateway that tries again, voids the first."""
        if self._has_started:
            self._calls = set()
            self._stop = None
            self._usage = _AnthropicUsage()
            yield ReplyRestarted()
        self._has_started = True
        yield from self._update_usage(message.usage)

    def _read_delta(self, index: int, delta: _AnthropicDelta) -> Iterable[ReplyPiece]:
        # An empty delta gives no piece: it must not count as a sign of life.
        match delta.type:
            case "text_delta" if delta.text:
                return (TextDelta(delta.text),)
            # The server's own tools stream their input as well; those calls are not ours.
            case "input_json_delta" if delta.partial_json and index in self._calls:
                return (CallDelta(index, arguments=delta.partial_json),)
            case "thinking_delta" if delta.thinking:
                return (ThinkingDelta(delta.thinking),)
            case "signature_delta" if delta.signature:
                return (ThinkingDelta("", delta.signature),)
            case _:
                return ()

    def _read_block_start(self, index: int, block: _AnthropicBlock) -> Iterable[ReplyPiece]:
        """Some servers send a whole block at its start, and no deltas."""
        match block.type:
            case "text" if block.text:
                return (TextDelta(block.text),)
            case "thinking" if block.thinking or block.signature:
                return (ThinkingDelta(block.thinking or "", block.signature or None),)
            case "redacted_thinking" if block.data:
                return (ThinkingDelta("", REDACTED_PREFIX + block.data),)
            case "tool_use":
                self._calls.add(index)
                raw_input = bytes(block.input)
                # An empty input here means that the arguments come as deltas.
                arguments = "" if raw_input in {b"{}", b"null", b'""'} else raw_input.decode()
                return (CallDelta(index, block.id, block.name, arguments),)
            case _:
                return ()

    def _update_usage(self, usage: _AnthropicUsage | None) -> Iterable[ReplyPiece]:
        if usage is None:
            return ()
        # `message_start` has the input, `message_delta` the output; some servers repeat all of it.
        for name in _AnthropicUsage.__struct_fields__:
            if (total := getattr(usage, name)) is not None:
                setattr(self._usage, name, total)
        return (UsageDelta(_convert_usage(self._usage)),)


def _convert_usage(usage: _AnthropicUsage) -> Usage:
    # The API counts tokens that came from or went into the cache apart from the rest of the input.
    cache_read = usage.cache_read_input_tokens or 0
    cache_write = usage.cache_creation_input_tokens or 0
    details = usage.output_tokens_details or _AnthropicOutputDetails()
    return Usage(
        input=(usage.input_tokens or 0) + cache_read + cache_write,
        output=usage.output_tokens or 0,
        cache_read=cache_read,
        cache_write=cache_write,
        reasoning=details.thinking_tokens or 0,
    )
