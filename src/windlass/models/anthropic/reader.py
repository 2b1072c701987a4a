"""The events of Anthropic's messages, as pieces.

The law: only `message_stop` ends a reply, so that a stream which was cut is never taken for a whole
one (S8). Kinds of events, blocks and deltas that are not known here are passed over.
"""

from collections.abc import Iterable

import msgspec

from windlass.core.events import (
    CallDelta,
    Piece,
    ReplyEnd,
    Stop,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.messages import Usage
from windlass.models.http.errors import from_stream
from windlass.models.reader_helpers import is_known, malformed

REDACTED = "redacted:"
"""Before a signature: the block was redacted as a whole. No signature of the API has a colon."""

_STOPS: dict[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    # The server broke off a long turn of its own tools: what came is not the whole answer.
    "pause_turn": "length",
    "refusal": "refusal",
}


class _Details(msgspec.Struct):
    thinking_tokens: int | None = None


class _Usage(msgspec.Struct):
    """Every figure is a total so far; one that is left out has not changed."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: _Details | None = None


class _Message(msgspec.Struct):
    usage: _Usage | None = None


class _Block(msgspec.Struct):
    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"{}")


class _Delta(msgspec.Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str = ""
    index: int = 0
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | None = None
    usage: _Usage | None = None


_KNOWN: dict[str, frozenset[str]] = {
    "message_start": frozenset(),
    "message_delta": frozenset(),
    "content_block_start": frozenset(("text", "thinking", "redacted_thinking", "tool_use")),
    "content_block_delta": frozenset(
        ("text_delta", "thinking_delta", "signature_delta", "input_json_delta")
    ),
}
_decode = msgspec.json.Decoder(_Event).decode


class AnthropicReader:
    """Reads one response."""

    def __init__(self) -> None:
        self._calls: set[int] = set()
        self._stop: Stop | None = None
        self._usage = _Usage()

    def read(self, event: str, data: bytes) -> Iterable[Piece]:  # noqa: ARG002 - it is in the data
        try:
            got = _decode(data)
        except msgspec.ValidationError as error:
            if is_known(data, _KNOWN, "content_block", "delta"):
                raise malformed(error) from error
            return ()
        except msgspec.DecodeError as error:
            raise malformed(error) from error
        match got.type:
            case "content_block_delta" if got.delta is not None:
                return self._delta(got.index, got.delta)
            case "content_block_start" if got.content_block is not None:
                return self._started(got.index, got.content_block)
            case "message_start" if got.message is not None:
                return self._counted(got.message.usage)
            case "message_delta":
                reason = got.delta and got.delta.stop_reason
                if reason:
                    self._stop = _STOPS.get(reason, "end")
                return self._counted(got.usage)
            case "message_stop":
                return (ReplyEnd(self._stop or ("calls" if self._calls else "end")),)
            case "error":
                raise from_stream(msgspec.json.decode(data))
            case _:
                return ()

    def _delta(self, index: int, delta: _Delta) -> Iterable[Piece]:
        """A delta without content is no sign of life (S4)."""
        match delta.type:
            case "text_delta" if delta.text:
                return (TextDelta(delta.text),)
            # A server's own tools stream their input as well; those calls are not ours.
            case "input_json_delta" if delta.partial_json and index in self._calls:
                return (CallDelta(index, arguments=delta.partial_json),)
            case "thinking_delta" if delta.thinking:
                return (ThinkingDelta(delta.thinking),)
            case "signature_delta" if delta.signature:
                return (ThinkingDelta("", delta.signature),)
            case _:
                return ()

    def _started(self, index: int, block: _Block) -> Iterable[Piece]:
        """Some servers give a block whole at its start."""
        match block.type:
            case "text" if block.text:
                return (TextDelta(block.text),)
            case "thinking" if block.thinking or block.signature:
                return (ThinkingDelta(block.thinking or "", block.signature or None),)
            case "redacted_thinking" if block.data:
                return (ThinkingDelta("", REDACTED + block.data),)
            case "tool_use":
                self._calls.add(index)
                given = bytes(block.input)
                arguments = "" if given in {b"{}", b"null", b'""'} else given.decode()
                return (CallDelta(index, block.id, block.name, arguments),)
            case _:
                return ()

    def _counted(self, usage: _Usage | None) -> Iterable[Piece]:
        if usage is None:
            return ()
        for name in _Usage.__struct_fields__:
            if (figure := getattr(usage, name)) is not None:
                setattr(self._usage, name, figure)
        return (UsageDelta(_total(self._usage)),)


def _total(usage: _Usage) -> Usage:
    """The API counts what came from or went into the cache apart from the rest of the input."""
    read, write = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    details = usage.output_tokens_details
    return Usage(
        input=(usage.input_tokens or 0) + read + write,
        output=usage.output_tokens or 0,
        cache_read=read,
        cache_write=write,
        reasoning=(details.thinking_tokens or 0) if details else 0,
    )
