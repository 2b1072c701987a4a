"""Pieces of a model's stream in, one whole reply out.

An assembly belongs to one attempt; a new attempt starts with a new one, so that fragments of two
attempts never mix.
"""

from dataclasses import dataclass, field
from itertools import count

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
from windlass.core.messages import (
    AssistantMessage,
    ReplyPart,
    TextPart,
    ThinkingPart,
    ToolCall,
    Usage,
)


@dataclass(slots=True)
class _CallDraft:
    index: int | None
    id: str | None
    name: str = ""
    signature: str | None = None
    arguments: list[str] = field(default_factory=list[str])
    origin: str = ""


@dataclass(slots=True)
class _TextBlock:
    thinking: bool
    pieces: list[str] = field(default_factory=list[str])
    signature: str | None = None


class ReplyAssembly:
    """One attempt's reply, as far as it has come."""

    __slots__ = ("_blocks", "_calls", "_open_text", "stop", "usage")

    def __init__(self) -> None:
        self._blocks: list[_TextBlock | _CallDraft] = []
        self._calls: list[_CallDraft] = []
        self._open_text: _TextBlock | None = None
        self.usage: Usage | None = None
        self.stop: StopReason | None = None
        """None until the provider's end marker came."""

    def add_piece(self, piece: ReplyPiece) -> None:
        match piece:
            case TextDelta():
                if piece.text:
                    self._open_text_block(thinking=False).pieces.append(piece.text)
            case ThinkingDelta(text="", signature=None):
                pass
            case ThinkingDelta(text, signature):
                block = self._open_text_block(thinking=True)
                block.pieces.append(text)
                block.signature = signature or block.signature
            case CallDelta():
                self._add_call_fragment(piece)
            case UsageDelta(usage):
                self.usage = usage
            case ReplyEnd(stop):
                self.stop = stop
            case _:
                told = f"the model streamed a {type(piece).__name__}, which is no piece of a reply"
                raise ModelError("malformed_stream", told)

    def _open_text_block(self, *, thinking: bool) -> _TextBlock:
        words = self._open_text
        # A signature ends its block: it vouches for that block alone.
        if words is None or words.thinking is not thinking or words.signature is not None:
            words = self._open_text = _TextBlock(thinking)
            self._blocks.append(words)
        return words

    def _add_call_fragment(self, piece: CallDelta) -> None:
        call = self._find_call_draft(piece)
        if piece.name and piece.name != call.name:
            call.name += piece.name
        call.id = call.id or piece.id
        call.signature = call.signature or piece.signature
        call.origin = call.origin or piece.origin
        if piece.arguments:
            call.arguments.append(piece.arguments)

    def _find_call_draft(self, piece: CallDelta) -> _CallDraft:
        """By index, then by id: servers reuse either one, but not both for two calls."""
        for call in reversed(self._calls):
            if piece.index is not None and call.index != piece.index:
                continue
            if piece.id and call.id and call.id != piece.id:
                continue
            if piece.index is None and not piece.id and piece.name:
                break  # With neither, a name opens the next call.
            return call
        call = _CallDraft(piece.index, piece.id)
        self._calls.append(call)
        self._blocks.append(call)
        self._open_text = None
        return call

    @property
    def text(self) -> str:
        """The text so far; thinking is not part of it."""
        words = (block for block in self._blocks if isinstance(block, _TextBlock))
        return "".join("".join(block.pieces) for block in words if not block.thinking)

    @property
    def output_bytes(self) -> int:
        """Bytes of output so far, of every kind: what a token count can be at the most."""
        pieces = (
            block.arguments if isinstance(block, _CallDraft) else block.pieces
            for block in self._blocks
        )
        return sum(len(piece.encode()) for block in pieces for piece in block)

    def build_reply(self, model: str, prefix: str) -> AssistantMessage:
        """The whole reply. Its calls get ids of our own, unique in the session by the prefix."""
        parts: list[ReplyPart] = []
        number = count()
        for block in self._blocks:
            if isinstance(block, _CallDraft):
                parts.append(_build_tool_call(block, f"{prefix}{next(number)}"))
            elif words := _build_text_part(block):
                parts.append(words)
        return AssistantMessage(tuple(parts), model)


def _build_text_part(block: _TextBlock) -> TextPart | ThinkingPart | None:
    """Empty blocks are left out: no provider takes them back."""
    text = "".join(block.pieces)
    if block.thinking:
        return ThinkingPart(text, block.signature) if text or block.signature else None
    return TextPart(text) if text else None


def _build_tool_call(call: _CallDraft, call_id: str) -> ToolCall:
    arguments = "".join(call.arguments)
    return ToolCall(call_id, call.name, arguments, call.id, call.signature, call.origin)
