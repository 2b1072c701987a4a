"""The words of a script: what a scripted model can say, and how it can fail to."""

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
from windlass.core.faults import FaultKind
from windlass.core.messages import Usage


class ScriptedText(msgspec.Struct, frozen=True):
    """Text or thinking, streamed in pieces of a few characters."""

    text: str
    kind: Literal["text", "thinking"] = "text"
    signature: str | None = None

    def split_pieces(self, chars: int) -> list[ReplyPiece]:
        tokens = [self.text[at : at + chars] for at in range(0, len(self.text), chars)]
        if self.kind == "text":
            return [TextDelta(token) for token in tokens]
        thoughts: list[ReplyPiece] = [ThinkingDelta(token) for token in tokens]
        if self.signature is not None:
            thoughts.append(ThinkingDelta("", self.signature))
        return thoughts


class ScriptedCall(msgspec.Struct, frozen=True):
    """One tool call, in one piece or in fragments of its arguments."""

    name: str
    arguments: str
    id: str | None = None
    index: int | None = None
    chars: int | None = None

    def split_pieces(self, at: int, call_id: str) -> list[ReplyPiece]:
        """Number and id are its place in the reply unless the script says otherwise."""
        index = at if self.index is None else self.index
        head = CallDelta(index, self.id or call_id, self.name)
        if self.chars is None:
            return [CallDelta(index, head.id, self.name, self.arguments)]
        starts = range(0, len(self.arguments), self.chars)
        parts = [self.arguments[start : start + self.chars] for start in starts]
        return [head, *(CallDelta(index, arguments=part) for part in parts)]


class ScriptedPause(msgspec.Struct, frozen=True):
    seconds: float


class ScriptedStall(msgspec.Struct, frozen=True):
    """Silence, until someone cancels."""


class StreamCut(msgspec.Struct, frozen=True):
    """The end of the stream, without the end marker."""


class ScriptedFailure(msgspec.Struct, frozen=True):
    kind: FaultKind
    message: str
    retryable: bool | None = None
    retry_after_s: float | None = None

    def new_error(self) -> ModelError:
        """A new one each time: a raised error keeps its traceback."""
        again, after_s = self.retryable, self.retry_after_s
        return ModelError(self.kind, self.message, retryable=again, retry_after_s=after_s)


ScriptAct = ScriptedPause | ScriptedStall | StreamCut | ScriptedFailure
ScriptItem = ReplyPiece | ScriptedText | ScriptedCall | ScriptAct


def say(text: str) -> ScriptedText:
    return ScriptedText(text)


def think(text: str, signature: str | None = None) -> ScriptedText:
    return ScriptedText(text, "thinking", signature)


def call(
    tool: str,
    arguments: dict[str, Any] | str | None = None,
    *,
    id: str | None = None,  # noqa: A002 - the word of the wire
    index: int | None = None,
    chars: int | None = None,
) -> ScriptedCall:
    """A call. A text goes out as it is, broken or not; `chars` streams it in fragments."""
    raw = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
    return ScriptedCall(tool, raw, id, index, chars)


def usage(
    *,
    input: int = 0,  # noqa: A002 - the word of `Usage`
    output: int = 0,
    cache_read: int = 0,
    cache_write: int = 0,
) -> UsageDelta:
    """What the provider reports of the attempt so far."""
    return UsageDelta(Usage(input, output, cache_read, cache_write))


def pause(seconds: float) -> ScriptedPause:
    return ScriptedPause(seconds)


def stall() -> ScriptedStall:
    return ScriptedStall()


def drop(message: str = "the connection was lost") -> ScriptedFailure:
    return ScriptedFailure("network", message)


def cut() -> StreamCut:
    return StreamCut()


def fail(
    kind: FaultKind,
    message: str = "",
    *,
    retryable: bool | None = None,
    retry_after_s: float | None = None,
) -> ScriptedFailure:
    """The request fails here. As the first item, it fails at the door."""
    return ScriptedFailure(kind, message or f"scripted: {kind}", retryable, retry_after_s)


def refuse(text: str = "") -> list[ScriptItem]:
    return [*([say(text)] if text else []), ReplyEnd("refusal")]


def length() -> ReplyEnd:
    """The model hit its limit of output."""
    return end("length")


def end(stop: StopReason = "end") -> ReplyEnd:
    return ReplyEnd(stop)
