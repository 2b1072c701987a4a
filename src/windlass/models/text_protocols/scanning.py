"""Finds calls in the text of a reply: a reader whose pieces pass through scans.

Invariant: a scan may hold text back, but not forever. It releases what it holds when the reply ends
at the latest. If the stream breaks first, the attempt has failed, and none of its text counts.
"""

from typing import Protocol

from windlass.core.events import ReplyPiece, TextDelta
from windlass.models.http.sse import SseEvent
from windlass.models.openai.chat_reader import ChatReader

KEEP_ALIVE = TextDelta("")
"""Replaces text that is held back: it shows nothing, but lets the watchdog see that text came."""


class ReplyScan(Protocol):
    """Looks at each piece of one reply, in order."""

    @property
    def done(self) -> bool:
        """Whether it passes on everything from here on."""
        ...

    def scan_piece(self, piece: ReplyPiece) -> list[ReplyPiece]:
        """Return the pieces to pass on in place of this one."""
        ...


class ScanningReader:
    """Reads the events of one response, and passes the pieces through scans."""

    __slots__ = ("_inner", "_scans")

    def __init__(self, inner: ChatReader, *scans: ReplyScan) -> None:
        self._inner = inner
        self._scans = scans

    def read_event(self, event: str, data: bytes) -> list[ReplyPiece]:
        pieces = self._inner.read_event(event, data)
        return self._run_scans(pieces) if self._scans else pieces

    def split_reply(self, body: bytes) -> list[SseEvent] | None:
        """Return the events that a stream would have brought; None if it is not such a reply."""
        return self._inner.split_reply(body)

    @property
    def is_finishing(self) -> bool:
        """Whether the model has finished its reply, and the end marker has not come yet."""
        return self._inner.is_finishing

    def finish(self) -> list[ReplyPiece]:
        """Return the last pieces. There are none if the reply did not end."""
        return self._run_scans(self._inner.finish())

    def _run_scans(self, pieces: list[ReplyPiece]) -> list[ReplyPiece]:
        for scan in self._scans:
            pieces = [found for piece in pieces for found in scan.scan_piece(piece)]
            # A scan that is done is dropped, so that the rest of the stream costs nothing.
            if scan.done:
                self._scans = tuple(other for other in self._scans if other is not scan)
        return pieces
