"""Documents in, text out: PDF, Word, PowerPoint and Excel, for tools, prompts and knowledge.

The law: whatever a file holds, reading it ends, and takes no more memory than its limits allow. An
archive is unpacked once, and counted, before anything else opens it. A PDF is read by a process of
its own, because one page can keep its reader busy for ever, and a thread cannot be stopped.
Formulas, macros and links are never followed. The packages that read the formats are imported with
the first file that needs them.
"""

import io
import json
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from windlass.core.errors import ConfigError

UNPACKED_BYTES_MAX = 256 * 2**20
"""What an archive may hold, unpacked."""
ENTRIES_MAX = 10_000
"""Files in an archive."""
PAGES_MAX = 2_000
TEXT_CHARS_MAX = 4_000_000
"""Characters of text that are taken from one document; the rest is left out, and told."""
SECONDS_MAX = 20.0
"""How long one document may take: a PDF by a clock outside, others between two parts of them."""
PROCESS_BYTES_MAX = 2 * 2**30
"""Memory of the process that reads a PDF."""
RENDERED_PAGES_MAX = 4
"""Pages without text that are shown as pictures."""
RENDERED_WIDTH = 1_000
CUT_NOTE = "[the document goes on; the rest is left out]"

_CHUNK_BYTES = 2**20


class UnreadableDocument(Exception):
    """A document cannot be read; the message says why, in one line."""


def is_document(name: str) -> bool:
    """Whether the name of a file says that it is a document that can be read as text."""
    return _extension(name) in _READERS


def read_document_text(name: str, data: bytes) -> str:
    """Return the text of a document, by the extension of its name.

    Raises UnreadableDocument if it is damaged or too large, ConfigError if the extra is missing.
    """
    package, read = _READERS[_extension(name)]
    require_reader(name)
    if package != "pypdf":
        _check_archive(data)
    try:
        return _join_limited(read(data))
    except UnreadableDocument:
        raise
    except Exception as error:  # The readers raise errors of many kinds for a broken file.
        raise UnreadableDocument(f"it cannot be read ({type(error).__name__})") from error


def read_pdf_title(data: bytes) -> str:
    """Return the title that a PDF says it has; empty if it says none, or is damaged."""
    try:
        return "".join(_read_apart("title", data))
    except UnreadableDocument:
        return ""  # The title of a broken file does not matter.


def _read_apart(what: str, data: bytes) -> Iterator[str]:
    """Yield what a process of its own reads in a PDF; it is killed if it takes too long.

    Raises UnreadableDocument if it fails, or if there is nothing when its time is over.
    """
    # -P: a file beside the document must not take the place of a package.
    program = "from windlass.document_text import answer_request; answer_request()"
    command = [sys.executable, "-P", "-c", program, what]
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            command, input=data, capture_output=True, timeout=SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired as late:
        lines = (late.stdout or b"").split(b"\n")[:-1]
        if not lines:
            raise UnreadableDocument(f"it takes more than {SECONDS_MAX:g} seconds") from None
        yield from map(json.loads, lines)
        yield CUT_NOTE
        return
    for line in done.stdout.splitlines():
        yield json.loads(line)
    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise UnreadableDocument(f"it cannot be read ({reason[:80] or 'its reader was ended'})")


def answer_request() -> None:
    """Read a PDF from standard input, and print what was asked for, a part on each line."""
    with suppress(ImportError, ValueError, OSError):  # Not every system has these limits.
        import resource  # noqa: PLC0415 - as above

        # If the caller is killed, nobody else would end this process.
        seconds = int(SECONDS_MAX) + 5
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (PROCESS_BYTES_MAX, PROCESS_BYTES_MAX))
    try:
        for part in _PDF_PARTS[sys.argv[1]](sys.stdin.buffer.read()):
            sys.stdout.write(json.dumps(part) + "\n")
            sys.stdout.flush()
    except Exception as error:  # noqa: BLE001 - the reader raises errors of many kinds
        sys.exit(type(error).__name__)


def _read_title(data: bytes) -> Iterator[str]:
    import pypdf  # noqa: PLC0415 - an extra

    about = pypdf.PdfReader(io.BytesIO(data)).metadata
    yield str(about.title or "") if about else ""


