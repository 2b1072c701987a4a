"""The files of the page, as they are in the package."""

import gzip
import hashlib
from functools import cache
from pathlib import Path

import msgspec

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
