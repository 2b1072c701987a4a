"""Files in, text out: plain text, Markdown, HTML, PDF.

The law: whatever a file holds, reading it ends. A file that cannot be read is reported in one line.
"""

import io
from collections.abc import Callable, Sequence
from importlib.util import find_spec

import msgspec

from windlass.core.errors import ConfigError
from windlass.html_text import html_to_text
from windlass.knowledge.chunks import TextFormat, first_heading


class DocumentText(msgspec.Struct, frozen=True):
    """The text of a file, and its title if it has one."""

    title: str
    text: str
    format: TextFormat


class UnreadableFile(Exception):
    """A file cannot be read as text; the message says why, in one line."""


def read_document(name: str, data: bytes) -> DocumentText:
    """The text of a file, read by the extension of its name. An unknown one means plain text.

    Raises UnreadableFile, and ConfigError for a PDF if pypdf is not installed.
    """
    extension = name.rpartition(".")[2].casefold()
    return _READERS.get(extension, _read_plain_text)(data)


def check_readable(names: Sequence[str]) -> None:
    """Raise ConfigError if one of the files needs a reader that is not installed."""
    if any(name.casefold().endswith(".pdf") for name in names) and find_spec("pypdf") is None:
        raise ConfigError("reading PDF files needs pypdf: pip install 'windlass[knowledge]'")


def _decode_text(data: bytes) -> str:
    # Text files hold no zero bytes; nearly all binary formats have one near the beginning.
    if b"\0" in data[:8192]:
        raise UnreadableFile("it is not a text file")
    return data.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")


def _read_plain_text(data: bytes) -> DocumentText:
    return DocumentText("", _decode_text(data), "text")


def _read_markdown(data: bytes) -> DocumentText:
    text = _decode_text(data)
    return DocumentText(first_heading(text), text, "markdown")


def _read_html(data: bytes) -> DocumentText:
    # Addresses of links would be indexed as words, and searches would find them.
    title, text = html_to_text(_decode_text(data), show_links=False)
    return DocumentText(title, text, "markdown")


def _read_pdf(data: bytes) -> DocumentText:
    check_readable(["a.pdf"])
    import pypdf  # noqa: PLC0415 - an extra

    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        text = "\n\n".join(page.extract_text() for page in reader.pages)
        title = reader.metadata.title if reader.metadata else None
    except Exception as error:  # pypdf raises errors of many kinds for a broken file
        raise UnreadableFile(f"it is not a readable PDF ({type(error).__name__})") from error
    return DocumentText(str(title or ""), text, "text")


_READERS: dict[str, Callable[[bytes], DocumentText]] = {
    "htm": _read_html,
    "html": _read_html,
    "markdown": _read_markdown,
    "md": _read_markdown,
    "pdf": _read_pdf,
}
