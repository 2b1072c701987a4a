"""The body of an HTTP answer of an MCP server, in the units that the SDK takes messages from.

Invariant: a unit is never less than what the SDK takes as one message: an answer of JSON as a
whole, or at least one event of a stream.
"""

import asyncio
import re
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Protocol, final

from windlass.tools.mcp.message_bounds import FEW_VALUES, bound_message, count_separators

EVENT_LINES_MAX = 10_000
"""Lines of one event. The SDK handles each line for itself."""
_LINE_END = re.compile(rb"\r\n|\n|\r")
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r){2,}")
_EVENT_END_BYTES = 3
"""How much of the end of an event can be there before the rest of it comes."""


class BodyRefused(Exception):
    """A body is too large; the message says in which way."""


class PendingBody(Protocol):
    """What has come of a body and is not complete yet."""

    @property
    def size(self) -> int: ...

    def add(self, piece: bytes) -> Sequence[bytes]:
        """Add a piece, and return the units that are complete now."""
        ...

    def take_rest(self) -> bytes:
        """Return the last unit, at the end of the body."""
        ...

    async def bound(self, unit: bytes) -> bytes:
        """Return a unit as the SDK may see it. Raises BodyRefused."""
        ...


async def iterate_bounded(
    body: AsyncIterable[bytes], pending: PendingBody, bytes_max: int
) -> AsyncIterator[bytes]:
    """Yield the units of a body as the SDK may see them.

    Raises BodyRefused if a unit is longer than `bytes_max`, or has too many lines.
    """
    async for piece in body:
        for unit in pending.add(piece):
            yield await pending.bound(unit)
            await asyncio.sleep(0)  # There may be thousands of them in a piece.
        if pending.size > bytes_max:
            limit = f"{bytes_max / 2**20:.0f} MiB"
            raise BodyRefused(f"the answer is longer than {limit}; ask for less")
    yield await pending.bound(pending.take_rest())


@final
class PendingAnswer:
    """An answer of JSON. Nothing of it is complete before its end."""

    def __init__(self) -> None:
        self._data = bytearray()

    @property
    def size(self) -> int:
        return len(self._data)

    def add(self, piece: bytes) -> Sequence[bytes]:
        self._data += piece
        return ()

    def take_rest(self) -> bytes:
        return bytes(self._data)

    async def bound(self, unit: bytes) -> bytes:
        return await bound_message(unit)


@final
class PendingEvents:
    """Events of a stream. Small events that come together are one unit."""

    def __init__(self) -> None:
        self._data = bytearray()

    @property
    def size(self) -> int:
        return len(self._data)

    def add(self, piece: bytes) -> Sequence[bytes]:
        search_from = max(len(self._data) - _EVENT_END_BYTES, 0)
        self._data += piece
        ends = [found.end() for found in _EVENT_END.finditer(self._data, search_from)]
        if not ends:
            return ()
        complete = bytes(self._data[: ends[-1]])
        del self._data[: ends[-1]]
        if _count_lines(complete) <= EVENT_LINES_MAX and _has_few_values(complete):
            return (complete,)
        return [complete[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def take_rest(self) -> bytes:
        return bytes(self._data)

    async def bound(self, unit: bytes) -> bytes:
        if _count_lines(unit) > EVENT_LINES_MAX:
            raise BodyRefused(f"an event has more than {EVENT_LINES_MAX} lines")
        if _has_few_values(unit):
            return unit
        lines = _LINE_END.split(unit)
        message = b"\n".join(_read_value(line) for line in lines if _is_data(line))
        taken = await bound_message(message)
        if taken == message:
            return unit
        others = [line for line in lines if line and not _is_data(line)]
        return b"\n".join([*others, b"data: " + taken, b"", b""]) if taken else b""


def _count_lines(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r")


def _has_few_values(data: bytes) -> bool:
    # Quotes tell nothing here: a comment may have one that does not end.
    return count_separators(data) <= FEW_VALUES


def _is_data(line: bytes) -> bool:
    return line.partition(b":")[0] == b"data"


def _read_value(line: bytes) -> bytes:
    return line.partition(b":")[2].removeprefix(b" ")
