"""The words of a script: what a scripted model can say, and how it can fail to."""

from typing import Any, Literal

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
from windlass.core.faults import FaultKind
from windlass.core.messages import Usage


class Words(msgspec.Struct, frozen=True):
    """Text or thinking, streamed in pieces of a few characters."""

    text: str
    kind: Literal["text", "thinking"] = "text"
    signature: str | None = None

    def pieces(self, chars: int) -> list[Piece]:
        tokens = [self.text[at : at + chars] for at in range(0, len(self.text), chars)]
        if self.kind == "text":
            return [TextDelta(token) for token in tokens]
        thoughts: list[Piece] = [ThinkingDelta(token) for token in tokens]
        if self.signature is not None:
            thoughts.append(ThinkingDelta("", self.signature))
        return thoughts


class Calls(msgspec.Struct, frozen=True):
    """One tool call, in one piece or in fragments of its arguments."""

    name: str
    arguments: str
    id: str | None = None
    index: int | None = None
    chars: int | None = None

    def pieces(self, at: int, call_id: str) -> list[Piece]:
        """Number and id are its place in the reply unless the script says otherwise."""
        index = at if self.index is None else self.index
        head = CallDelta(index, self.id or call_id, self.name)
        if self.chars is None:
            return [CallDelta(index, head.id, self.name, self.arguments)]
        starts = range(0, len(self.arguments), self.chars)
        parts = [self.arguments[start : start + self.chars] for start in starts]
        return [head, *(CallDelta(index, arguments=part) for part in parts)]


class Pause(msgspec.Struct, frozen=True):
    seconds: float


class Stall(msgspec.Struct, frozen=True):
    """Silence, until someone cancels."""


class Cut(msgspec.Struct, frozen=True):
    """The end of the stream, without the end marker."""


class Fail(msgspec.Struct, frozen=True):
    kind: FaultKind
    message: str
    retryable: bool | None = None
    retry_after_s: float | None = None

    def error(self) -> ModelError:
        """A new one each time: a raised error keeps its traceback."""
        again, after_s = self.retryable, self.retry_after_s
        return ModelError(self.kind, self.message, retryable=again, retry_after_s=after_s)


Act = Pause | Stall | Cut | Fail
Item = Piece | Words | Calls | Act


def say(text: str) -> Words:
    return Words(text)


def think(text: str, signature: str | None = None) -> Words:
    return Words(text, "thinking", signature)


def call(
    tool: str,
    arguments: dict[str, Any] | str | None = None,
    *,
    id: str | None = None,  # noqa: A002 - the word of the wire
    index: int | None = None,
    chars: int | None = None,
) -> Calls:
    """A call. A text goes out as it is, broken or not; `chars` streams it in fragments."""
    raw = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
    return Calls(tool, raw, id, index, chars)


def usage(
    *,
    input: int = 0,  # noqa: A002 - the word of `Usage`
    output: int = 0,
    cache_read: int = 0,
    cache_write: int = 0,
) -> UsageDelta:
    """What the provider reports of the attempt so far."""
    return UsageDelta(Usage(input, output, cache_read, cache_write))


def pause(seconds: float) -> Pause:
    return Pause(seconds)


def stall() -> Stall:
    return Stall()


def drop(message: str = "the connection was lost") -> Fail:
    return Fail("network", message)


def cut() -> Cut:
    return Cut()


def fail(
    kind: FaultKind,
    message: str = "",
    *,
    retryable: bool | None = None,
    retry_after_s: float | None = None,
) -> Fail:
    """The request fails here. As the first item, it fails at the door."""
    return Fail(kind, message or f"scripted: {kind}", retryable, retry_after_s)


def refuse(text: str = "") -> list[Item]:
    return [*([say(text)] if text else []), ReplyEnd("refusal")]


def length() -> ReplyEnd:
    """The model hit its limit of output."""
    return end("length")


def end(stop: Stop = "end") -> ReplyEnd:
    return ReplyEnd(stop)
