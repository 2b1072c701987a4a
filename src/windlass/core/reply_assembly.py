"""Pieces of a model's stream in, one complete reply out.

An assembly belongs to one attempt. A new attempt starts with a new one, so that fragments of two
attempts never mix.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Protocol, TypeVar

import msgspec

from windlass.core.errors import ModelError
from windlass.core.events import (
    CallDelta,
    ContentPiece,
    ReplyEnd,
    ReplyPiece,
    ReplyRestarted,
    StopReason,
    StreamOpened,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.messages import (
    AssistantMessage,
    ReplyPart,
    TextPart,
    ThinkingPart,
    ToolCall,
    Usage,
)

NAME_CHARS_MAX = 128
"""How much of the name of a call is kept. The names of tools have 64 characters at most."""


CALLS_MAX = 1_000
"""A reply with more calls is ended there. Only `calls_per_reply_max` of them may run anyway."""


class OpenDraft(Protocol):
    """A call that is still being written."""

    @property
    def index(self) -> int | None: ...
    @property
    def id(self) -> str | None: ...


DraftT = TypeVar("DraftT", bound=OpenDraft)


class _CallDraft(msgspec.Struct):
    """A call as far as it has come."""

    index: int | None
    id: str | None
    name: str = ""
    signature: str | None = None
    arguments: list[str] = msgspec.field(default_factory=list[str])
    origin: str = ""


class _TextBlock(msgspec.Struct):
    """A block of text or of thinking as far as it has come."""

    thinking: bool
    pieces: list[str] = msgspec.field(default_factory=list[str])
    signature: str | None = None


class ReplyAssembly:
    """The reply of one attempt, as far as it has come."""

    __slots__ = (
        "_blocks",
        "_calls",
        "_open_text",
        "has_too_many_calls",
        "output_chars",
        "stop",
        "usage",
    )

    def __init__(self) -> None:
        self._blocks: list[_TextBlock | _CallDraft] = []
        self._calls: list[_CallDraft] = []
        self._open_text: _TextBlock | None = None
        self.output_chars = 0
        """Characters of text, thinking and calls so far, without signatures."""
        self.has_too_many_calls = False
        """Whether more than CALLS_MAX calls have come."""
        self.usage: Usage | None = None
        self.stop: StopReason | None = None
        """None until the provider's end marker has come."""

    def add_piece(self, piece: ReplyPiece) -> None:
        """Add the next piece. Raises ModelError if it cannot be a piece of a reply."""
        match piece:
            case TextDelta():
                text = piece.text
                if text:
                    self.output_chars += len(text)
                    block = self._open_text
                    if block is None or block.thinking:
                        block = self._open_text_block(thinking=False)
                    block.pieces.append(text)
            case ThinkingDelta(text="", signature=None):
                pass
            case ThinkingDelta(text, signature):
                block = self._open_text_block(thinking=True)
                block.pieces.append(text)
                self.output_chars += len(text)
                block.signature = signature or block.signature
            case CallDelta(index=int() as index, id=None, name=None, signature=None, origin=""):
                # Nearly every piece of a call continues the arguments of the last one.
                if self._calls and self._calls[-1].index == index:
                    self.output_chars += len(piece.arguments)
                    self._calls[-1].arguments.append(piece.arguments)
                else:
                    self._add_call_fragment(piece)
            case CallDelta():
                self._add_call_fragment(piece)
            case UsageDelta(usage):
                self.usage = usage
            case ReplyEnd(stop):
                self.stop = stop
            case StreamOpened() | ReplyRestarted():
                pass
            case _:
                kind = type(piece).__name__
                message = f"The model streamed a {kind}, which cannot be a piece of a reply."
                raise ModelError("malformed_stream", message)

    def _open_text_block(self, *, thinking: bool) -> _TextBlock:
        block = self._open_text
        # A signature ends its block, because it vouches for that block only.
        if block is None or block.thinking is not thinking or block.signature is not None:
            block = _TextBlock(thinking)
            self._open_text = block
            self._blocks.append(block)
        return block

    def _add_call_fragment(self, piece: CallDelta) -> None:
        self.output_chars += len(piece.name or "") + len(piece.arguments)
        call = find_draft(self._calls, piece)
        if call is None:
            call = _CallDraft(piece.index, piece.id)
            self._calls.append(call)
            self.has_too_many_calls = len(self._calls) > CALLS_MAX
            self._blocks.append(call)
            self._open_text = None
        call.name = extend_name(call.name, piece.name)
        call.id = call.id or piece.id
        call.signature = call.signature or piece.signature
        call.origin = call.origin or piece.origin
        if piece.arguments:
            call.arguments.append(piece.arguments)

    @property
    def text(self) -> str:
        """The text so far, without thinking."""
        texts = (block for block in self._blocks if isinstance(block, _TextBlock))
        return "".join("".join(block.pieces) for block in texts if not block.thinking)

    def pieces_so_far(self) -> Iterator[ContentPiece]:
        """Yield what has come, in as few pieces as possible: a watcher can continue from there."""
        for block in self._blocks:
            if isinstance(block, _CallDraft):
                yield CallDelta(
                    block.index,
                    block.id,
                    block.name or None,
                    "".join(block.arguments),
                    block.signature,
                    block.origin,
                )
            elif block.thinking:
                yield ThinkingDelta("".join(block.pieces), block.signature)
            else:
                yield TextDelta("".join(block.pieces))
        if self.usage is not None:
            yield UsageDelta(self.usage)

    @property
    def output_bytes(self) -> int:
        """Bytes of output of every kind so far. The token count cannot be larger."""
        size = 0
        for block in self._blocks:
            pieces = block.arguments if isinstance(block, _CallDraft) else block.pieces
            size += len("".join(pieces).encode())
        return size

    def build_reply(self, model: str, prefix: str) -> AssistantMessage:
        """Return the complete reply. Its calls get new ids, which the prefix makes unique."""
        parts: list[ReplyPart] = []
        number = count()
        for block in self._blocks:
            if isinstance(block, _CallDraft):
                name = block.name
                # No tool has such a name, and the model would see it in every later request.
                if len(name) > NAME_CHARS_MAX:
                    name = name[: NAME_CHARS_MAX - 1] + "…"
                call_id = f"{prefix}{next(number)}"
                arguments = "".join(block.arguments)
                own = (block.id, block.signature, block.origin)
                parts.append(ToolCall(call_id, name, arguments, *own))
                continue
            # An empty part is left out, because no provider accepts it back.
            text = "".join(block.pieces)
            if block.thinking and (text or block.signature):
                parts.append(ThinkingPart(text, block.signature))
            elif text:
                parts.append(TextPart(text))
        return AssistantMessage(tuple(parts), model)


def find_draft(drafts: Sequence[DraftT], piece: CallDelta) -> DraftT | None:
    """Find the call of a fragment by index, then by id; None if the fragment opens a new call.

    Servers reuse an index or an id for another call, but never both.
    """
    for draft in reversed(drafts):
        if piece.index is not None and draft.index != piece.index:
            continue
        if piece.id and draft.id and draft.id != piece.id:
            continue
        if piece.index is None and not piece.id and piece.name:
            break  # With neither index nor id, a name opens the next call.
        return draft
    return None


def extend_name(name: str, more: str | None) -> str:
    """Return the name of a call with one more fragment, which may repeat the whole name."""
    if not more or more == name or len(name) > NAME_CHARS_MAX:
        return name
    # Longer than it is kept, so that it is seen to be too long, but not without end.
    return (name + more)[: NAME_CHARS_MAX + 1]
