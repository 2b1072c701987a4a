"""The events of OpenAI's responses, as pieces.

The law: only `response.completed` and `response.incomplete` end a reply (S8). Kinds of events and
items that are not known here are passed over.
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
from windlass.models.reader_helpers import is_known, malformed


class _InputDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Reason(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    usage: _Usage | None = None
    error: dict[str, Any] | None = None
    incomplete_details: _Reason | None = None


class _Item(msgspec.Struct):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    encrypted_content: str | None = None


class _Event(msgspec.Struct):
    type: str = ""
    delta: str | None = None
    item_id: str | None = None
    output_index: int | None = None
    summary_index: int = 0
    item: _Item | None = None
    response: _Response | None = None


_ITEMS = frozenset(("function_call", "reasoning"))
_KNOWN: dict[str, frozenset[str]] = {
    "response.output_text.delta": frozenset(),
    "response.refusal.delta": frozenset(),
    "response.reasoning_text.delta": frozenset(),
    "response.reasoning_summary_text.delta": frozenset(),
    "response.function_call_arguments.delta": frozenset(),
    "response.output_item.added": _ITEMS,
    "response.output_item.done": _ITEMS,
    "response.completed": frozenset(),
    "response.incomplete": frozenset(),
    "response.failed": frozenset(),
}
_decode = msgspec.json.Decoder(_Event).decode


class ResponsesReader:
    """Reads one response to a request with this output cap."""

    def __init__(self, output_max: int) -> None:
        self._output_max = output_max
        self._calls: dict[int | str, int] = {}
        """The number of each call, by every name that the server has for it."""
        self._filled: set[int] = set()
        """The calls whose arguments came."""
        self._count = 0
        self._refused = False

    def read(self, event: str, data: bytes) -> Iterable[Piece]:  # noqa: ARG002 - it is in the data
        if data == b"[DONE]":
            return ()
        try:
            got = _decode(data)
        except msgspec.ValidationError as error:
            if is_known(data, _KNOWN, "item"):
                raise malformed(error) from error
            return ()
        except msgspec.DecodeError as error:
            raise malformed(error) from error
        if got.delta:
            return self._delta(got, got.delta)
        match got.type:
            case "response.output_item.added" if got.item is not None:
                return self._added(got, got.item)
            case "response.output_item.done" if got.item is not None:
                return self._done(got, got.item)
            case "response.reasoning_summary_part.added" if got.summary_index > 0:
                return (ThinkingDelta("\n\n"),)
            case "response.completed" | "response.incomplete" | "response.failed":
                return self._ended(got.type, got.response or _Response())
            case "error":
                raise from_stream(msgspec.json.decode(data))
            case _:
                return ()

    def _delta(self, got: _Event, delta: str) -> Iterable[Piece]:
        match got.type:
            case "response.output_text.delta":
                return (TextDelta(delta),)
            case "response.refusal.delta":
                self._refused = True
                return (TextDelta(delta),)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return (ThinkingDelta(delta),)
            case "response.function_call_arguments.delta":
                number = self._number(got)
                if number is None:
                    return ()
                self._filled.add(number)
                return (CallDelta(number, arguments=delta),)
            case _:
                return ()

    def _added(self, got: _Event, item: _Item) -> Iterable[Piece]:
        return (self._opened(got, item),) if item.type == "function_call" else ()

    def _done(self, got: _Event, item: _Item) -> Iterator[Piece]:
        if item.type == "reasoning" and item.encrypted_content:
            yield ThinkingDelta("", item.encrypted_content)
        if item.type != "function_call":
            return
        number = self._number(got)
        if number is None:
            opened = self._opened(got, item)
            yield opened
            number = opened.index or 0
        # Some servers give the arguments only when they are whole.
        if item.arguments and number not in self._filled:
            self._filled.add(number)
            yield CallDelta(number, arguments=item.arguments)

    def _opened(self, got: _Event, item: _Item) -> CallDelta:
        number, self._count = self._count, self._count + 1
        for name in (got.output_index, item.id, item.call_id):
            if name is not None:
                self._calls[name] = number
        return CallDelta(number, item.call_id or item.id, item.name)

    def _number(self, got: _Event) -> int | None:
        """Not every server numbers its items, and not every server gives them ids."""
        item = got.item
        names = (got.output_index, got.item_id, item and item.id, item and item.call_id)
        return next((self._calls[name] for name in names if name in self._calls), None)

    def _ended(self, kind: str, response: _Response) -> Iterator[Piece]:
        used = 0
        if response.usage is not None:
            used = response.usage.output_tokens
            yield UsageDelta(_total(response.usage))
        if kind == "response.failed":
            raise _failure(response.error or {})
        details = response.incomplete_details
        # Some servers call a reply complete that they cut off at the cap.
        cut = kind == "response.incomplete" or used >= self._output_max
        yield ReplyEnd(self._stop(details.reason if details else None, cut=cut))

    def _stop(self, reason: str | None, *, cut: bool) -> Stop:
        if self._refused or reason == "content_filter":
            return "refusal"
        if cut:
            return "length"
        return "calls" if self._count else "end"


def _total(usage: _Usage) -> Usage:
    came, made = usage.input_tokens_details, usage.output_tokens_details
    return Usage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cache_read=(came.cached_tokens or 0) if came else 0,
        cache_write=(came.cache_write_tokens or 0) if came else 0,
        reasoning=(made.reasoning_tokens or 0) if made else 0,
    )


def _failure(error: dict[str, Any]) -> ModelError:
    """Codes about the prompt and its images say what is wrong, but not that it is a bad request."""
    code = str(error.get("code") or "")
    if code.startswith("invalid_") or "image" in code:
        error = {**error, "type": "invalid_request_error"}
    return from_stream(error)
