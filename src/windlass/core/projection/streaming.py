"""The reply that a model is writing now, as far as it has come."""

from collections.abc import Iterator
from itertools import groupby
from typing import Literal

import msgspec
from msgspec.structs import replace

from windlass.core.events import CallDelta
from windlass.core.messages import TextPart, ThinkingPart, Usage
from windlass.core.projection.shared_log import SharedLog
from windlass.core.reply_assembly import extend_name, find_draft


class ReplyChunk(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A piece of text or of thinking, as it came."""

    kind: Literal["text", "thinking"]
    text: str


class DraftCall(msgspec.Struct, frozen=True, gc=False):
    """A call that the model is writing. It counts only once the reply is complete."""

    index: int | None
    id: str | None
    """The provider's id. The call gets its own id when the reply is complete."""
    name: str = ""
    fragments: SharedLog[str] = msgspec.field(default_factory=SharedLog[str])

    @property
    def arguments(self) -> str:
        """The JSON text of the arguments so far."""
        return "".join(self.fragments)


class StreamingReply(msgspec.Struct, frozen=True, gc=False):
    """The text, thinking and calls of an attempt so far. The complete reply replaces it."""

    step: int = 0
    attempt: int = 1
    model: str = ""
    chunks: SharedLog[ReplyChunk] = msgspec.field(default_factory=SharedLog[ReplyChunk])
    """Text and thinking in the order in which they came. A reader of the chunks since its last
    look has exactly what is new."""
    calls: tuple[DraftCall, ...] = ()
    usage: Usage | None = None
    """What the provider has reported for this attempt so far."""

    @property
    def text(self) -> str:
        """The text so far, without thinking."""
        return "".join(chunk.text for chunk in self.chunks if chunk.kind == "text")

    @property
    def thinking(self) -> str:
        """The thinking so far."""
        return "".join(chunk.text for chunk in self.chunks if chunk.kind == "thinking")

    @property
    def parts(self) -> tuple[TextPart | ThinkingPart, ...]:
        """Text and thinking so far, in order, with chunks of one kind joined."""
        return tuple(self._joined_parts())

    def _joined_parts(self) -> Iterator[TextPart | ThinkingPart]:
        for kind, chunks in groupby(self.chunks, lambda chunk: chunk.kind):
            text = "".join(chunk.text for chunk in chunks)
            yield TextPart(text) if kind == "text" else ThinkingPart(text)

    def add_text(self, kind: Literal["text", "thinking"], text: str) -> "StreamingReply":
        """Return the reply with more text or thinking at its end."""
        return StreamingReply(
            self.step,
            self.attempt,
            self.model,
            self.chunks.append(ReplyChunk(kind, text)),
            self.calls,
            self.usage,
        )

    def add_call_fragment(self, piece: CallDelta) -> "StreamingReply":
        """Return the reply with one more fragment of a call."""
        draft = find_draft(self.calls, piece)
        longer = draft or DraftCall(piece.index, piece.id)
        longer = replace(
            longer,
            id=longer.id or piece.id,
            name=extend_name(longer.name, piece.name),
            fragments=longer.fragments.append(*filter(None, [piece.arguments])),
        )
        if draft is None:
            return replace(self, calls=(*self.calls, longer))
        calls = tuple(longer if call is draft else call for call in self.calls)
        return replace(self, calls=calls)

    def join_chunks(self) -> "StreamingReply":
        """Return the same reply with as few chunks as possible, however it was cut into pieces."""
        whole = replace(self, chunks=SharedLog[ReplyChunk]())
        for part in self.parts:
            kind = "text" if isinstance(part, TextPart) else "thinking"
            whole = whole.add_text(kind, part.text)
        calls = tuple(replace(call, fragments=SharedLog([call.arguments])) for call in self.calls)
        return replace(whole, calls=calls)
