"""OpenAI chat completions, read: chunks in, pieces out.

The law: the reply ends once, and only after a `finish_reason`. Some servers repeat that, and some
send usage behind it, so that the end is told at `[DONE]`, behind the usage, or when the stream is
over.
"""

from typing import Any

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
from windlass.models.http.errors import error_from_stream

_STOP_REASONS: dict[str, StopReason] = {
    "stop": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "refusal",
    "refusal": "refusal",
}
_FAILURE_REASONS = frozenset(("error", "insufficient_system_resource", "abort"))
"""Reasons to finish that are none: the server broke off."""


class _ChatFunction(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _ChatCall(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _ChatFunction | None = None


class _ChatContentPart(msgspec.Struct):
    """A part of Mistral's content: text, or thinking made of texts."""

    type: str = ""
    text: str | None = None
    thinking: "list[_ChatContentPart] | str | None" = None


class _ChatDelta(msgspec.Struct):
    content: str | list[_ChatContentPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_ChatCall] | None = None
    function_call: _ChatFunction | None = None


class _ChatChoice(msgspec.Struct):
    delta: _ChatDelta | None = None
    finish_reason: str | None = None


class _ChatInputDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _ChatOutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _ChatUsage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _ChatInputDetails | None = None
    completion_tokens_details: _ChatOutputDetails | None = None
    prompt_cache_hit_tokens: int | None = None


class _GroqExtra(msgspec.Struct):
    usage: _ChatUsage | None = None


class _ChatChunk(msgspec.Struct):
    choices: list[_ChatChoice] | None = None
    usage: _ChatUsage | None = None
    x_groq: _GroqExtra | None = None
    error: Any = None
    object: str | None = None


_decode_chunk = msgspec.json.Decoder(_ChatChunk).decode


class ChatReader:
    """Reads the events of one response."""

    __slots__ = ("_ended", "_refused", "_stop")

    def __init__(self) -> None:
        self._stop: StopReason | None = None
        self._refused = False
        self._ended = False

    def read_event(self, event: str, data: bytes) -> list[ReplyPiece]:
        if data == b"[DONE]":
            return self.finish()
        try:
            chunk = _decode_chunk(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ModelError("malformed_stream", f"a chunk cannot be read: {error}") from error
        choices = chunk.choices
        # By far the most chunks: one delta of text, and nothing else.
        if choices and chunk.usage is None and chunk.error is None and not event:
            choice = choices[0]
            if choice.delta is not None and choice.finish_reason is None:
                return _read_delta(choice.delta, self)
        return self._read_uncommon(event, data, chunk)

    def finish(self) -> list[ReplyPiece]:
        """The stream is over: the end of the reply, if the model had finished it."""
        if self._stop is None or self._ended:
            return []
        self._ended = True
        return [ReplyEnd("refusal" if self._refused else self._stop)]

    def mark_refused(self) -> None:
        self._refused = True

    def _read_uncommon(self, event: str, data: bytes, chunk: _ChatChunk) -> list[ReplyPiece]:
        if chunk.error is not None or "error" in (event, chunk.object):
            raise error_from_stream(data)
        pieces: list[ReplyPiece] = []
        for choice in (chunk.choices or ())[:1]:
            if choice.delta is not None:
                pieces += _read_delta(choice.delta, self)
            if choice.finish_reason in _FAILURE_REASONS:
                told = f"the server broke off ({choice.finish_reason})"
                raise ModelError("server", told)
            if choice.finish_reason:
                self._stop = _STOP_REASONS.get(choice.finish_reason, "end")
        usage = chunk.usage or (chunk.x_groq.usage if chunk.x_groq else None)
        if usage is not None:
            pieces.append(UsageDelta(_convert_usage(usage)))
            if not chunk.choices:
                pieces += self.finish()
        return pieces


def _read_delta(delta: _ChatDelta, reader: ChatReader) -> list[ReplyPiece]:
    pieces: list[ReplyPiece] = []
    if thought := delta.reasoning_content or delta.reasoning:
        pieces.append(ThinkingDelta(thought))
    content = delta.content
    if content:
        if isinstance(content, str):
            pieces.append(TextDelta(content))
        else:
            pieces += [piece for bit in content for piece in _read_content_part(bit)]
    if delta.refusal:
        reader.mark_refused()
        pieces.append(TextDelta(delta.refusal))
    if delta.tool_calls:
        pieces += [_read_call(call) for call in delta.tool_calls]
    elif delta.function_call:
        pieces.append(_read_call(_ChatCall(0, None, delta.function_call)))
    return pieces


def _read_content_part(bit: _ChatContentPart) -> list[ReplyPiece]:
    thinking = bit.thinking
    if isinstance(thinking, list):
        thinking = "".join(inner.text or "" for inner in thinking)
    if thinking:
        return [ThinkingDelta(thinking)]
    return [TextDelta(bit.text)] if bit.text else []


def _read_call(call: _ChatCall) -> CallDelta:
    function = call.function or _ChatFunction()
    arguments = function.arguments or ""
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    return CallDelta(call.index, call.id or None, function.name or None, arguments)


def _convert_usage(usage: _ChatUsage) -> Usage:
    read = usage.prompt_tokens_details or _ChatInputDetails()
    written = usage.completion_tokens_details or _ChatOutputDetails()
    put_in, put_out = usage.prompt_tokens or 0, usage.completion_tokens or 0
    return Usage(
        input=put_in,
        # Some count reasoning apart from completion; it is paid for all the same.
        output=max(put_out, (usage.total_tokens or 0) - put_in),
        cache_read=read.cached_tokens or usage.prompt_cache_hit_tokens or 0,
        cache_write=read.cache_write_tokens or 0,
        reasoning=written.reasoning_tokens or 0,
    )
