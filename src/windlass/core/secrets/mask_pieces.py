"""The pieces of a model's stream, and a tool's progress, masked as they come.

What is one text in the reply is one text here, so that a secret that was cut into pieces is found;
a new block, like a new attempt, begins anew.
"""

from collections.abc import Iterator, Sequence
from typing import final

from msgspec.structs import replace

from windlass.core.events import (
    CallDelta,
    CallProgress,
    Delta,
    Fact,
    NestedEvent,
    ReplyEnd,
    ReplyPiece,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.secrets.mask import Mask
from windlass.core.secrets.mask_stream import TextStreamMask, ValueHeads


@final
class PieceMask:
    """What may be shown of the pieces of one session."""

    __slots__ = (
        "_call_streams",
        "_heads",
        "_mask",
        "_progress_streams",
        "_text_stream",
        "_thinking",
    )

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._heads = ValueHeads(mask)
        self._progress_streams: dict[str, TextStreamMask] = {}
        self.start_attempt()

    def start_attempt(self) -> None:
        """Another attempt begins."""
        self._text_stream = self._new_stream()
        self._thinking = False
        self._call_streams: dict[int | str, TextStreamMask] = {}

    def _new_stream(self) -> TextStreamMask:
        return TextStreamMask(self._mask, self._heads)

    def mask_piece(self, piece: ReplyPiece) -> Sequence[ReplyPiece]:
        """What may be shown once this piece has come: the piece itself if nothing is in doubt."""
        if type(piece) is TextDelta and not self._thinking:  # Nearly every piece is one.
            told = self._text_stream.feed(piece.text)
            if told is piece.text:
                return (piece,)
            return (TextDelta(told),) if told else ()
        return tuple(self._mask_piece(piece))

    def _mask_piece(self, piece: ReplyPiece) -> Iterator[ReplyPiece]:
        match piece:
            case TextDelta(text):
                yield from self._switch_block(thinking=False)
                if told := self._text_stream.feed(text):
                    yield piece if told is text else TextDelta(told)
            case ThinkingDelta(text, signature):
                yield from self._switch_block(thinking=True)
                told = self._text_stream.feed(text)
                if signature is not None:
                    told += self._text_stream.end()
                    self._text_stream = self._new_stream()
                if told or signature:
                    yield piece if told == text else ThinkingDelta(told, signature)
            case CallDelta():
                yield from self._mask_call_delta(piece)
            case UsageDelta():
                yield piece
            case ReplyEnd():
                yield from self._release_rest()

    def _switch_block(self, *, thinking: bool) -> Iterator[ReplyPiece]:
        if self._thinking is not thinking:
            yield from self._end_block()
            self._thinking = thinking

    def _end_block(self) -> Iterator[ReplyPiece]:
        told = self._text_stream.end()
        if told:
            yield ThinkingDelta(told) if self._thinking else TextDelta(told)
        self._text_stream = self._new_stream()

    def _mask_call_delta(self, piece: CallDelta) -> Iterator[ReplyPiece]:
        at = piece.index if piece.index is not None else piece.id or ""
        if at not in self._call_streams:
            yield from self._end_block()
            self._call_streams[at] = self._new_stream()
        told = self._call_streams[at].feed(piece.arguments)
        if told == piece.arguments:
            yield piece
        elif told or piece.id or piece.name or piece.signature:
            yield replace(piece, arguments=told)

    def _release_rest(self) -> Iterator[ReplyPiece]:
        """What was held back when the reply was whole."""
        yield from self._end_block()
        for at, stream in self._call_streams.items():
            if told := stream.end():
                index, call_id = (at, None) if isinstance(at, int) else (None, at or None)
                yield CallDelta(index, call_id, arguments=told)

    def mask_so_far(self, text: str) -> str:
        """What may be shown of a text to somebody who comes in the middle of it."""
        if not self._thinking and self._text_stream.held_chars:
            text = text[: -self._text_stream.held_chars]
            return self._mask.mask_text(text)
        self._text_stream, self._thinking = self._new_stream(), False
        return self._text_stream.feed(text)

    def mask_delta(self, delta: Delta) -> Delta | None:
        """What may be shown of anything that is no piece of a reply."""
        match delta:
            case CallProgress():
                return self.mask_progress(delta)
            case NestedEvent(event=TextDelta(text) | ThinkingDelta(text) | CallProgress(text=text)):
                # Whoever works there has masked it already; what is known here may be more.
                told = self._mask.mask_text(text)
                return (
                    delta if told is text else replace(delta, event=replace(delta.event, text=told))
                )
            case NestedEvent(event=event) if isinstance(event, Fact):
                return replace(delta, event=self._mask.mask_fact(event))
            case _:
                return delta

    def mask_progress(self, delta: CallProgress) -> CallProgress | None:
        """What may be shown of what a tool says on its way."""
        call_id, text = delta.call_id, delta.text
        if call_id not in self._progress_streams:
            self._progress_streams[call_id] = self._new_stream()
        told = self._progress_streams[call_id].feed(text)
        if told is text:
            return delta
        return replace(delta, text=told) if told else None

    def end_progress(self, call_id: str) -> CallProgress | None:
        """What was held back of it when the call is over."""
        stream = self._progress_streams.pop(call_id, None)
        told = stream.end() if stream else ""
        return CallProgress(call_id, told) if told else None
