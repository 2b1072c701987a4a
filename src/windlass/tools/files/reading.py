"""Turn the bytes of a file into what a model reads: numbered lines, or a picture.

Other files are refused with a text that names their kind, because their bytes would only fill the
prompt.
"""

from dataclasses import replace

from windlass.core.errors import ConfigError, ModelRetry
from windlass.core.messages import ContentPart, ImagePart, TextPart
from windlass.document_text import (
    UnreadableDocument,
    is_document,
    read_document_text,
    render_pdf_pages,
)
from windlass.tools.files.paths import quote_path
from windlass.tools.files.workspace import FileContent
from windlass.tools.results import to_content

LINES_MAX = 2_000
"""Lines in one page."""
LINE_CHARS_MAX = 2_000
"""Characters of a line that are shown."""
PAGE_BYTES_MAX = 30 * 1024
"""Less than the size at which a result is clipped, so that a page is never clipped."""
PICTURE_BYTES_MAX = 5 * 2**20
"""The largest picture that the model providers accept."""
FILE_BYTES_MAX = 64 * 2**20
"""Only this much of a file can be read in pages."""
ENTRIES_MAX = 1_000

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_BINARY_SIGNATURES = (
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"(\xb5/\xfd", "a zstd archive"),
    (b"\x7fELF", "a program"),
    (b"\xcf\xfa\xed\xfe", "a program"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\x00asm", "a WebAssembly module"),
    (b"\xca\xfe\xba\xbe", "a Java class"),
    (b"ID3", "a sound"),
    (b"OggS", "a sound or film"),
    (b"RIFF", "a sound or film"),
)
_SNIFFED_BYTES = 8_192


def read_picture(content: FileContent) -> ImagePart | None:
    """Return the picture in a file, or None if the file is not a picture.

    Raises ModelRetry if the picture is larger than PICTURE_BYTES_MAX.
    """
    part = to_content(content.data)[0] if is_binary(content.data) else None
    if not isinstance(part, ImagePart):
        return None
    if content.size > PICTURE_BYTES_MAX:
        raise ModelRetry(
            f"{quote_path(content.path)} is a picture of {format_size(content.size)}, and "
            f"{format_size(PICTURE_BYTES_MAX)} is the most that can be shown."
        )
    return part


def holds_document(content: FileContent) -> bool:
    """Whether a file is a document, such as a Word file, by its name and its content."""
    return is_document(content.path) and is_binary(content.data)


async def read_document(content: FileContent, offset: int, limit: int) -> str | list[ContentPart]:
    """Return a page of the text of a document.

    Of a PDF without text, which is a scan, the first pages are shown as pictures. Raises ModelRetry
    if the document cannot be read.
    """
    try:
        text = await read_document_text(content.path, content.data)
        if not text and content.data.startswith(b"%PDF-"):
            note = TextPart(f"[{printable_name(content.path)} has no text; its first pages:]")
            pages = await render_pdf_pages(content.data)
            return [note, *(ImagePart("image/png", page) for page in pages)]
    except (UnreadableDocument, ConfigError) as error:
        raise ModelRetry(f"{quote_path(content.path)}: {error}") from error
    as_text = replace(content, data=text.encode(), size=len(text.encode()))
    return format_page(as_text, offset, limit)


def decode_text(content: FileContent) -> str:
    """Return the text of a file. Raises ModelRetry, which names its kind, if it is binary."""
    if content.data.startswith(_UTF16_MARKS):
        return content.data.decode("utf-16", "replace")
    kind = detect_binary_kind(content.data)
    if kind:
        raise ModelRetry(
            f"{quote_path(content.path)} is not text but {kind} of {format_size(content.size)}. "
            "It cannot be read or edited as text."
        )
    return content.data.decode("utf-8-sig", "replace")


def is_binary(data: bytes) -> bool:
    return bool(detect_binary_kind(data))


def detect_binary_kind(data: bytes) -> str:
    """Return the kind of a binary file, such as "a zip archive"; empty for text."""
    head = data[:_SNIFFED_BYTES]
    for magic, kind in _BINARY_SIGNATURES:
        # A signature of letters, such as "ID3", may also be the first word of a text.
        looks_like_text = magic.isascii() and magic.isalnum() and head.isascii()
        if head.startswith(magic) and not looks_like_text:
            return kind
    if b"\x00" in head or head.startswith((b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8")):
        return "binary data"
    return ""


def format_page(content: FileContent, offset: int, limit: int) -> str:
    """Return numbered lines from line `offset` on, as many as fit, and a note on how to read on.

    Raises ModelRetry if the file is binary, or has fewer lines than `offset`.
    """
    text = decode_text(content)
    if not text:
        return f"[{printable_name(content.path)} is empty]"
    # A code that colours a terminal would be taken out of the result, and the line be misread.
    lines = text.removesuffix("\n").replace("\x1b", "\\x1b").split("\n")
    if offset > len(lines):
        raise ModelRetry(
            f"{quote_path(content.path)} has {len(lines)} lines: offset={offset} is past the end."
        )
    page_lines: list[str] = []
    bytes_left = PAGE_BYTES_MAX
    for number, line in enumerate(lines[offset - 1 : offset - 1 + limit], offset):
        page_line = f"{number:>6}\t{_shorten_line(line.removesuffix(chr(13)))}"
        bytes_left -= len(page_line.encode("utf-8", "replace")) + 1
        if bytes_left < 0 and page_lines:
            break
        page_lines.append(page_line)
    last_line = offset - 1 + len(page_lines)
    if last_line < len(lines):
        page_lines.append(
            f"[lines {offset} to {last_line} of {len(lines)}; continue with offset={last_line + 1}]"
        )
    return "\n".join(page_lines + _file_notes(content, text))


def _file_notes(content: FileContent, text: str) -> list[str]:
    """Say what a page does not show of its file."""
    notes: list[str] = []
    if content.size > len(content.data):
        notes.append(
            f"[the file has {format_size(content.size)}; only the first "
            f"{format_size(len(content.data))} can be read this way: use grep for the rest]"
        )
    if "\ufffd" in text and b"\xef\xbf\xbd" not in content.data:
        notes.append("[the file is not entirely UTF-8: invalid bytes are shown as \ufffd]")
    if "\x1b" in text:
        notes.append("[escape characters are shown as \\x1b]")
    return notes


def format_listing(path: str, entries: list[tuple[str, str]]) -> str:
    """List the names in a folder, marked as `ls -F` marks them."""
    marks = {"folder": "/", "link": "@", "other": "?"}
    names = [f"{printable_name(name)}{marks.get(kind, '')}" for name, kind in entries[:ENTRIES_MAX]]
    if len(entries) > ENTRIES_MAX:
        names.append(f"[{len(entries) - ENTRIES_MAX} more: use glob]")
    if not names:
        names = ["[it is empty]"]
    return "\n".join([f"{printable_name(path)} is a folder:", *names])


def _shorten_line(line: str) -> str:
    if len(line) <= LINE_CHARS_MAX:
        return line
    return f"{line[:LINE_CHARS_MAX]} [… {len(line) - LINE_CHARS_MAX} more characters]"


def printable_name(name: str) -> str:
    """Return a name on one line: a line break in it must not look like a second name."""
    return name if name.isprintable() else repr(name)


def format_size(size: int) -> str:
    """Format a number of bytes, such as "1.5 MB"."""
    for unit, factor in (("MB", 2**20), ("kB", 2**10)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} bytes"
