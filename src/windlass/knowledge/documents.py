"""Files in, text out: plain text, Markdown, HTML, PDF.

The law: whatever a file holds, this ends, and what cannot be read is said in a line.
"""

import io
import re
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from importlib.util import find_spec

import msgspec
from typing_extensions import override

from windlass.core.errors import ConfigError
from windlass.knowledge.chunks import TITLE_CHARS_MAX, TextFormat, first_heading

FED_CHARS = 16_384
"""The HTML parser looks again at what it could not finish, so it is given a little at a time."""
UNFINISHED_CHARS_MAX = 65_536

_DROPPED = frozenset(("script", "style", "noscript", "template", "svg", "head"))
_INLINE = frozenset(
    {
        "a",
        "abbr",
        "b",
        "bdi",
        "cite",
        "code",
        "data",
        "del",
        "em",
        "i",
        "img",
        "ins",
        "kbd",
        "label",
    }
    | {"mark", "q", "s", "samp", "small", "span", "strong", "sub", "sup", "time", "u", "var"}
)
_CELLS = frozenset(("td", "th"))
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_SPACE = re.compile(r"\s+")
_BLANK = re.compile(r"\n\s*\n")


class DocumentText(msgspec.Struct, frozen=True):
    """A file as text."""

    title: str
    text: str
    format: TextFormat


class UnreadableFile(Exception):
    """What is wrong with a file, in a line."""


def read_document(name: str, data: bytes) -> DocumentText:
    """The text of a file, by the ending of its name; any other ending is read as plain text.

    Raises Unreadable, and ConfigError for a PDF where nothing is installed that reads one.
    """
    ending = name.rpartition(".")[2].casefold()
    return _READERS.get(ending, _read_plain_text)(data)


def check_readable(names: Sequence[str]) -> None:
    """Refuse at once what nothing that is installed could read."""
    if any(name.casefold().endswith(".pdf") for name in names) and find_spec("pypdf") is None:
        raise ConfigError("reading PDF files needs pypdf: pip install 'windlass[knowledge]'")


def _decode_text(data: bytes) -> str:
    if b"\0" in data[:8192]:
        raise UnreadableFile("it is no text")
    return data.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")


def _read_plain_text(data: bytes) -> DocumentText:
    return DocumentText("", _decode_text(data), "text")


def _read_markdown(data: bytes) -> DocumentText:
    text = _decode_text(data)
    return DocumentText(first_heading(text), text, "markdown")


def _read_html(data: bytes) -> DocumentText:
    page, text = _HtmlPage(), _decode_text(data)
    for start in range(0, len(text), FED_CHARS):
        page.feed(text[start : start + FED_CHARS])
        if len(page.rawdata) > UNFINISHED_CHARS_MAX:
            page.give_up()
    page.close()
    return DocumentText(_SPACE.sub(" ", page.title).strip(), page.text(), "markdown")


def _read_pdf(data: bytes) -> DocumentText:
    check_readable(["a.pdf"])
    import pypdf  # noqa: PLC0415 - an extra

    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        text = "\n\n".join(page.extract_text() for page in reader.pages)
        title = reader.metadata.title if reader.metadata else None
    except Exception as error:  # a broken file breaks in any of a hundred ways
        raise UnreadableFile(f"it is no PDF that can be read ({type(error).__name__})") from error
    return DocumentText(str(title or ""), text, "text")


class _HtmlPage(HTMLParser):
    """Collects the text of a page, with its headings; nothing has to be closed properly."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self._out: list[str] = []
        self._dropped = ""
        self._dropped_deep = 0
        self._in_title = False

    def text(self) -> str:
        lines = (_SPACE.sub(" ", line).strip() for line in "".join(self._out).split("\n"))
        return _BLANK.sub("\n\n", "\n".join(lines)).strip()

    def give_up(self) -> None:
        """Take what cannot be finished as text."""
        rest, self.rawdata = self.rawdata, ""
        self.clear_cdata_mode()
        self.handle_data(rest)

    @override
    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self._in_title = tag == "title" and not self.title
        if tag == "body":
            self._dropped = ""  # A head that was never closed ends here.
        if not self._dropped and tag in _DROPPED:
            self._dropped, self._dropped_deep = tag, 0
        if self._dropped:
            self._dropped_deep += tag == self._dropped
        elif tag in _HEADINGS:
            self._out.append(f"\n\n{_HEADINGS[tag]} ")
        elif tag == "li":
            self._out.append("\n- ")
        elif tag not in _INLINE and tag not in _CELLS:
            self._out.append("\n" if tag in {"br", "tr"} else "\n\n")

    @override
    def handle_endtag(self, tag: str) -> None:
        self._in_title = False
        if self._dropped:
            self._dropped_deep -= tag == self._dropped
            self._dropped = self._dropped if self._dropped_deep else ""
        elif tag in _CELLS:
            self._out.append(" ")
        elif tag not in _INLINE:
            self._out.append("\n" if tag in {"li", "tr"} else "\n\n")

    @override
    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title = (self.title + data)[:TITLE_CHARS_MAX]
        elif not self._dropped:
            self._out.append(_SPACE.sub(" ", data))


_READERS: dict[str, Callable[[bytes], DocumentText]] = {
    "htm": _read_html,
    "html": _read_html,
    "markdown": _read_markdown,
    "md": _read_markdown,
    "pdf": _read_pdf,
}
