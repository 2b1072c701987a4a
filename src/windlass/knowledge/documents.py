"""Files in, text out: plain text, Markdown, HTML, and documents such as PDF and Word.

Invariant: reading a file ends, whatever it holds. A file that cannot be read is reported in one
line.
"""

import asyncio
from collections.abc import Callable

import msgspec

from windlass.document_text import (
    UnreadableDocument,
    is_document,
    read_document_text,
    read_pdf_title,
)
from windlass.html_text import html_to_text
from windlass.knowledge.chunks import TextFormat, first_heading


class DocumentText(msgspec.Struct, frozen=True):
    """The text of a file, and its title if it has one."""

    title: str
    text: str
    format: TextFormat


class UnreadableFile(Exception):
    """A file cannot be read as text; the message says why, in one line."""


async def read_document(name: str, data: bytes) -> DocumentText:
    """Return the text of a file, read by the extension of its name. An unknown one is plain text.

    Raises UnreadableFile, and ConfigError for a document whose reader is not installed.
    """
    if is_document(name):
        try:
            text = await read_document_text(name, data)
            if name.casefold().endswith(".pdf"):
                return DocumentText(await read_pdf_title(data), text, "text")
            return DocumentText(first_heading(text), text, "markdown")
        except UnreadableDocument as error:
            raise UnreadableFile(str(error)) from error
    extension = name.rpartition(".")[2].casefold()
    return await asyncio.to_thread(_READERS.get(extension, _read_plain_text), data)


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


_READERS: dict[str, Callable[[bytes], DocumentText]] = {
    "htm": _read_html,
    "html": _read_html,
    "markdown": _read_markdown,
    "md": _read_markdown,
}
