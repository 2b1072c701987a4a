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
    Nested,
    Piece,
    ReplyEnd,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.secrets.mask import Mask
from windlass.core.secrets.mask_stream import Heads, MaskedStream


@final
class MaskedPieces:
    """What may be shown of the pieces of one session."""

    __slots__ = ("_calls", "_heads", "_mask", "_progress", "_thinking", "_words")

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._heads = Heads(mask)
        self._progress: dict[str, MaskedStream] = {}
        self.reset()

    def reset(self) -> None:
        """Another attempt begins."""
        self._words = self._new()
        self._thinking = False
        self._calls: dict[int | str, MaskedStream] = {}

    def _new(self) -> MaskedStream:
        return MaskedStream(self._mask, self._heads)

    def take(self, piece: Piece) -> Sequence[Piece]:
        """What may be shown once this piece has come: the piece itself if nothing is in doubt."""
        if type(piece) is TextDelta and not self._thinking:  # Nearly every piece is one.
            told = self._words.feed(piece.text)
            if told is piece.text:
                return (piece,)
            return (TextDelta(told),) if told else ()
        return tuple(self._take(piece))

    def _take(self, piece: Piece) -> Iterator[Piece]:
        match piece:
            case TextDelta(text):
                yield from self._block(thinking=False)
                if told := self._words.feed(text):
                    yield piece if told is text else TextDelta(told)
            case ThinkingDelta(text, signature):
                yield from self._block(thinking=True)
                told = self._words.feed(text)
                if signature is not None:
                    told += self._words.end()
                    self._words = self._new()
                if told or signature:
                    yield piece if told == text else ThinkingDelta(told, signature)
            case CallDelta():
                yield from self._call(piece)
            case UsageDelta():
                yield piece
            case ReplyEnd():
                yield from self._rest()

    def _block(self, *, thinking: bool) -> Iterator[Piece]:
        if self._thinking is not thinking:
            yield from self._end_words()
            self._thinking = thinking

    def _end_words(self) -> Iterator[Piece]:
        told = self._words.end()
        if told:
            yield ThinkingDelta(told) if self._thinking else TextDelta(told)
        self._words = self._new()

    def _call(self, piece: CallDelta) -> Iterator[Piece]:
        at = piece.index if piece.index is not None else piece.id or ""
        if at not in self._calls:
            yield from self._end_words()
            self._calls[at] = self._new()
        told = self._calls[at].feed(piece.arguments)
        if told == piece.arguments:
            yield piece
        elif told or piece.id or piece.name or piece.signature:
            yield replace(piece, arguments=told)

    def _rest(self) -> Iterator[Piece]:
        """What was held back when the reply was whole."""
        yield from self._end_words()
        for at, stream in self._calls.items():
            if told := stream.end():
                index, call_id = (at, None) if isinstance(at, int) else (None, at or None)
                yield CallDelta(index, call_id, arguments=told)

    def so_far(self, text: str) -> str:
        """What may be shown of a text to somebody who comes in the middle of it."""
        if not self._thinking and self._words.held:
            text = text[: -self._words.held]
            return self._mask.text(text)
        self._words, self._thinking = self._new(), False
        return self._words.feed(text)

    def shown(self, delta: Delta) -> Delta | None:
        """What may be shown of anything that is no piece of a reply."""
        match delta:
            case CallProgress():
                return self.progress(delta)
            case Nested(event=TextDelta(text) | ThinkingDelta(text) | CallProgress(text=text)):
                # Whoever works there has masked it already; what is known here may be more.
                told = self._mask.text(text)
                return (
                    delta if told is text else replace(delta, event=replace(delta.event, text=told))
                )
            case Nested(event=event) if isinstance(event, Fact):
                return replace(delta, event=self._mask.fact(event))
            case _:
                return delta

    def progress(self, delta: CallProgress) -> CallProgress | None:
        """What may be shown of what a tool says on its way."""
        call_id, text = delta.call_id, delta.text
        if call_id not in self._progress:
            self._progress[call_id] = self._new()
        told = self._progress[call_id].feed(text)
        if told is text:
            return delta
        return replace(delta, text=told) if told else None

    def over(self, call_id: str) -> CallProgress | None:
        """What was held back of it when the call is over."""
        stream = self._progress.pop(call_id, None)
        told = stream.end() if stream else ""
        return CallProgress(call_id, told) if told else None
