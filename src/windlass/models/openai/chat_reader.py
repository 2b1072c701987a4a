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
    Piece,
    ReplyEnd,
    Stop,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.messages import Usage
from windlass.models.http.errors import from_stream

_STOPS: dict[str, Stop] = {
    "stop": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "refusal",
    "refusal": "refusal",
}
_FAILURES = frozenset(("error", "insufficient_system_resource", "abort"))
"""Reasons to finish that are none: the server broke off."""


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Bit(msgspec.Struct):
    """A part of Mistral's content: text, or thinking made of texts."""

    type: str = ""
    text: str | None = None
    thinking: "list[_Bit] | str | None" = None


class _Delta(msgspec.Struct):
    content: str | list[_Bit] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _InputDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None
    prompt_cache_hit_tokens: int | None = None


class _Groq(msgspec.Struct):
    usage: _Usage | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    x_groq: _Groq | None = None
    error: Any = None
    object: str | None = None


_decode = msgspec.json.Decoder(_Chunk).decode


class ChatReader:
    """Reads the events of one response."""

    __slots__ = ("_ended", "_refused", "_stop")

    def __init__(self) -> None:
        self._stop: Stop | None = None
        self._refused = False
        self._ended = False

    def read(self, event: str, data: bytes) -> list[Piece]:
        if data == b"[DONE]":
            return self.end()
        try:
            chunk = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ModelError("malformed_stream", f"a chunk cannot be read: {error}") from error
        choices = chunk.choices
        # By far the most chunks: one delta of text, and nothing else.
        if choices and chunk.usage is None and chunk.error is None and not event:
            choice = choices[0]
            if choice.delta is not None and choice.finish_reason is None:
                return _pieces(choice.delta, self)
        return self._rare(event, data, chunk)

    def end(self) -> list[Piece]:
        """The stream is over: the end of the reply, if the model had finished it."""
        if self._stop is None or self._ended:
            return []
        self._ended = True
        return [ReplyEnd("refusal" if self._refused else self._stop)]

    def refuse(self) -> None:
        self._refused = True

    def _rare(self, event: str, data: bytes, chunk: _Chunk) -> list[Piece]:
        if chunk.error is not None or "error" in (event, chunk.object):
            raise from_stream(data)
        pieces: list[Piece] = []
        for choice in (chunk.choices or ())[:1]:
            if choice.delta is not None:
                pieces += _pieces(choice.delta, self)
            if choice.finish_reason in _FAILURES:
                told = f"the server broke off ({choice.finish_reason})"
                raise ModelError("server", told)
            if choice.finish_reason:
                self._stop = _STOPS.get(choice.finish_reason, "end")
        usage = chunk.usage or (chunk.x_groq.usage if chunk.x_groq else None)
        if usage is not None:
            pieces.append(UsageDelta(_usage(usage)))
            if not chunk.choices:
                pieces += self.end()
        return pieces


def _pieces(delta: _Delta, reader: ChatReader) -> list[Piece]:
    pieces: list[Piece] = []
    if thought := delta.reasoning_content or delta.reasoning:
        pieces.append(ThinkingDelta(thought))
    content = delta.content
    if content:
        if isinstance(content, str):
            pieces.append(TextDelta(content))
        else:
            pieces += [piece for bit in content for piece in _bits(bit)]
    if delta.refusal:
        reader.refuse()
        pieces.append(TextDelta(delta.refusal))
    if delta.tool_calls:
        pieces += [_call(call) for call in delta.tool_calls]
    elif delta.function_call:
        pieces.append(_call(_Call(0, None, delta.function_call)))
    return pieces


def _bits(bit: _Bit) -> list[Piece]:
    thinking = bit.thinking
    if isinstance(thinking, list):
        thinking = "".join(inner.text or "" for inner in thinking)
    if thinking:
        return [ThinkingDelta(thinking)]
    return [TextDelta(bit.text)] if bit.text else []


def _call(call: _Call) -> CallDelta:
    function = call.function or _Function()
    arguments = function.arguments or ""
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    return CallDelta(call.index, call.id or None, function.name or None, arguments)


def _usage(usage: _Usage) -> Usage:
    read = usage.prompt_tokens_details or _InputDetails()
    written = usage.completion_tokens_details or _OutputDetails()
    put_in, put_out = usage.prompt_tokens or 0, usage.completion_tokens or 0
    return Usage(
        input=put_in,
        # Some count reasoning apart from completion; it is paid for all the same.
        output=max(put_out, (usage.total_tokens or 0) - put_in),
        cache_read=read.cached_tokens or usage.prompt_cache_hit_tokens or 0,
        cache_write=read.cache_write_tokens or 0,
        reasoning=written.reasoning_tokens or 0,
    )
