"""Colours for code: Pygments reads it here, so that a page needs no reader of its own.

Invariant: code from a caller never holds the service up. It is read in a process that is killed
when its time is over. Code that takes longer, or comes while too much waits, has no colours.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from windlass.readers.code import Span
from windlass.readers.pool import ReaderJob, ReaderPool

CODE_CHARS_MAX = 60_000
READERS_MAX = 1
SECONDS_MAX = 1.0
MEMORY_BYTES = 2**30
RESULT_BYTES = 8 * 2**20
WAITING_MAX = 64
"""Pieces of one caller's code that are read or wait for it; a page may show this many."""
_pool = ReaderPool(READERS_MAX)
_waiting: Counter[str] = Counter()


class HighlightBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Code that is to be coloured."""

    language: Annotated[str, Meta(max_length=60)]
    code: Annotated[str, Meta(max_length=CODE_CHARS_MAX)]


class HighlightReply(msgspec.Struct, frozen=True):
    """The code in pieces: the kind of each, and its text; null if it cannot be coloured."""

    spans: Sequence[Sequence[str]] | None


async def highlight_code(language: str, code: str, caller: str = "") -> list[Span] | None:
    """Return the code in coloured pieces.

    None if the language is not known, if the code is too long or takes too long, or if too much of
    the caller's code waits.
    """
    if len(code) > CODE_CHARS_MAX or _waiting[caller] >= WAITING_MAX:
        return None
    job = ReaderJob(
        "windlass.readers.code:read_code",
        {"language": language.lower()},
        seconds=SECONDS_MAX,
        memory_bytes=MEMORY_BYTES,
        result_bytes=RESULT_BYTES,
        preload=("pygments.lexers", "pygments.util"),
    )
    _waiting[caller] += 1
    try:
        result = await _pool.run(job, code.encode())
    finally:
        _waiting[caller] -= 1
        if not _waiting[caller]:
            del _waiting[caller]
    if result.failure:
        return None
    return msgspec.json.decode(b"".join(result.parts), type=list[Span] | None)
