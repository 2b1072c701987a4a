"""Reads the events of Amazon Bedrock's ConverseStream.

Invariant: `messageStop` says why the model stopped, and `metadata` follows with the usage; the
reply ends behind it. Unknown kinds of events and blocks are skipped.
"""

from collections.abc import Iterable, Iterator

import msgspec

from windlass.core.errors import ModelError
from windlass.core.events import (
    CallDelta,
    ReplyEnd,
    ReplyPiece,
    StopReason,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.messages import Usage
from windlass.models.anthropic.reader import REDACTED_PREFIX
from windlass.models.bedrock.event_stream import ERROR_EVENT
from windlass.models.http.provider_errors import error_from_stream
from windlass.models.http.sse import SseEvent
from windlass.models.reading import decode_reply, malformed_stream_error, refused_call_note

_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "refusal",
    "content_filtered": "refusal",
}
_MALFORMED_REASONS = frozenset(("malformed_model_output", "malformed_tool_use"))
"""The model made a mistake, and not the request. The next attempt may succeed."""


class _BedrockToolUse(msgspec.Struct, rename="camel"):
    tool_use_id: str | None = None
    name: str | None = None
    input: str | None = None


class _BedrockReasoning(msgspec.Struct, rename="camel"):
    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None


class _BedrockDelta(msgspec.Struct, rename="camel"):
    text: str | None = None
    tool_use: _BedrockToolUse | None = None
    reasoning_content: _BedrockReasoning | None = None


class _BedrockUsage(msgspec.Struct, rename="camel"):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None


class _BedrockEvent(msgspec.Struct, rename="camel"):
    """All kinds of events in one; each has its own fields."""

    content_block_index: int = 0
    start: _BedrockDelta | None = None
    delta: _BedrockDelta | None = None
    stop_reason: str | None = None
    usage: _BedrockUsage | None = None


_KNOWN_EVENTS = frozenset(("contentBlockStart", "contentBlockDelta", "messageStop", "metadata"))
_decode_event = msgspec.json.Decoder(_BedrockEvent).decode


class _ConverseToolUse(msgspec.Struct, rename="camel"):
    tool_use_id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"{}")


class _ConverseReasoning(msgspec.Struct, rename="camel"):
    reasoning_text: _BedrockReasoning | None = None
    redacted_content: str | None = None


class _ConverseBlock(msgspec.Struct, rename="camel"):
    text: str | None = None
    tool_use: _ConverseToolUse | None = None
    reasoning_content: _ConverseReasoning | None = None


class _ConverseMessage(msgspec.Struct):
    content: list[_ConverseBlock]


class _ConverseOutput(msgspec.Struct):
    message: _ConverseMessage


class _ConverseReply(msgspec.Struct, rename="camel"):
    """A reply of the operation that does not stream, `Converse`."""

    output: _ConverseOutput
    stop_reason: str
    usage: _BedrockUsage = msgspec.field(default_factory=_BedrockUsage)


_decode_whole = msgspec.json.Decoder(_ConverseReply).decode


