"""The events of Gemini's generateContent, as pieces.

The law: only a `finishReason`, or the word that the prompt was blocked, ends a reply (S8). A reply
that the API itself calls malformed is none: it is asked for again.
"""

from collections.abc import Iterable, Iterator
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
from windlass.models.reader_helpers import malformed

_STOPS: dict[str, Stop] = {
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
_BROKEN = frozenset(
    ("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "OTHER")
)
"""The model, and not the request, went wrong; the next try may go well."""


class _Call(msgspec.Struct):
    name: str = ""
    id: str | None = None
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Part(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool = False
    thought_signature: str | None = None
    function_call: _Call | None = None


class _Content(msgspec.Struct):
    parts: list[_Part] = []


class _Candidate(msgspec.Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class _Feedback(msgspec.Struct, rename="camel"):
    block_reason: str | None = None


class _Usage(msgspec.Struct, rename="camel"):
    prompt_token_count: int = 0
    tool_use_prompt_token_count: int = 0
    cached_content_token_count: int = 0
    candidates_token_count: int = 0
    thoughts_token_count: int = 0


class _Chunk(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] = []
    usage_metadata: _Usage | None = None
    prompt_feedback: _Feedback | None = None
    error: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Chunk).decode


class GeminiReader:
    """Reads one response."""

    def __init__(self) -> None:
        self._calls = 0

    def read(self, event: str, data: bytes) -> Iterable[Piece]:  # noqa: ARG002 - there are no names
        try:
            chunk = _decode(data)
        except msgspec.DecodeError as error:
            raise malformed(error) from error
        return self._pieces(chunk)

    def _pieces(self, chunk: _Chunk) -> Iterator[Piece]:
        if chunk.usage_metadata is not None:
            yield UsageDelta(_total(chunk.usage_metadata))
        if chunk.error is not None:
            raise from_stream(chunk.error)
        for candidate in chunk.candidates[:1]:
            for part in candidate.content.parts if candidate.content else ():
                yield from self._part(part)
            if candidate.finish_reason is not None:
                yield from self._end(candidate.finish_reason, candidate.finish_message)
        blocked = chunk.prompt_feedback and chunk.prompt_feedback.block_reason
        if blocked and not chunk.candidates:
            yield ReplyEnd("refusal")

    def _part(self, part: _Part) -> Iterator[Piece]:
        signature = part.thought_signature or None
        if part.function_call is not None:
            call, number = part.function_call, self._calls
            self._calls += 1
            arguments = bytes(call.args).decode()
            yield CallDelta(number, call.id or None, call.name, arguments, signature)
        elif part.thought:
            if part.text or signature:
                yield ThinkingDelta(part.text or "", signature)
        else:
            if part.text:
                yield TextDelta(part.text)
            # An answer has no place for a signature; it stands behind, as when it comes alone.
            if signature:
                yield ThinkingDelta("", signature)

    def _end(self, reason: str, message: str | None) -> Iterator[Piece]:
        if reason in _BROKEN:
            said = f": {message}" if message else ""
            raise ModelError("malformed_stream", f"the model's reply went wrong ({reason}){said}")
        if reason == "MISSING_THOUGHT_SIGNATURE":
            raise ModelError("bad_request", "the history lacks a signature of the model's thoughts")
        if reason != "FINISH_REASON_UNSPECIFIED":
            yield ReplyEnd(_STOPS.get(reason, "calls" if self._calls else "end"))


def _total(usage: _Usage) -> Usage:
    """The API counts thoughts apart from the answer, and what is cached as part of the prompt."""
    return Usage(
        input=usage.prompt_token_count + usage.tool_use_prompt_token_count,
        output=usage.candidates_token_count + usage.thoughts_token_count,
        cache_read=usage.cached_content_token_count,
        reasoning=usage.thoughts_token_count,
    )
