"""How much of a reply that is streaming a watcher has been shown.

Invariant: a snapshot brings the reply so far, from its beginning. A watcher that has some of it
gets the rest. If what it was shown is not a part of the snapshot, it gets nothing more of that
reply: the whole of it comes with its step.
"""

from msgspec.structs import replace

from windlass.core.events import CallDelta, Delta, TextDelta, ThinkingDelta
from windlass.core.projection.streaming import StreamingReply
from windlass.core.reply_assembly import find_draft


class ShownReply:
    """The text, thinking and calls of one attempt that were shown."""

    def __init__(self) -> None:
        self._shown = StreamingReply()
        self._snapshot: StreamingReply | None = None
        """What a snapshot has brought so far; None outside of one."""
        self._is_broken = False

    def start_attempt(self) -> None:
        """Nothing is shown of the attempt that begins now."""
        self._shown = StreamingReply()
        self._snapshot = None
        self._is_broken = False

    def start_snapshot(self) -> None:
        """What comes next is the reply from its beginning."""
        self._snapshot = StreamingReply()
        self._is_broken = False

    @property
    def has_text(self) -> bool:
        """Whether any text of the attempt was shown."""
        return any(chunk.kind == "text" for chunk in self._shown.chunks)

    def take_piece(self, piece: Delta) -> Delta | None:
        """Return a piece as it may be shown; None if it does not follow what was shown."""
        if self._snapshot is not None:
            self._is_broken = self._is_broken or not (
                len(self._snapshot.text) >= len(self._shown.text)
                and len(self._snapshot.thinking) >= len(self._shown.thinking)
                and len(self._snapshot.calls) >= len(self._shown.calls)
            )
            self._snapshot = None
        if not isinstance(piece, TextDelta | ThinkingDelta | CallDelta):
            return piece
        if self._is_broken:
            return None
        self._shown = _extend_reply(self._shown, piece)
        return piece

    def take_snapshot_piece(self, piece: Delta) -> Delta | None:
        """Return what is new in a piece of a snapshot; None if nothing is."""
        if not isinstance(piece, TextDelta | ThinkingDelta | CallDelta):
            return piece
        before = self._snapshot or StreamingReply()
        self._snapshot = _extend_reply(before, piece)
        known = _text_after(self._shown, before, piece)
        if known is not None:
            text = _text_of(piece)
            common = min(len(text), len(known))
            self._is_broken = self._is_broken or text[:common] != known[:common]
            piece = _cut_piece(piece, common)
            if not _text_of(piece):
                return None
        if self._is_broken:
            return None
        self._shown = _extend_reply(self._shown, piece)
        return piece


_Piece = TextDelta | ThinkingDelta | CallDelta


def _extend_reply(reply: StreamingReply, piece: _Piece) -> StreamingReply:
    match piece:
        case TextDelta(text):
            return reply.add_text("text", text)
        case ThinkingDelta(text):
            return reply.add_text("thinking", text)
        case CallDelta():
            return reply.add_call_fragment(piece)


def _text_of(piece: _Piece) -> str:
    return piece.arguments if isinstance(piece, CallDelta) else piece.text


def _text_after(shown: StreamingReply, before: StreamingReply, piece: _Piece) -> str | None:
    """Return what was shown from the place of a piece on; None for a call that was not shown."""
    match piece:
        case TextDelta():
            return shown.text[len(before.text) :]
        case ThinkingDelta():
            return shown.thinking[len(before.thinking) :]
        case CallDelta():
            draft = find_draft(before.calls, piece)
            drafts = [call is draft for call in before.calls]
            at = drafts.index(True) if draft is not None else len(drafts)
            if at >= len(shown.calls):
                return None
            return shown.calls[at].arguments[len(draft.arguments) if draft else 0 :]


def _cut_piece(piece: _Piece, count: int) -> _Piece:
    """Return a piece without its first characters, which are known, and without its known name."""
    if isinstance(piece, CallDelta):
        return replace(piece, name=None, arguments=piece.arguments[count:])
    return replace(piece, text=piece.text[count:])
