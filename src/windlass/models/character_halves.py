r"""Joins characters whose halves a server sends in two events.

A server that cuts text by UTF-16 units, as JavaScript counts, can end one delta with the first half
of an emoji and begin the next delta with the second (`"\ud83d"`, then `"\ude80"`). Neither event
is valid JSON for a strict decoder.

Invariant: halves that belong together become their character, a half that stays alone becomes
U+FFFD, and no other text changes. A stream without halves costs nothing.
"""

import re
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from windlass.core.events import (
    CallDelta,
    ReplyEnd,
    ReplyPiece,
    ReplyRestarted,
    TextDelta,
    ThinkingDelta,
)

_Piece = TextDelta | ThinkingDelta | CallDelta
_STAND_IN = 0x100000
"""Added to a half, this is a character for private use, which every decoder accepts."""
_STAND_INS = {_STAND_IN + half: half for half in range(0xD800, 0xE000)}
_FIRST_HALVES = range(0xD800, 0xDC00)
# Each escape is matched as a whole, so that the second backslash of a pair never begins one.
_ESCAPES = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)",
    re.DOTALL,
)
_LONE_ESCAPE_BYTES = len(rb"\ud83d")


def replace_halves(data: bytes) -> bytes | None:
    """Return the JSON of an event with each lone half replaced; None without lone halves."""
    replaced = _ESCAPES.sub(_stand_in, data)
    return replaced if replaced != data else None


def _stand_in(escape: re.Match[bytes]) -> bytes:
    text = escape[0]
    if len(text) != _LONE_ESCAPE_BYTES:
        return text
    half = int(text.partition(b"u")[2], 16)
    return chr(_STAND_IN + half).encode()


class HalfJoiner:
    """Puts the characters of one reply together again, from the first event with a half on."""

    def __init__(self) -> None:
        self._open: _Piece | None = None
        """A piece of nothing but a first half, which waits for the second."""

    def join_pieces(self, pieces: Iterable[ReplyPiece]) -> Iterator[ReplyPiece]:
        """Yield the pieces with whole characters; a first half at an end waits for the next."""
        for piece in pieces:
            match piece:
                case TextDelta() | ThinkingDelta() | CallDelta():
                    yield from self._join(piece)
                case ReplyRestarted():
                    self._open = None
                    yield piece
                case ReplyEnd():
                    yield from self._release()
                    yield piece
                case _:
                    yield piece

    def _join(self, piece: _Piece) -> Iterator[ReplyPiece]:
        text = _text_of(piece).translate(_STAND_INS)
        if self._open is not None and text:
            if _is_same_stream(self._open, piece):
                text = _text_of(self._open) + text
                self._open = None
            else:
                yield from self._release()
        last = text[-1:]
        if last and ord(last) in _FIRST_HALVES:
            text = text[:-1]
            self._open = _bare_piece(piece, last)
        # A piece that was nothing but a half has nothing to say yet.
        if text or not _text_of(piece) or piece != _bare_piece(piece, _text_of(piece)):
            yield _with_text(piece, _repair(text))

    def _release(self) -> Iterator[ReplyPiece]:
        if self._open is not None:
            yield _with_text(self._open, "\N{REPLACEMENT CHARACTER}")
            self._open = None


def _text_of(piece: _Piece) -> str:
    return piece.arguments if isinstance(piece, CallDelta) else piece.text


def _with_text(piece: _Piece, text: str) -> _Piece:
    if not isinstance(piece, CallDelta):
        return replace(piece, text=text)
    name = piece.name and _repair(piece.name.translate(_STAND_INS))
    return replace(piece, name=name, arguments=text)


def _bare_piece(piece: _Piece, text: str) -> _Piece:
    """Return a piece of the same stream that has only this text."""
    if isinstance(piece, CallDelta):
        return CallDelta(piece.index, arguments=text)
    return type(piece)(text)


def _is_same_stream(one: ReplyPiece, other: ReplyPiece) -> bool:
    """Whether the text of two pieces follows one another."""
    if isinstance(one, CallDelta) and isinstance(other, CallDelta):
        return one.index == other.index
    return type(one) is type(other)


def _repair(text: str) -> str:
    """Return the text with halves that follow one another joined, and all others replaced."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
