"""Documents in, parts of their text out: PDF, Word, PowerPoint and Excel.

This module is run by a reader (`server.py`), never in the runtime's own process: a spreadsheet of a
kilobyte can claim billions of cells, and a page can keep its reader busy for ever. An archive is
unpacked once, and counted, before anything else opens it. Formulas, macros and links are never
followed. The packages that read the formats are imported when a file needs them.
"""

import io
import struct
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

from windlass.readers.server import ReaderRefusal

RENDERED_WIDTH = 1_000
CUT_NOTE = "[the document goes on; the rest is left out]"
_CHUNK_BYTES = 2**20
_BLOCK_CHARS = 2**16
_BLOCK_S = 0.5


class DocumentLimits(NamedTuple):
    """How much of a document is read."""

    unpacked_bytes: int
    """What an archive may hold, unpacked."""
    entries: int
    """Files in an archive."""
    pages: int
    text_chars: int
    """Characters of text that are taken from one document; the rest is left out, and noted."""
    rendered_pages: int
    """Pages without text that are shown as pictures."""


def read_document(data: bytes, what: str, limits: list[int]) -> Iterator[bytes]:
    """Yield what is asked for: parts of the text, the title of a PDF, or pictures of its pages.

    Raises ReaderRefusal if the document is too large.
    """
    bounds = DocumentLimits(*limits)
    if what == "pictures":
        yield from _draw_pages(data, bounds)
        return
    for part in _limit_chars(_TEXTS[what](data, bounds), bounds.text_chars):
        yield part.encode("utf-8", "replace")


def _limit_chars(parts: Iterable[str], chars_max: int) -> Iterator[str]:
    left = chars_max
    for part in parts:
        yield part[:left]
        left -= len(part) + 1
        if left <= 0:
            yield CUT_NOTE
            return


def _join_small(parts: Iterable[str]) -> Iterator[str]:
    """Yield blocks of lines: a document may have millions of short ones.

    A block also ends after a while: something is shown of a document that takes too long.
    """
    block: list[str] = []
    chars = 0
    began_at = time.monotonic()
    for part in parts:
        block.append(part)
        chars += len(part) + 1
        if chars >= _BLOCK_CHARS or time.monotonic() - began_at >= _BLOCK_S:
            yield "\n".join(block)
            block, chars, began_at = [], 0, time.monotonic()
    if block:
        yield "\n".join(block)


def _read_archive(
    read: Callable[[bytes], Iterator[str]],
) -> Callable[[bytes, DocumentLimits], Iterator[str]]:
    def read_checked(data: bytes, limits: DocumentLimits) -> Iterator[str]:
        _check_archive(data, limits)
        return _join_small(read(data))

    return read_checked


