"""Mask the pieces of a model's stream, and the progress of tools, as they come.

The pieces of one block of a reply are masked as one text, so that a secret that was cut into pieces
is found. A new block, like a new attempt, starts again.
"""

from collections.abc import Iterator, Sequence
from typing import final

from msgspec.structs import replace

from windlass.core.events import (
    CallDelta,
    CallProgress,
    ContentPiece,
    Delta,
    Fact,
    NestedEvent,
    ReplyEnd,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.secrets.mask import Mask
from windlass.core.secrets.mask_stream import TextStreamMask, ValueHeads

_GROUP_PIECES = 64
"""How many pieces are looked at as one text. A few of them are looked at faster than many."""


@final
class PieceMask:
    """Masks the pieces of one session for its watchers."""

    __slots__ = (
        "_call_streams",
        "_heads",
        "_mask",
        "_name_streams",
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
        """Forget the attempt before: its texts do not go on."""
        self._text_stream = self._new_stream()
        self._thinking = False
        self._call_streams: dict[int | str, TextStreamMask] = {}
        self._name_streams: dict[int | str, TextStreamMask] = {}

    def _new_stream(self) -> TextStreamMask:
        return TextStreamMask(self._mask, self._heads)

    def mask_pieces(self, pieces: Sequence[ContentPiece]) -> Sequence[ContentPiece]:
        """Return what may be shown after these pieces: they themselves if nothing is in doubt."""
        if len(pieces) == 1:
            return self.mask_piece(pieces[0])
        if len(pieces) > _GROUP_PIECES:
            groups = (
                pieces[at : at + _GROUP_PIECES] for at in range(0, len(pieces), _GROUP_PIECES)
            )
            return [shown for group in groups for shown in self.mask_pieces(group)]
        # Text that goes on is looked at once for all of them.
        texts = self._more_texts(pieces)
        if len(texts) == len(pieces) and self._text_stream.pass_harmless("".join(texts)):
            return pieces
        return [shown for piece in pieces for shown in self.mask_piece(piece)]

    def mask_piece(self, piece: ContentPiece) -> Sequence[ContentPiece]:
        """Return what may be shown after this piece: the piece itself if nothing is in doubt."""
        # A short path for nearly every piece.
        if type(piece) is TextDelta and not self._thinking:
            text = self._text_stream.feed(piece.text)
            if text is piece.text:
                return (piece,)
            return (TextDelta(text),) if text else ()
        return tuple(self._mask_piece(piece))

    def _more_texts(self, pieces: Sequence[ContentPiece]) -> list[str]:
        """Return the texts of those pieces that go on with the block that is open."""
        if not self._thinking:
            return [piece.text for piece in pieces if type(piece) is TextDelta]
        thoughts = (piece for piece in pieces if type(piece) is ThinkingDelta)
        return [thought.text for thought in thoughts if thought.signature is None]

    def _mask_piece(self, piece: ContentPiece) -> Iterator[ContentPiece]:
        match piece:
            case TextDelta(text):
                yield from self._switch_block(thinking=False)
                if masked := self._text_stream.feed(text):
                    yield piece if masked is text else TextDelta(masked)
            case ThinkingDelta(text, signature):
                yield from self._switch_block(thinking=True)
                masked = self._text_stream.feed(text)
                if signature is not None:
                    # A signature ends its block.
                    masked += self._text_stream.end()
                    self._text_stream = self._new_stream()
                if masked or signature:
                    yield piece if masked == text else ThinkingDelta(masked, signature)
            case CallDelta():
                yield from self._mask_call_delta(piece)
            case UsageDelta():
                yield piece
            case ReplyEnd():
                yield from self._release_rest()

    def _switch_block(self, *, thinking: bool) -> Iterator[ContentPiece]:
        if self._thinking is not thinking:
            yield from self._end_block()
            self._thinking = thinking

    def _end_block(self) -> Iterator[ContentPiece]:
        rest = self._text_stream.end()
        if rest:
            yield ThinkingDelta(rest) if self._thinking else TextDelta(rest)
        self._text_stream = self._new_stream()

    def _mask_call_delta(self, piece: CallDelta) -> Iterator[ContentPiece]:
        at = piece.index if piece.index is not None else piece.id or ""
        if at not in self._call_streams:
            yield from self._end_block()
            self._call_streams[at] = self._new_stream()
            self._name_streams[at] = self._new_stream()
        arguments = self._call_streams[at].feed(piece.arguments)
        name = self._mask_name(piece, self._name_streams[at])
        if arguments == piece.arguments and name == piece.name:
            yield piece
        elif arguments or piece.id or name or piece.signature:
            yield replace(piece, arguments=arguments, name=name)

    def _mask_name(self, piece: CallDelta, stream: TextStreamMask) -> str | None:
        """Return what may be shown of a name: the model may have made it up, from a secret."""
        name = stream.feed(piece.name) if piece.name else ""
        if piece.arguments:
            # A name is complete once the arguments begin.
            name += stream.end()
        return name or None

    def _release_rest(self) -> Iterator[ContentPiece]:
        """Yield what was held back, now that the reply is complete."""
        yield from self._end_block()
        for at, stream in self._call_streams.items():
            name = self._name_streams[at].end() or None
            rest = stream.end()
            if not (rest or name):
                continue
            if isinstance(at, int):
                yield CallDelta(index=at, name=name, arguments=rest)
            else:
                yield CallDelta(id=str(at) or None, name=name, arguments=rest)

    def mask_delta(self, delta: Delta) -> Delta | None:
        """Return what may be shown of a delta that is not a piece of a reply; None if nothing."""
        match delta:
            case CallProgress():
                return self.mask_progress(delta)
            case NestedEvent():
                return self.mask_nested(delta)
            case _:
                return delta

    def mask_nested(self, delta: NestedEvent) -> NestedEvent:
        """Mask what a sub-agent masked already: this session may know more secrets."""
        event = delta.event
        match event:
            case TextDelta(text) | ThinkingDelta(text) | CallProgress(text=text):
                masked = self._mask.mask_text(text)
                return (
                    delta if masked is text else replace(delta, event=replace(event, text=masked))
                )
            case CallDelta(arguments=text):
                masked = self._mask.mask_text(text)
                if masked is text:
                    return delta
                return replace(delta, event=replace(event, arguments=masked))
            case NestedEvent():
                return replace(delta, event=self.mask_nested(event))
            case _ if isinstance(event, Fact):
                return replace(delta, event=self._mask.mask_fact(event))
            case _:
                return delta

    def mask_progress(self, delta: CallProgress) -> CallProgress | None:
        """Return what may be shown of a tool's progress; None if nothing."""
        call_id = delta.call_id
        text = delta.text
        if call_id not in self._progress_streams:
            self._progress_streams[call_id] = self._new_stream()
        masked = self._progress_streams[call_id].feed(text)
        if masked is text:
            return delta
        if masked:
            return replace(delta, text=masked)
        return None

    def end_progress(self, call_id: str) -> CallProgress | None:
        """Return what was held back of a call's progress, now that the call is over."""
        stream = self._progress_streams.pop(call_id, None)
        rest = stream.end() if stream else ""
        return CallProgress(call_id, rest) if rest else None
