"""The vocabulary of scripts: what a scripted model can say, and how its stream can fail."""

from typing import Any, Literal

import msgspec

from windlass.core.errors import FaultKind, ModelError
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


class ScriptedText(msgspec.Struct, frozen=True):
    """Text or thinking, streamed in pieces of a few characters."""

    text: str
    kind: Literal["text", "thinking"] = "text"
    signature: str | None = None

    def split_pieces(self, chars: int) -> list[ReplyPiece]:
        """Return the deltas, each with `chars` characters."""
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
        """Return the deltas. Index and id follow from `at` unless the script sets them."""
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
    """Silence until the request is cancelled."""


class StreamCut(msgspec.Struct, frozen=True):
    """The stream ends without its end marker."""


class ScriptedFailure(msgspec.Struct, frozen=True):
    kind: FaultKind
    message: str
    retryable: bool | None = None
    retry_after_s: float | None = None

    def new_error(self) -> ModelError:
        """Return a new error each time, because a raised error keeps its traceback."""
        return ModelError(
            self.kind,
            self.message,
            retryable=self.retryable,
            retry_after_s=self.retry_after_s,
        )


ScriptAct = ScriptedPause | ScriptedStall | StreamCut | ScriptedFailure
ScriptItem = ReplyPiece | ScriptedText | ScriptedCall | ScriptAct


def say(text: str) -> ScriptedText:
    """Text of the reply."""
    return ScriptedText(text)


def think(text: str, signature: str | None = None) -> ScriptedText:
    """Thinking of the model, with the signature that some providers add."""
    return ScriptedText(text, "thinking", signature)


def call(
    tool: str,
    arguments: dict[str, Any] | str | None = None,
    *,
    id: str | None = None,  # noqa: A002 - the word of the wire
    index: int | None = None,
    chars: int | None = None,
) -> ScriptedCall:
    """A tool call.

    Arguments that are a text are sent as they are, even if they are not valid JSON. With `chars`
    the arguments are streamed in fragments of that many characters.
    """
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments or {}).decode()
    return ScriptedCall(tool, arguments, id, index, chars)


def usage(
    *,
    input: int = 0,  # noqa: A002 - the word of `Usage`
    output: int = 0,
    cache_read: int = 0,
    cache_write: int = 0,
) -> UsageDelta:
    """The usage that the provider reports for the attempt so far, in tokens."""
    return UsageDelta(Usage(input, output, cache_read, cache_write))


def pause(seconds: float) -> ScriptedPause:
    """Silence for some seconds."""
    return ScriptedPause(seconds)


def stall() -> ScriptedStall:
    """Silence until the request is cancelled."""
    return ScriptedStall()


def drop(message: str = "the connection was lost") -> ScriptedFailure:
    """The connection is lost here."""
    return ScriptedFailure("network", message)


def cut() -> StreamCut:
    """The stream ends here, without its end marker."""
    return StreamCut()


def fail(
    kind: FaultKind,
    message: str = "",
    *,
    retryable: bool | None = None,
    retry_after_s: float | None = None,
) -> ScriptedFailure:
    """The request fails here. As the first item: it fails before any output."""
    return ScriptedFailure(kind, message or f"scripted: {kind}", retryable, retry_after_s)


def refuse(text: str = "") -> list[ScriptItem]:
    """The model refuses to answer, with a text if one is given."""
    refusal = ReplyEnd("refusal")
    return [say(text), refusal] if text else [refusal]


def length() -> ReplyEnd:
    """The reply stops because the model reached its output limit."""
    return end("length")


def end(stop: StopReason = "end") -> ReplyEnd:
    """The end marker of the reply."""
    return ReplyEnd(stop)
