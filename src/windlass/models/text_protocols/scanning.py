"""Calls found in the text of a reply: a reader with scans between it and whoever reads.

The law: a scan may hold text back, and never for ever. What it holds is let go at the latest when
the reply ends; if the stream breaks first, the attempt has failed, and nothing of it counts.
"""

from typing import Protocol

from windlass.core.events import ReplyPiece, TextDelta
from windlass.models.openai.chat_reader import ChatReader

KEEP_ALIVE = TextDelta("")
"""Text came and is held back: nobody is shown anything, and the watchdog knows of it (S4)."""


class ReplyScan(Protocol):
    """Looks at each piece of one reply, in order."""

    @property
    def done(self) -> bool:
        """It passes on everything from here."""
        ...

    def scan_piece(self, piece: ReplyPiece) -> list[ReplyPiece]: ...


class ScanningReader:
    """Reads the events of one response, through scans."""

    __slots__ = ("_inner", "_scans")

    def __init__(self, inner: ChatReader, *scans: ReplyScan) -> None:
        self._inner = inner
        self._scans = scans

    def read_event(self, event: str, data: bytes) -> list[ReplyPiece]:
        pieces = self._inner.read_event(event, data)
        return self._run_scans(pieces) if self._scans else pieces

    def finish(self) -> list[ReplyPiece]:
        """The stream is over. Nothing is said behind a reply that did not end."""
        return self._run_scans(self._inner.finish())

    def _run_scans(self, pieces: list[ReplyPiece]) -> list[ReplyPiece]:
        for scan in self._scans:
            pieces = [found for piece in pieces for found in scan.scan_piece(piece)]
            if scan.done:
                self._scans = tuple(other for other in self._scans if other is not scan)
        return pieces