class BedrockReader:
    """Reads one response."""

    def __init__(self) -> None:
        self._calls: set[int] = set()
        self._stop: StopReason | None = None

    @property
    def is_finishing(self) -> bool:
        """Whether the model has stopped, and its usage has not come yet."""
        return self._stop is not None

    def finish(self) -> list[ReplyPiece]:
        """Return the end of a reply whose usage never came."""
        return [ReplyEnd(self._stop)] if self._stop else []

    def read_event(self, event: str, data: bytes) -> Iterable[ReplyPiece]:
        if event == ERROR_EVENT:
            raise error_from_stream(data)
        if event not in _KNOWN_EVENTS:
            return ()
        try:
            got = _decode_event(data)
        except msgspec.DecodeError as error:
            raise malformed_stream_error(error) from error
        match event:
            case "contentBlockDelta" if got.delta is not None:
                return self._read_delta(got.content_block_index, got.delta)
            case "contentBlockStart" if got.start is not None and got.start.tool_use:
                self._calls.add(got.content_block_index)
                call = got.start.tool_use
                return (CallDelta(got.content_block_index, call.tool_use_id, call.name),)
            case "messageStop":
                self._stop = self._stop_reason(got.stop_reason or "")
                return ()
            case "metadata" if got.usage is not None:
                return self._read_usage(got.usage)
            case _:
                return ()

    def split_reply(self, body: bytes) -> list[SseEvent] | None:
        """Return the events that a stream would have brought; None if it is not such a reply."""
        reply = decode_reply(_decode_whole, body)
        if reply is None:
            return None
        events: list[tuple[str, _BedrockEvent]] = []
        for index, block in enumerate(reply.output.message.content):
            events += _split_block(index, block)
        events.append(("messageStop", _BedrockEvent(stop_reason=reply.stop_reason)))
        events.append(("metadata", _BedrockEvent(usage=reply.usage)))
        return [(name, msgspec.json.encode(event)) for name, event in events]

    def _read_delta(self, index: int, delta: _BedrockDelta) -> Iterable[ReplyPiece]:
        # An empty delta gives no piece: it must not count as a sign of life.
        if delta.text:
            return (TextDelta(delta.text),)
        if delta.tool_use is not None and delta.tool_use.input and index in self._calls:
            return (CallDelta(index, arguments=delta.tool_use.input),)
        thinking = delta.reasoning_content
        if thinking is None:
            return ()
        if thinking.text:
            return (ThinkingDelta(thinking.text),)
        if thinking.signature:
            return (ThinkingDelta("", thinking.signature),)
        if thinking.redacted_content:
            return (ThinkingDelta("", REDACTED_PREFIX + thinking.redacted_content),)
        return ()

    def _stop_reason(self, reason: str) -> StopReason:
        if reason in _MALFORMED_REASONS:
            text = f"the model's reply was malformed, as the API says ({reason})"
            is_call = reason == "malformed_tool_use"
            note = refused_call_note("it could not be read") if is_call else ""
            raise ModelError("malformed_stream", text, note=note)
        return _STOP_REASONS.get(reason) or ("calls" if self._calls else "end")

    def _read_usage(self, usage: _BedrockUsage) -> Iterable[ReplyPiece]:
        # The API counts tokens that came from or went into the cache apart from the rest.
        cache_read = usage.cache_read_input_tokens or 0
        cache_write = usage.cache_write_input_tokens or 0
        yield UsageDelta(
            Usage(
                input=usage.input_tokens + cache_read + cache_write,
                output=usage.output_tokens,
                cache_read=cache_read,
                cache_write=cache_write,
            )
        )
        if self._stop is not None:
            yield ReplyEnd(self._stop)
            self._stop = None


def _split_block(index: int, block: _ConverseBlock) -> Iterator[tuple[str, _BedrockEvent]]:
    """Yield the events of one block of a reply that did not stream."""
    deltas: list[_BedrockDelta] = [_BedrockDelta(text=block.text)]
    if block.tool_use is not None:
        call = block.tool_use
        start = _BedrockDelta(tool_use=_BedrockToolUse(call.tool_use_id, call.name))
        yield "contentBlockStart", _BedrockEvent(index, start=start)
        arguments = bytes(call.input).decode()
        deltas.append(_BedrockDelta(tool_use=_BedrockToolUse(input=arguments)))
    if block.reasoning_content is not None:
        thinking = block.reasoning_content.reasoning_text or _BedrockReasoning()
        redacted = block.reasoning_content.redacted_content
        deltas += [
            _BedrockDelta(reasoning_content=part)
            for part in (
                _BedrockReasoning(text=thinking.text),
                _BedrockReasoning(signature=thinking.signature),
                _BedrockReasoning(redacted_content=redacted),
            )
        ]
    for delta in deltas:
        yield "contentBlockDelta", _BedrockEvent(index, delta=delta)
