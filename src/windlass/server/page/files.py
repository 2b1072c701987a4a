"""The files of the page, as they are in the package, and colours for code, by Pygments.

Invariant: code from a caller never holds the service up. It is read in a process that is killed
when its time is over. Code that takes longer, or comes while too much waits, has no colours.
"""

import gzip
import hashlib
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from windlass.readers.code import Span
from windlass.readers.pool import ReaderJob, ReaderPool
from windlass.server.errors import ApiError
from windlass.server.messages import HttpReply, HttpRequest

CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    # Pictures of a conversation are shown from memory, and the icon of the tab is drawn.
    "img-src 'self' blob: data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Nothing inline, nothing from elsewhere, and no text that becomes markup or script."""


class PageFile(msgspec.Struct, frozen=True):
    """A file of the page."""

    body: bytes
    short: bytes
    """The same, compressed."""
    tag: str
    content_type: str


@cache
def read_page_files() -> dict[str, PageFile]:
    """Return all files of the page by their names."""
    found: dict[str, PageFile] = {}
    for path in Path(__file__).with_name("static").iterdir():
        kind = path.suffix.removeprefix(".")
        if kind in CONTENT_TYPES:
            body = path.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
            short = gzip.compress(body, 9, mtime=0)
            found[path.name] = PageFile(body, short, tag, CONTENT_TYPES[kind])
    return found


def serve_page_file(request: HttpRequest, name: str) -> HttpReply:
    """Return a file of the page. Raises ApiError 404."""
    file = read_page_files().get(name)
    if file is None:
        raise ApiError(
            404, "file_not_found", f"The page has no file {name[:100]!r}.", "Open / instead."
        )
    headers = {
        "Cache-Control": "no-cache",
        "ETag": file.tag,
        "Content-Security-Policy": CONTENT_POLICY,
        "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    }
    if request.header("if-none-match") == file.tag:
        return HttpReply(304, b"", headers, file.content_type)
    if "gzip" in request.header("accept-encoding"):
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return HttpReply(200, file.short, headers, file.content_type)
    return HttpReply(200, file.body, headers, file.content_type)


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
