"""Turn the answer of a web server into what the model reads."""

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
# Python accepts these as text encodings, and some are slow. No web page uses them.
_NON_WEB_ENCODINGS = frozenset(
    {"idna", "punycode", "raw-unicode-escape", "raw_unicode_escape", "unicode-escape"}
    | {"unicode_escape", "undefined", "utf-7"}
)


@dataclass(frozen=True, slots=True)
class WebPage:
    """An answer without its compression."""

    url: str
    media_type: str
    charset: str | None
    data: bytes
    is_cut: bool
    """Whether there was more than was read."""


def decompress_body(data: bytes, encoding: str, bytes_max: int) -> bytes:
    """Decompress a body, up to `bytes_max` bytes. Raises ModelRetry if it cannot be read."""
    match encoding.strip().lower():
        case "" | "identity":
            return data[:bytes_max]
        case "gzip" | "x-gzip" | "deflate":
            return _inflate(data, bytes_max)
        case other:
            raise ModelRetry(
                f"The server used the compression {other[:40]!r}, which is not supported."
            )


def _inflate(data: bytes, bytes_max: int) -> bytes:
    # gzip or zlib, which the data itself shows; or raw deflate, which some servers send as
    # "deflate".
    for bits in (zlib.MAX_WBITS | 32, -zlib.MAX_WBITS):
        engine = zlib.decompressobj(bits)
        try:
            inflated = engine.decompress(data, bytes_max)
        except zlib.error:
            continue
        if inflated or engine.eof or not data:
            return inflated
    raise ModelRetry("The server's answer is compressed and cannot be decompressed.")


def to_readable(page: WebPage) -> str | ImagePart:
    """Return text as it is, HTML as readable text, or a picture.

    Raises ModelRetry, which names the kind, for anything else.
    """
    charset = _find_charset(page)
    kind = detect_binary_kind(page.data)
    if kind and not charset.startswith(("utf-16", "utf-32")):
        return _read_picture(page, kind)
    text = page.data.decode(charset, "replace")
    title = ""
    if page.media_type in _HTML_TYPES or (not page.media_type and _LOOKS_LIKE_HTML.match(text)):
        title, text = html_to_text(text, page.url)
        text = text or "[the page has no text; it may be built by a script in a browser]"
    head = [page.url]
    if title:
        head.append(f"Title: {title}")
    if page.is_cut:
        head.append(f"[only the first {format_size(len(page.data))} were read]")
    return "\n".join([*head, "", text])


def _read_picture(page: WebPage, kind: str) -> ImagePart:
    part = to_content(page.data)[0]
    if isinstance(part, FilePart):
        raise ModelRetry(f"{page.url} is a PDF document, which `fetch` cannot read.")
    if not isinstance(part, ImagePart):
        if page.media_type:
            kind = f"{kind} ({page.media_type})"
        raise ModelRetry(f"{page.url} is {kind}, not text or a picture.")
    if page.is_cut:
        raise ModelRetry(
            f"{page.url} is a picture of more than {format_size(len(page.data))}, which is too "
            "large."
        )
    return part


def _find_charset(page: WebPage) -> str:
    """Return the encoding that the bytes, the server or the page itself names; else UTF-8."""
    for mark, name in _BYTE_ORDER_MARKS:
        if page.data.startswith(mark):
            return name
    names = [page.charset] if page.charset else []
    if page.media_type in _HTML_TYPES and (meta := _META_CHARSET.search(page.data[:_META_BYTES])):
        names.append(meta[1].decode("ascii", "replace"))
    for name in names:
        try:
            encoding = codecs.lookup(name).name
            "".encode(encoding)  # Raises for codecs that do not encode text, such as base64.
        except (LookupError, ValueError):
            continue
        if encoding not in _NON_WEB_ENCODINGS:
            return encoding
    return "utf-8"
