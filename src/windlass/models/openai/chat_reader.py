"""Reads the chunks of OpenAI's chat completions API.

Invariant: the reply ends once, after a `finish_reason` or at `[DONE]`. Some servers repeat that
reason, some send usage behind it, and some never send it. So the end is announced at `[DONE]`, and
after a `finish_reason` also behind the usage or when the stream is over.
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
from windlass.models.http.provider_errors import error_from_stream
from windlass.models.http.sse import SseEvent
from windlass.models.reading import (
    InputTokenDetails,
    OutputTokenDetails,
    build_usage,
    decode_reply,
    malformed_stream_error,
)

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
"""Finish reasons that mean the server gave up in the middle of its reply."""


class _ChatFunction(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _ChatCall(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _ChatFunction | None = None


class _ChatContentPart(msgspec.Struct, gc=False):
    """A part of Mistral's content: text, or thinking that consists of texts."""

    type: str = ""
    text: str | None = None
    thinking: "list[_ChatContentPart] | str | None" = None


class _ChatDelta(msgspec.Struct, gc=False):
    content: str | list[_ChatContentPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_ChatCall] | None = None
    function_call: _ChatFunction | None = None


class _ChatChoice(msgspec.Struct, gc=False):
    index: int | None = None
    delta: _ChatDelta | None = None
    message: _ChatDelta | None = None
    """The whole message of a reply that did not stream. It has the fields of a delta."""
    finish_reason: str | None = None


class _ChatUsage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: InputTokenDetails | None = None
    completion_tokens_details: OutputTokenDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    """DeepSeek's name for the cached tokens."""


class _GroqExtra(msgspec.Struct, gc=False):
    usage: _ChatUsage | None = None


class _ChatChunk(msgspec.Struct, gc=False):
    choices: list[_ChatChoice] | None = None
    usage: _ChatUsage | None = None
    x_groq: _GroqExtra | None = None
    error: Any = None
    object: str | None = None


_decode_chunk = msgspec.json.Decoder(_ChatChunk).decode


class ChatReader:
    """Reads the events of one response."""

    __slots__ = ("_ended", "_has_calls", "_is_whole", "_refused", "_stop")

    def __init__(self) -> None:
        self._stop: StopReason | None = None
        self._has_calls = False
        self._is_whole = False
        """The reply did not stream, although it should have."""
        self._refused = False
        self._ended = False

    def read_event(self, event: str, data: bytes) -> list[ReplyPiece]:
        if data == b"[DONE]":
            # It is an end marker of its own: some servers (Snowflake's) send no finish reason.
            self._stop = self._stop or ("calls" if self._has_calls else "end")
            return self.finish()
        try:
            chunk = _decode_chunk(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise malformed_stream_error(error) from error
        choices = chunk.choices
        # A shortcut for nearly all chunks: one delta of text, and nothing else.
        if choices and chunk.usage is None and chunk.error is None and not event:
            choice = choices[0]
            if choice.delta is not None and choice.finish_reason is None and not choice.index:
                return self._read_delta(choice.delta)
        return self._read_uncommon(event, data, chunk)

    def split_reply(self, body: bytes) -> list[SseEvent] | None:
        """Return the events that a stream would have brought; None if it is not such a reply."""
        reply = decode_reply(_decode_chunk, body)
        if reply is None or not any(choice.message for choice in reply.choices or ()):
            return None
        self._is_whole = True
        return [("", body), ("", b"[DONE]")]

    @property
    def is_finishing(self) -> bool:
        """Whether the model has finished its reply, and the end marker has not come yet."""
        return self._stop is not None and not self._ended

    def finish(self) -> list[ReplyPiece]:
        """Return the end of the reply if the model had finished it and it was not announced yet."""
        if self._stop is None or self._ended:
            return []
        self._ended = True
        return [ReplyEnd("refusal" if self._refused else self._stop)]

    def _read_uncommon(self, event: str, data: bytes, chunk: _ChatChunk) -> list[ReplyPiece]:
        if chunk.error is not None or "error" in (event, chunk.object):
            raise error_from_stream(data)
        pieces: list[ReplyPiece] = []
        # A server that makes several replies at once numbers them. Only the first one counts.
        for choice in [choice for choice in chunk.choices or () if not choice.index][:1]:
            # Some servers repeat the whole message at the end of a stream: there it does not count.
            delta = choice.message if self._is_whole else choice.delta
            if delta is not None:
                pieces += self._read_delta(delta)
            if choice.finish_reason in _FAILURE_REASONS:
                message = f"the server ended its reply with an error ({choice.finish_reason})"
                raise ModelError("server", message)
            if choice.finish_reason:
                self._stop = _STOP_REASONS.get(choice.finish_reason, "end")
        usage = chunk.usage or (chunk.x_groq.usage if chunk.x_groq else None)
        if usage is not None:
            pieces.append(UsageDelta(_convert_usage(usage)))
            # A chunk of nothing but usage is the last one.
            if not chunk.choices:
                pieces += self.finish()
        return pieces

    def _read_delta(self, delta: _ChatDelta) -> list[ReplyPiece]:
        pieces: list[ReplyPiece] = []
        if thought := delta.reasoning_content or delta.reasoning:
            pieces.append(ThinkingDelta(thought))
        content = delta.content
        if content:
            if isinstance(content, str):
                pieces.append(TextDelta(content))
            else:
                pieces += [piece for part in content for piece in _read_content_part(part)]
        if delta.refusal:
            self._refused = True
            pieces.append(TextDelta(delta.refusal))
        if delta.tool_calls:
            self._has_calls = True
            pieces += map(_read_call, delta.tool_calls)
        elif delta.function_call:
            self._has_calls = True
            pieces.append(_read_call(_ChatCall(0, None, delta.function_call)))
        return pieces


def _read_content_part(part: _ChatContentPart) -> list[ReplyPiece]:
    thinking = part.thinking
    if isinstance(thinking, list):
        thinking = "".join(inner.text or "" for inner in thinking)
    if thinking:
        return [ThinkingDelta(thinking)]
    return [TextDelta(part.text)] if part.text else []


def _read_call(call: _ChatCall) -> CallDelta:
    function = call.function or _ChatFunction()
    arguments = function.arguments or ""
    # Some servers send the arguments as an object, and not as its text.
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    return CallDelta(call.index, call.id or None, function.name or None, arguments)


def _convert_usage(usage: _ChatUsage) -> Usage:
    input_tokens = usage.prompt_tokens or 0
    # Some servers leave reasoning out of the completion, but bill for it.
    output_tokens = max(usage.completion_tokens or 0, (usage.total_tokens or 0) - input_tokens)
    details = usage.prompt_tokens_details or InputTokenDetails()
    details.cached_tokens = details.cached_tokens or usage.prompt_cache_hit_tokens
    return build_usage(input_tokens, output_tokens, details, usage.completion_tokens_details)
