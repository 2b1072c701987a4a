"""Calls found in the text of a reply: a reader with scans between it and whoever reads.

The law: a scan may hold text back, and never for ever. What it holds is let go at the latest when
the reply ends; if the stream breaks first, the attempt has failed, and nothing of it counts.
"""

from typing import Protocol

from windlass.core.events import Piece, TextDelta
from windlass.models.openai.chat_reader import ChatReader

ALIVE = TextDelta("")
"""Text came and is held back: nobody is shown anything, and the watchdog knows of it (S4)."""


class Scan(Protocol):
    """Looks at each piece of one reply, in order."""

    @property
    def done(self) -> bool:
        """It passes on everything from here."""
        ...

    def take(self, piece: Piece) -> list[Piece]: ...


class ScanningReader:
    """Reads the events of one response, through scans."""

    __slots__ = ("_inner", "_scans")

    def __init__(self, inner: ChatReader, *scans: Scan) -> None:
        self._inner = inner
        self._scans = scans

    def read(self, event: str, data: bytes) -> list[Piece]:
        pieces = self._inner.read(event, data)
        return self._through(pieces) if self._scans else pieces

    def end(self) -> list[Piece]:
        """The stream is over. Nothing is said behind a reply that did not end."""
        return self._through(self._inner.end())

    def _through(self, pieces: list[Piece]) -> list[Piece]:
        for scan in self._scans:
            pieces = [found for piece in pieces for found in scan.take(piece)]
            if scan.done:
                self._scans = tuple(other for other in self._scans if other is not scan)
        return pieces
