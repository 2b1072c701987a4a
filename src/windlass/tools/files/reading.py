"""A file's bytes in; what a model is shown of them out: numbered lines, or a picture.

What is neither is refused with a word on what it is: its bytes would only fill the prompt.
"""

from windlass.core.errors import ModelRetry
from windlass.core.messages import ImagePart
from windlass.tools.files.paths import quote_path
from windlass.tools.files.workspace import FileContent
from windlass.tools.results import to_content

LINES_MAX = 2_000
"""Lines in one page."""
LINE_CHARS_MAX = 2_000
"""What is shown of a line."""
PAGE_BYTES_MAX = 30 * 1024
"""Stays below the size at which a result is clipped, so that a page is whole."""
PICTURE_BYTES_MAX = 5 * 2**20
"""What the models' providers take."""
FILE_BYTES_MAX = 64 * 2**20
"""Of a longer file, only the beginning can be read in pages."""
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
    """The picture that a file is, if it is one."""
    part = to_content(content.data)[0] if detect_binary_kind(content.data) else None
    if not isinstance(part, ImagePart):
        return None
    if content.size > PICTURE_BYTES_MAX:
        raise ModelRetry(
            f"{quote_path(content.path)} is a picture of {format_size(content.size)}: "
            f"{format_size(PICTURE_BYTES_MAX)} is the most that can be shown."
        )
    return part


def decode_text(content: FileContent) -> str:
    """The text that a file is."""
    if content.data.startswith(_UTF16_MARKS):
        return content.data.decode("utf-16", "replace")
    kind = detect_binary_kind(content.data)
    if kind:
        raise ModelRetry(
            f"{quote_path(content.path)} is not text but {kind} of {format_size(content.size)}: "
            "it cannot be read or edited as text."
        )
    return content.data.decode("utf-8-sig", "replace")


def is_binary(data: bytes) -> bool:
    return bool(detect_binary_kind(data))


def detect_binary_kind(data: bytes) -> str:
    """What a file is, if it is not text."""
    head = data[:_SNIFFED_BYTES]
    for magic, kind in _BINARY_SIGNATURES:
        if head.startswith(magic) and not (magic.isascii() and magic.isalnum() and head.isascii()):
            return kind
    if b"\x00" in head or head.startswith((b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8")):
        return "binary data"
    return ""


def format_page(content: FileContent, offset: int, limit: int) -> str:
    """Numbered lines from `offset` on, as many as fit, and how to read on."""
    text = decode_text(content)
    lines = text.removesuffix("\n").split("\n") if text else []
    if not lines:
        return f"[{printable_name(content.path)} is empty]"
    if offset > len(lines):
        raise ModelRetry(
            f"{quote_path(content.path)} has {len(lines)} lines: offset={offset} is past it."
        )
    kept: list[str] = []
    room = PAGE_BYTES_MAX
    for number, line in enumerate(lines[offset - 1 : offset - 1 + limit], offset):
        one = f"{number:>6}\t{_shorten_line(line.removesuffix(chr(13)))}"
        room -= len(one.encode("utf-8", "replace")) + 1
        if room < 0 and kept:
            break
        kept.append(one)
    return "\n".join(kept + _page_notes(content, text, offset, len(kept), len(lines)))


def _page_notes(
    content: FileContent, text: str, offset: int, shown_lines: int, lines: int
) -> list[str]:
    """What a reader of a page must know."""
    notes: list[str] = []
    last = offset - 1 + shown_lines
    if last < lines:
        notes.append(f"[lines {offset} to {last} of {lines}; go on with offset={last + 1}]")
    if content.size > len(content.data):
        notes.append(
            f"[the file has {format_size(content.size)}; only the first {format_size(len(content.data))} "
            "can be read so: use grep for the rest]"
        )
    if "\ufffd" in text and b"\xef\xbf\xbd" not in content.data:
        notes.append("[not all of it is UTF-8: other bytes are shown as \ufffd]")
    return notes


def format_listing(path: str, entries: list[tuple[str, str]]) -> str:
    """A folder's names, marked as `ls -F` marks them."""
    marks = {"folder": "/", "link": "@", "other": "?"}
    names = [f"{printable_name(name)}{marks.get(kind, '')}" for name, kind in entries[:ENTRIES_MAX]]
    if len(entries) > ENTRIES_MAX:
        names.append(f"[{len(entries) - ENTRIES_MAX} more: use glob]")
    return "\n".join([f"{printable_name(path)} is a folder:", *(names or ["[it is empty]"])])


def _shorten_line(line: str) -> str:
    if len(line) <= LINE_CHARS_MAX:
        return line
    return f"{line[:LINE_CHARS_MAX]} [… {len(line) - LINE_CHARS_MAX} more characters]"


def printable_name(name: str) -> str:
    """A name in one line: a line break in it must not look like a second name."""
    return name if name.isprintable() else repr(name)


def format_size(size: int) -> str:
    for unit, factor in (("MB", 2**20), ("kB", 2**10)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} bytes"
