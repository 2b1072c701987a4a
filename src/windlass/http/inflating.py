"""Bodies that a server compressed, inflated as they are read.

Invariant: one read gives at most `INFLATED_BYTES_MAX`, however far the data expands. What is left
waits, compressed, for the next read. Other tasks run in between, even if a body is made of many
empty files.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable

from windlass.http.errors import HttpError

INFLATED_BYTES_MAX = 262_144
PIECE_BYTES = 4_096
"""What the engine is given at once: at the end of each file, it copies what is left of that."""
_ZLIB_HEADER_BYTES = 2
_DAMAGED = "the body cannot be decompressed"
_GZIP_MARK = b"\x1f\x8b"


class Inflater:
    """Inflates one body: gzip, deflate, or deflate without its header, as some servers send it."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._engine: zlib._Decompress | None = None  # pyright: ignore[reportPrivateUsage] - it has no other name
        self._rest = b""
        self._at = 0
        """How much of the rest was inflated."""
        self._has_file = False
        """A whole file has come: what follows is another one, or no part of the body."""
        self._is_over = False

    async def read(self, read_chunks: Callable[[], Awaitable[list[bytes]]]) -> bytes:
        """Return what comes next; nothing at the end. Raises HttpError."""
        if self._encoding not in ("gzip", "x-gzip", "deflate"):
            text = f"the server used the compression {self._encoding[:40]!r}, which is unknown here"
            raise HttpError("broken", text)
        while not self._is_over:
            left = len(self._rest) - self._at
            if not left or (self._engine is None and left < _ZLIB_HEADER_BYTES):
                chunks = await read_chunks()
                if not chunks and left and not self._has_file:
                    raise HttpError("broken", _DAMAGED)
                if not chunks:
                    return b""
                self._rest = self._rest[self._at :] + b"".join(chunks)
                self._at = 0
            elif inflated := self._inflate():
                return inflated
            else:
                await asyncio.sleep(0)
        while await read_chunks():
            pass
        return b""

    def _inflate(self) -> bytes:
        engine = self._engine
        if engine is None:
            if self._has_file and not self._rest.startswith(_GZIP_MARK, self._at):
                self._is_over = True
                return b""
            engine = self._engine = zlib.decompressobj(self._window_bits())
        piece = self._rest[self._at : self._at + PIECE_BYTES]
        try:
            inflated = engine.decompress(piece, INFLATED_BYTES_MAX)
        except zlib.error:
            raise HttpError("broken", _DAMAGED) from None
        self._at += len(piece) - len(engine.unconsumed_tail or engine.unused_data)
        if engine.eof:
            # A body may be several files, and the next one may come with the next read.
            self._has_file = True
            self._engine = None
        return inflated

    def _window_bits(self) -> int:
        first, second = self._rest[self._at : self._at + _ZLIB_HEADER_BYTES]
        has_header = first & 15 == zlib.DEFLATED and (first * 256 + second) % 31 == 0
        if self._encoding == "deflate" and not has_header:
            return -zlib.MAX_WBITS
        return zlib.MAX_WBITS | 32
