"""Reads the events of Gemini's generateContent API.

Invariant: only a `finishReason`, or the notice that the prompt was blocked, ends a reply. The API
sends no other end marker. Some proxies send `STOP` before the first content, so `STOP` ends a reply
only if nothing follows. If the API itself calls a reply malformed, that is an error, and another
attempt may succeed.
"""

from collections.abc import Iterable, Iterator
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
from windlass.models.reading import decode_reply, malformed_stream_error, refused_call_note

_STOP_REASONS: dict[str, StopReason] = {
    "MAX_TOKENS": "length",
    "SAFETY": "refusal",
    "RECITATION": "refusal",
    "LANGUAGE": "refusal",
    "BLOCKLIST": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "SPII": "refusal",
    "IMAGE_SAFETY": "refusal",
    "IMAGE_PROHIBITED_CONTENT": "refusal",
    "IMAGE_RECITATION": "refusal",
    "ESCALATION": "refusal",
}
_MALFORMED_REASONS = frozenset(
    ("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "OTHER")
)
"""The model made a mistake, and not the request. The next attempt may succeed."""
_REFUSED_CALLS = frozenset(("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"))
"""Those of them that are about a call, so that the model gets a note about it."""


class _GeminiCall(msgspec.Struct):
    name: str = ""
    id: str | None = None
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _GeminiPart(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool = False
    thought_signature: str | None = None
    function_call: _GeminiCall | None = None


class _GeminiContent(msgspec.Struct):
    parts: list[_GeminiPart] = []


class _GeminiCandidate(msgspec.Struct, rename="camel"):
    index: int | None = None
    content: _GeminiContent | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class _GeminiFeedback(msgspec.Struct, rename="camel"):
    block_reason: str | None = None


class _GeminiUsage(msgspec.Struct, rename="camel"):
    prompt_token_count: int = 0
    tool_use_prompt_token_count: int = 0
    cached_content_token_count: int = 0
    candidates_token_count: int = 0
    thoughts_token_count: int = 0


class _GeminiChunk(msgspec.Struct, rename="camel"):
    candidates: list[_GeminiCandidate] = []
    usage_metadata: _GeminiUsage | None = None
    prompt_feedback: _GeminiFeedback | None = None
    error: dict[str, Any] | None = None


_decode_chunk = msgspec.json.Decoder(_GeminiChunk).decode
_decode_chunks = msgspec.json.Decoder(list[msgspec.Raw]).decode


class GeminiReader:
    """Reads one response."""

    def __init__(self) -> None:
        self._calls = 0
        self._has_content = False
        self._stopped_empty = False
        """The API said STOP before any content."""

    @property
    def is_finishing(self) -> bool:
        """Whether the API said that the model stopped, but there is no content yet."""
        return self._stopped_empty and not self._has_content

    def finish(self) -> list[ReplyPiece]:
        """Return the end of a reply that stayed empty."""
        return [ReplyEnd("end")] if self.is_finishing else []

    def read_event(self, event: str, data: bytes) -> Iterable[ReplyPiece]:  # noqa: ARG002 - events have no names here
        try:
            chunk = _decode_chunk(data)
        except msgspec.DecodeError as error:
            raise malformed_stream_error(error) from error
        return self._read_chunk(chunk)

    def split_reply(self, body: bytes) -> list[SseEvent] | None:
        """Return the events that a stream would have brought; None if it is not such a reply.

        Without `alt=sse` the API streams an array of the same chunks.
        """
        chunks = decode_reply(_decode_chunks, body) or [msgspec.Raw(body)]
        decoded = [decode_reply(_decode_chunk, bytes(chunk)) for chunk in chunks]
        if not any(chunk and (chunk.candidates or chunk.prompt_feedback) for chunk in decoded):
            return None
        return [("", bytes(chunk)) for chunk in chunks]

    def _read_chunk(self, chunk: _GeminiChunk) -> Iterator[ReplyPiece]:
        # Usage comes first: it counts even if the rest of the chunk is an error.
        if chunk.usage_metadata is not None:
            yield UsageDelta(_convert_usage(chunk.usage_metadata))
        if chunk.error is not None:
            raise error_from_stream(chunk.error)
        # Of several candidates only the first one counts.
        for candidate in [one for one in chunk.candidates if not one.index][:1]:
            for part in candidate.content.parts if candidate.content else ():
                yield from self._read_part(part)
            if candidate.finish_reason is not None:
                yield from self._read_finish(candidate.finish_reason, candidate.finish_message)
        blocked = chunk.prompt_feedback and chunk.prompt_feedback.block_reason
        if blocked and not chunk.candidates:
            yield ReplyEnd("refusal")

    def _read_part(self, part: _GeminiPart) -> Iterator[ReplyPiece]:
        self._has_content = True
        signature = part.thought_signature or None
        if part.function_call is not None:
            call = part.function_call
            arguments = bytes(call.args).decode()
            yield CallDelta(self._calls, call.id or None, call.name, arguments, signature)
            self._calls += 1
        elif part.thought:
            if part.text or signature:
                yield ThinkingDelta(part.text or "", signature)
        else:
            if part.text:
                yield TextDelta(part.text)
            # An answer has no field for a signature, so it follows as an empty thought, just as
            # a signature that the API sends on its own.
            if signature:
                yield ThinkingDelta("", signature)

    def _read_finish(self, reason: str, message: str | None) -> Iterator[ReplyPiece]:
        if reason in _MALFORMED_REASONS:
            text = f"the model's reply was not usable ({reason})"
            if message:
                text = f"{text}: {message}"
            note = refused_call_note(message or reason) if reason in _REFUSED_CALLS else ""
            raise ModelError("malformed_stream", text, note=note)
        if reason == "MISSING_THOUGHT_SIGNATURE":
            text = "the history lacks a signature of the model's thoughts"
            raise ModelError("bad_request", text)
        if reason == "STOP" and not self._has_content:
            self._stopped_empty = True
        elif reason != "FINISH_REASON_UNSPECIFIED":
            yield ReplyEnd(_STOP_REASONS.get(reason, "calls" if self._calls else "end"))


def _convert_usage(usage: _GeminiUsage) -> Usage:
    # The API counts thoughts apart from the answer, and cached tokens as part of the prompt.
    return Usage(
        input=usage.prompt_token_count + usage.tool_use_prompt_token_count,
        output=usage.candidates_token_count + usage.thoughts_token_count,
        cache_read=usage.cached_content_token_count,
        reasoning=usage.thoughts_token_count,
    )
