"""Reads the events of OpenAI's responses API.

Invariant: only `response.completed` and `response.incomplete` end a reply. Unknown kinds of
events and items are skipped.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

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
from windlass.models.http.provider_errors import error_from_stream
from windlass.models.http.sse import SseEvent
from windlass.models.reading import (
    InputTokenDetails,
    OutputTokenDetails,
    build_usage,
    decode_known_event,
    decode_reply,
)


class _ResponsesUsage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    input_tokens_details: InputTokenDetails | None = None
    output_tokens_details: OutputTokenDetails | None = None


class _IncompleteReason(msgspec.Struct):
    reason: str | None = None


class _FinishedResponse(msgspec.Struct):
    usage: _ResponsesUsage | None = None
    error: dict[str, Any] | None = None
    incomplete_details: _IncompleteReason | None = None


class _OutputItem(msgspec.Struct):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    encrypted_content: str | None = None


class _ResponsesEvent(msgspec.Struct):
    type: str = ""
    delta: str | None = None
    item_id: str | None = None
    output_index: int | None = None
    summary_index: int = 0
    item: _OutputItem | None = None
    response: _FinishedResponse | None = None


_KNOWN_ITEMS = frozenset(("function_call", "reasoning"))
_KNOWN_KINDS: dict[str, frozenset[str]] = {
    "response.output_text.delta": frozenset(),
    "response.refusal.delta": frozenset(),
    "response.reasoning_text.delta": frozenset(),
    "response.reasoning_summary_text.delta": frozenset(),
    "response.function_call_arguments.delta": frozenset(),
    "response.output_item.added": _KNOWN_ITEMS,
    "response.output_item.done": _KNOWN_ITEMS,
    "response.completed": frozenset(),
    "response.incomplete": frozenset(),
    "response.failed": frozenset(),
}
_decode_event = msgspec.json.Decoder(_ResponsesEvent).decode


class _WholePart(msgspec.Struct):
    type: str = ""
    text: str = ""
    refusal: str = ""


class _WholeItem(msgspec.Struct):
    type: str = ""
    content: list[_WholePart] | None = None
    summary: list[_WholePart] | None = None


class _WholeResponse(msgspec.Struct):
    """A reply that did not stream."""

    object: Literal["response"]
    status: Literal["completed", "incomplete", "failed"]
    output: list[msgspec.Raw]


_decode_response = msgspec.json.Decoder(_WholeResponse).decode
_decode_item = msgspec.json.Decoder(_WholeItem).decode


class ResponsesReader:
    """Reads the response to one request. `output_max` is the output cap of that request."""

    def __init__(self, output_max: int) -> None:
        self._output_max = output_max
        self._calls: dict[int | str, int] = {}
        """The number of each call, by every name that the server has for it."""
        self._calls_with_arguments: set[int] = set()
        self._count = 0
        self._refused = False

    def read_event(self, event: str, data: bytes) -> Iterable[ReplyPiece]:  # noqa: ARG002 - the type is in the data
        if data == b"[DONE]":
            return ()
        got = decode_known_event(_decode_event, data, _KNOWN_KINDS, "item")
        if got is None:
            return ()
        if got.delta:
            return self._read_delta(got, got.delta)
        match got.type:
            case "response.output_item.added" if got.item and got.item.type == "function_call":
                return (self._open_call(got, got.item),)
            case "response.output_item.done" if got.item is not None:
                return self._read_item_done(got, got.item)
            # The parts of a summary are paragraphs.
            case "response.reasoning_summary_part.added" if got.summary_index > 0:
                return (ThinkingDelta("\n\n"),)
            case "response.completed" | "response.incomplete" | "response.failed":
                return self._read_end(got.type, got.response or _FinishedResponse())
            case "error":
                raise error_from_stream(msgspec.json.decode(data))
            case _:
                return ()

    def split_reply(self, body: bytes) -> list[SseEvent] | None:
        """Return the events that a stream would have brought; None if it is not such a reply."""
        reply = decode_reply(_decode_response, body)
        if reply is None:
            return None
        events: list[dict[str, object]] = []
        for index, item in enumerate(reply.output):
            events += _split_item(index, item)
        end = {"type": f"response.{reply.status}", "response": msgspec.Raw(body)}
        return [("", msgspec.json.encode(event)) for event in (*events, end)]

    def _read_delta(self, got: _ResponsesEvent, delta: str) -> Iterable[ReplyPiece]:
        match got.type:
            case "response.output_text.delta":
                return (TextDelta(delta),)
            case "response.refusal.delta":
                self._refused = True
                return (TextDelta(delta),)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return (ThinkingDelta(delta),)
            case "response.function_call_arguments.delta":
                number = self._find_call(got)
                if number is None:
                    return ()
                self._calls_with_arguments.add(number)
                return (CallDelta(number, arguments=delta),)
            case _:
                return ()

    def _read_item_done(self, got: _ResponsesEvent, item: _OutputItem) -> Iterator[ReplyPiece]:
        if item.type == "reasoning" and item.encrypted_content:
            yield ThinkingDelta("", item.encrypted_content)
        if item.type != "function_call":
            return
        number = self._find_call(got)
        if number is None:
            opened = self._open_call(got, item)
            yield opened
            number = opened.index or 0
        # Some servers send the arguments only when they are complete.
        if item.arguments and number not in self._calls_with_arguments:
            self._calls_with_arguments.add(number)
            yield CallDelta(number, arguments=item.arguments)

    def _open_call(self, got: _ResponsesEvent, item: _OutputItem) -> CallDelta:
        number = self._count
        self._count += 1
        for name in (got.output_index, item.id, item.call_id):
            if name is not None:
                self._calls[name] = number
        return CallDelta(number, item.call_id or item.id, item.name)

    def _find_call(self, got: _ResponsesEvent) -> int | None:
        # Not every server numbers its items, and not every server gives them ids.
        item = got.item
        names = (got.output_index, got.item_id, item and item.id, item and item.call_id)
        return next((self._calls[name] for name in names if name in self._calls), None)

    def _read_end(self, kind: str, response: _FinishedResponse) -> Iterator[ReplyPiece]:
        usage = response.usage
        if usage is not None:
            yield UsageDelta(
                build_usage(
                    usage.input_tokens,
                    usage.output_tokens,
                    usage.input_tokens_details,
                    usage.output_tokens_details,
                )
            )
        if kind == "response.failed":
            raise _failure_error(response.error or {})
        # Some servers call a reply complete although they cut it off at the cap.
        reached_cap = usage is not None and usage.output_tokens >= self._output_max
        cut = kind == "response.incomplete" or reached_cap
        details = response.incomplete_details or _IncompleteReason()
        yield ReplyEnd(self._stop_reason(details.reason, cut=cut))

    def _stop_reason(self, reason: str | None, *, cut: bool) -> StopReason:
        if self._refused or reason == "content_filter":
            return "refusal"
        if cut:
            return "length"
        return "calls" if self._count else "end"


def _split_item(index: int, raw: msgspec.Raw) -> Iterator[dict[str, object]]:
    """Yield the events of one item of a reply that did not stream."""
    item = decode_reply(_decode_item, bytes(raw)) or _WholeItem()
    for at, part in enumerate(item.summary or ()):
        yield {"type": "response.reasoning_summary_part.added", "summary_index": at}
        yield {"type": "response.reasoning_summary_text.delta", "delta": part.text}
    for part in item.content or ():
        match part.type:
            case "output_text":
                yield {"type": "response.output_text.delta", "delta": part.text}
            case "refusal":
                yield {"type": "response.refusal.delta", "delta": part.refusal}
            case "reasoning_text":
                yield {"type": "response.reasoning_text.delta", "delta": part.text}
            case _:
                pass
    yield {"type": "response.output_item.done", "output_index": index, "item": raw}


def _failure_error(error: dict[str, Any]) -> ModelError:
    code = str(error.get("code") or "")
    # Codes about the prompt and its images say what is wrong, but not that the request is at fault.
    if code.startswith("invalid_") or "image" in code:
        error = {**error, "type": "invalid_request_error"}
    return error_from_stream(error)