def _check_archive(data: bytes, limits: DocumentLimits) -> None:
    """Unpack an archive into nothing, so that its sizes are known to be true before it is read."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if len(entries) > limits.entries:
                raise ReaderRefusal(f"it holds more than {limits.entries} files")
            left = limits.unpacked_bytes
            for entry in entries:
                with archive.open(entry) as file:
                    while chunk := file.read(_CHUNK_BYTES):
                        left -= len(chunk)
                        if left < 0:
                            raise ReaderRefusal("unpacked, it is too large")
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        # An encrypted file is a RuntimeError; another way of packing is not implemented.
        raise ReaderRefusal(f"it is not a readable archive ({type(error).__name__})") from None


def _read_pages(data: bytes, limits: DocumentLimits) -> Iterator[str]:
    import pypdf  # noqa: PLC0415 - an extra

    reader = pypdf.PdfReader(io.BytesIO(data))
    for number, page in enumerate(reader.pages, 1):
        if number > limits.pages:
            yield CUT_NOTE
            return
        yield page.extract_text() + "\n"


def _read_title(data: bytes, _: DocumentLimits) -> Iterator[str]:
    import pypdf  # noqa: PLC0415 - an extra

    about = pypdf.PdfReader(io.BytesIO(data)).metadata
    yield str(about.title or "") if about else ""


def _read_docx(data: bytes) -> Iterator[str]:
    import docx  # noqa: PLC0415 - an extra

    document: Any = docx.Document(io.BytesIO(data))
    # `block.style` searches all styles for each paragraph, which takes most of the time.
    styles: dict[str, str] = {style.style_id: style.name or "" for style in document.styles}
    for block in document.iter_inner_content():
        if hasattr(block, "rows"):
            yield from _format_rows([cell.text for cell in row.cells] for row in block.rows)
        elif (text := block.text).strip():
            heading = styles.get(block._p.style, "").removeprefix("Heading ")  # noqa: SLF001
            yield f"{'#' * int(heading)} {text}" if heading.isdigit() else text


def _read_pptx(data: bytes) -> Iterator[str]:
    import pptx  # noqa: PLC0415 - an extra

    presentation: Any = pptx.Presentation(io.BytesIO(data))
    for number, slide in enumerate(presentation.slides, 1):
        yield f"## Slide {number}"
        for shape in slide.shapes:
            if shape.has_text_frame and shape.text_frame.text.strip():
                yield shape.text_frame.text
            if shape.has_table:
                rows = shape.table.rows
                yield from _format_rows([cell.text for cell in row.cells] for row in rows)
        if slide.has_notes_slide:
            yield f"Notes: {slide.notes_slide.notes_text_frame.text}"


def _read_xlsx(data: bytes) -> Iterator[str]:
    import python_calamine  # noqa: PLC0415 - an extra

    workbook: Any = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
    for name in workbook.sheet_names:
        yield f"## {name}"
        rows = workbook.get_sheet_by_name(name).iter_rows()
        yield from _format_rows([_format_cell(cell) for cell in row] for row in rows)


def _format_cell(cell: object) -> str:
    # A sheet has no whole numbers: 3 is 3.0.
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell)


def _format_rows(rows: Iterable[list[str]]) -> Iterator[str]:
    """Yield the rows of a table, each on one line. Empty rows are left out."""
    for row in rows:
        cells = [" ".join(cell.split()) for cell in row]
        if any(cells):
            yield " | ".join(cells)


def _draw_pages(data: bytes, limits: DocumentLimits) -> Iterator[bytes]:
    pypdfium2: Any = import_module("pypdfium2")
    document: Any = pypdfium2.PdfDocument(data)
    for at in range(min(len(document), limits.rendered_pages)):
        yield _render_page(document[at])


def _render_page(page: Any) -> bytes:  # noqa: ANN401 - the package has no types
    width, height = page.get_size()
    # A page may claim to be as large as a house: its longer side decides.
    scale = RENDERED_WIDTH / max(width, height, 1.0)
    bitmap = page.render(scale=scale, rev_byteorder=True)
    rows = bytes(bitmap.buffer)
    stride, channels = bitmap.stride, bitmap.n_channels
    lines = (
        rows[at * stride : at * stride + bitmap.width * channels] for at in range(bitmap.height)
    )
    return _encode_png(bitmap.width, bitmap.height, channels, lines)


def _encode_png(width: int, height: int, channels: int, lines: Iterable[bytes]) -> bytes:
    colour = {1: 0, 3: 2, 4: 6}[channels]
    head = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + line for line in lines))
    chunks = ((b"IHDR", head), (b"IDAT", pixels), (b"IEND", b""))
    encoded = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(encoded)


_TEXTS: dict[str, Callable[[bytes, DocumentLimits], Iterator[str]]] = {
    "pdf": _read_pages,
    "title": _read_title,
    "docx": _read_archive(_read_docx),
    "pptx": _read_archive(_read_pptx),
    "xlsx": _read_archive(_read_xlsx),
}
"""What can be read as text in a document, and how."""
