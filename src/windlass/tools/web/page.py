"""What a web server answered in; what a model is shown of it out."""

import codecs
import re
import zlib
from dataclasses import dataclass

from windlass.core.errors import ModelRetry
from windlass.core.messages import FilePart, ImagePart
from windlass.html_text import html_to_text
from windlass.tools.files.reading import detect_binary_kind, format_size
from windlass.tools.results import to_content

_HTML_TYPES = frozenset(("text/html", "application/xhtml+xml"))
_LOOKS_LIKE_HTML = re.compile(r"\s*<(!doctype html|html|head|body)\b", re.IGNORECASE)
_META_CHARSET = re.compile(
    rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE
)
_META_BYTES = 2_048
_BYTE_ORDER_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
# Python knows them as encodings of text, and some are slow; no page is written in one.
_NON_WEB_ENCODINGS = frozenset(
    {"idna", "punycode", "raw-unicode-escape", "raw_unicode_escape", "unicode-escape"}
    | {"unicode_escape", "undefined", "utf-7"}
)


@dataclass(frozen=True, slots=True)
class WebPage:
    """An answer, as it came."""

    url: str
    media_type: str
    charset: str | None
    data: bytes
    is_cut: bool
    """There was more."""


def decompress_body(data: bytes, encoding: str, bytes_max: int) -> bytes:
    """A body without its compression, and never more of it than `bytes_max`."""
    match encoding.strip().lower():
        case "" | "identity":
            return data[:bytes_max]
        case "gzip" | "x-gzip" | "deflate":
            return _inflate(data, bytes_max)
        case other:
            raise ModelRetry(
                f"The server sent {other[:40]!r} compression, which was not asked for."
            )


def _inflate(data: bytes, bytes_max: int) -> bytes:
    # gzip or zlib, as the data itself says; or what some servers call "deflate", without a head.
    for bits in (zlib.MAX_WBITS | 32, -zlib.MAX_WBITS):
        engine = zlib.decompressobj(bits)
        try:
            inflated = engine.decompress(data, bytes_max)
        except zlib.error:
            continue
        if inflated or engine.eof or not data:
            return inflated
    raise ModelRetry("The server's answer is compressed, and broken.")


def to_readable(page: WebPage) -> str | ImagePart:
    """Text as it is, HTML as readable text, a picture as a picture; refuses the rest by name."""
    charset = _find_charset(page)
    kind = detect_binary_kind(page.data)
    if kind and not charset.startswith(("utf-16", "utf-32")):
        return _read_picture(page, kind)
    text = page.data.decode(charset, "replace")
    title = ""
    if page.media_type in _HTML_TYPES or (not page.media_type and _LOOKS_LIKE_HTML.match(text)):
        title, text = html_to_text(text, page.url)
        text = text or "[the page holds no text; it may be made by a script, in a browser]"
    head = [page.url]
    if title:
        head.append(f"Title: {title}")
    if page.is_cut:
        head.append(f"[only the first {format_size(len(page.data))} were read]")
    return "\n".join([*head, "", text])


def _read_picture(page: WebPage, kind: str) -> ImagePart:
    part = to_content(page.data)[0]
    if isinstance(part, FilePart):
        raise ModelRetry(f"{page.url} is a PDF document, which cannot be read here.")
    if not isinstance(part, ImagePart):
        told = f"{kind} ({page.media_type})" if page.media_type else kind
        raise ModelRetry(f"{page.url} is {told}, and not text or a picture.")
    if page.is_cut:
        raise ModelRetry(f"{page.url} is a picture of more than {format_size(len(page.data))}.")
    return part


def _find_charset(page: WebPage) -> str:
    """The encoding that the bytes, the server or the page itself names; else UTF-8."""
    for mark, name in _BYTE_ORDER_MARKS:
        if page.data.startswith(mark):
            return name
    meta = _META_CHARSET.search(page.data[:_META_BYTES]) if page.media_type in _HTML_TYPES else None
    named = (page.charset, meta[1].decode("ascii", "replace") if meta else None)
    for name in filter(None, named):
        try:
            known = codecs.lookup(name).name
            "".encode(known)  # Refuses what is no encoding of text.
        except (LookupError, ValueError):
            continue
        if known not in _NON_WEB_ENCODINGS:
            return known
    return "utf-8"