def require_reader(name: str) -> None:
    """Raise ConfigError if the package that reads such files is not installed."""
    package = _READERS[_extension(name)][0]
    if find_spec(package) is None:
        raise ConfigError(
            f"reading {name} needs another package: pip install 'windlass[documents]'"
        )


def _extension(name: str) -> str:
    return name.rpartition(".")[2].casefold()


def _join_limited(parts: Iterable[str]) -> str:
    """Return the parts as one text, up to the limits of length and time."""
    deadline = time.monotonic() + SECONDS_MAX
    found: list[str] = []
    chars = 0
    for part in parts:
        found.append(part[: TEXT_CHARS_MAX - chars])
        chars += len(part) + 1
        if chars >= TEXT_CHARS_MAX or time.monotonic() > deadline:
            found.append(CUT_NOTE)
            break
    return "\n".join(found).strip()


def _check_archive(data: bytes) -> None:
    """Unpack an archive into nothing, so that its sizes are known to be true before it is read."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if len(entries) > ENTRIES_MAX:
                raise UnreadableDocument(f"it holds more than {ENTRIES_MAX} files")
            left = UNPACKED_BYTES_MAX
            for entry in entries:
                with archive.open(entry) as file:
                    while chunk := file.read(_CHUNK_BYTES):
                        left -= len(chunk)
                        if left < 0:
                            raise UnreadableDocument("unpacked, it is too large")
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        # An encrypted file is a RuntimeError; another way of packing is not implemented.
        raise UnreadableDocument(f"it is not a readable archive ({type(error).__name__})") from None


def _read_pdf(data: bytes) -> Iterator[str]:
    return _read_apart("text", data)


def _read_pages(data: bytes) -> Iterator[str]:
    import pypdf  # noqa: PLC0415 - an extra

    reader = pypdf.PdfReader(io.BytesIO(data))
    for number, page in enumerate(reader.pages, 1):
        if number > PAGES_MAX:
            yield CUT_NOTE
            return
        yield page.extract_text() + "\n"


def _read_docx(data: bytes) -> Iterator[str]:
    import docx  # noqa: PLC0415 - an extra

    document: Any = docx.Document(io.BytesIO(data))
    for block in document.iter_inner_content():
        if hasattr(block, "rows"):
            yield from _format_rows([cell.text for cell in row.cells] for row in block.rows)
        elif block.text.strip():
            style = block.style.name if block.style is not None else ""
            heading = style.removeprefix("Heading ")
            yield f"{'#' * int(heading)} {block.text}" if heading.isdigit() else block.text


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


_READERS: dict[str, tuple[str, Callable[[bytes], Iterator[str]]]] = {
    "pdf": ("pypdf", _read_pdf),
    "docx": ("docx", _read_docx),
    "pptx": ("pptx", _read_pptx),
    "xlsx": ("python_calamine", _read_xlsx),
    "xlsm": ("python_calamine", _read_xlsx),
    "ods": ("python_calamine", _read_xlsx),
}
"""The package that reads each kind of file, and how."""


def render_pdf_pages(data: bytes) -> list[bytes]:
    """Return the first pages of a PDF as PNG pictures, for scans, which have no text.

    Raises UnreadableDocument if it is damaged, and ConfigError if the extra is missing.
    """
    if find_spec("pypdfium2") is None:
        raise ConfigError("showing PDF pages needs: pip install 'windlass[documents]'")
    pages = [page for page in _read_apart("pictures", data) if page != CUT_NOTE]
    return [b64decode(page) for page in pages]


def _draw_pages(data: bytes) -> Iterator[str]:
    pypdfium2: Any = import_module("pypdfium2")
    document: Any = pypdfium2.PdfDocument(data)
    for at in range(min(len(document), RENDERED_PAGES_MAX)):
        yield b64encode(_render_page(document[at])).decode()


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


_PDF_PARTS: dict[str, Callable[[bytes], Iterator[str]]] = {
    "text": _read_pages,
    "title": _read_title,
    "pictures": _draw_pages,
}
"""What a process of its own can be asked to read in a PDF."""
