"""HTML in, readable text out: title, headings, links, lists and tables; no scripts.

The tool that fetches pages and the reader of documents share it. Invariant: whatever the page
holds, reading it ends, in time and space that grow linearly with the page.
"""

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from urllib.parse import urljoin

from typing_extensions import override

FED_CHARS = 16_384
"""The parser reads unfinished input again on each feed, so it is fed a little at a time."""
UNFINISHED_CHARS_MAX = 65_536
"""A tag or comment that is longer is taken as text. Otherwise the cost would be quadratic."""
MARKS_MAX = 150_000
"""Tags that are read of a page. Each costs several microseconds, and a page of nothing else would
take as long as 20 s. An ordinary page of 2 MB has less than half as many."""
ITEMS_DEEP_MAX = 8
TITLE_CHARS_MAX = 300

_DROPPED = frozenset(
    ("script", "style", "noscript", "template", "svg", "canvas", "iframe", "object", "head")
)
_BLOCKS = frozenset(
    {"address", "article", "aside", "blockquote", "body", "details", "dialog", "div", "dl", "dt"}
    | {"dd", "fieldset", "figure", "figcaption", "footer", "form", "header", "main", "nav", "ol"}
    | {"p", "section", "summary", "table", "ul"}
)
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_SPACE = re.compile(r"[ \t\n\r\f\v\u00a0]+")
_WIDE = re.compile(r"\n{3,}")

Attributes = Sequence[tuple[str, str | None]]


def html_to_text(html: str, base: str = "", *, show_links: bool = True) -> tuple[str, str]:
    """The title and the text of a page, with headings as in Markdown.

    Links are shown as `text (address)` if `show_links`; `base` is the address of the page, against
    which relative links are resolved.
    """
    html, is_cut = _cut_marks(html)
    page = _TextExtractor(base, show_links=show_links)
    for start in range(0, len(html), FED_CHARS):
        page.feed(html[start : start + FED_CHARS])
        if len(page.rawdata) > UNFINISHED_CHARS_MAX:
            page.flush_unfinished()
    page.finish_page()
    text = page.collected_text()
    if is_cut:
        text += f"\n\n[only the first {MARKS_MAX} tags of the page were read]"
    return page.title.strip(), text


def _cut_marks(html: str) -> tuple[str, bool]:
    """The page up to the most tags that are read, and whether there were more."""
    # The parser fails on a section without a name, and a browser takes all of them as comments.
    html = html.replace("<![", "<!")
    parts = html.split("<", MARKS_MAX)
    if len(parts) <= MARKS_MAX:
        return html, False
    return html[: len(html) - len(parts[-1]) - 1], True


class _TextExtractor(HTMLParser):
    """Collects the text while it goes through the tags. Tags need not be closed properly."""

    def __init__(self, base: str, *, show_links: bool) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self._base = base
        self._show_links = show_links
        self._out: list[str] = []
        self._dropped = ""
        self._dropped_deep = 0
        self._lists: list[int | None] = []
        self._link: tuple[str, int] | None = None
        self._verbatim = 0
        self._in_title = False

    def collected_text(self) -> str:
        """The text so far, with at most one empty line between two paragraphs."""
        lines = "".join(self._out).split("\n")
        return _WIDE.sub("\n\n", "\n".join(line.rstrip() for line in lines)).strip("\n")

    def flush_unfinished(self) -> None:
        """Take the input that the parser could not finish as text."""
        rest = self.rawdata
        self.rawdata = ""
        self.clear_cdata_mode()
        if not self._dropped:
            self.handle_data(rest)

    def finish_page(self) -> None:
        """Take what is left of the page; call it once, after the last `feed`."""
        if self.rawdata:
            self.flush_unfinished()
        self.close()

    @override
    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        if tag == "title":
            self._in_title = not self.title
        elif tag == "body":
            self._dropped = ""  # A head that was never closed ends here.
        # Inside one, only tags of the same name are counted: others need not be balanced.
        if not self._dropped and tag in _DROPPED:
            self._dropped = tag
            self._dropped_deep = 0
        self._dropped_deep += tag == self._dropped
        if self._dropped:
            return
        values = dict(attrs)
        if tag in _HEADINGS:
            self._write(f"\n\n{_HEADINGS[tag]} ")
        elif tag == "a" and self._show_links and (address := values.get("href")):
            self._link = address, len(self._out)
        elif tag == "img" and (words := values.get("alt")):
            self.handle_data(f"[{words}]")
        else:
            self._handle_structure(tag)

    def _handle_structure(self, tag: str) -> None:
        """Write the line breaks and marks of a tag."""
        if tag in {"ol", "ul"}:
            self._write("" if self._lists else "\n\n")
            self._lists.append(0 if tag == "ol" else None)
        elif tag == "li":
            number = self._lists[-1] if self._lists else None
            mark = "-"
            if number is not None:
                self._lists[-1] = number + 1
                mark = f"{number + 1}."
            deep = min(max(len(self._lists) - 1, 0), ITEMS_DEEP_MAX)
            self._write(f"\n{'  ' * deep}{mark} ")
        elif tag in {"br", "tr"}:
            self._write("\n")
        elif tag in {"td", "th"}:
            self._write("| " if self._is_at_start(("\n",)) else " | ")
        elif tag == "pre":
            self._verbatim += 1
            self._write("\n\n")
        elif tag == "hr":
            self._write("\n\n---\n\n")
        elif tag in _BLOCKS:
            self._write("\n\n")

    @override
    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._dropped:
            self._dropped_deep -= tag == self._dropped
            if not self._dropped_deep:
                self._dropped = ""
            return
        if tag == "a":
            self._end_link()
        elif tag in {"ol", "ul"} and self._lists:
            self._lists.pop()
            self._write("" if self._lists else "\n\n")
        elif tag == "pre":
            self._verbatim = max(0, self._verbatim - 1)
            self._write("\n\n")
        elif tag in _HEADINGS or tag in _BLOCKS:
            self._write("\n\n")

    def _end_link(self) -> None:
        if self._link is None:
            return
        address, start = self._link
        self._link = None
        words = "".join(self._out[start:]).strip()
        try:
            whole = urljoin(self._base, address.strip())
        except ValueError:  # Such as a half-written IPv6 address.
            return
        if words and whole.startswith(("http://", "https://", "mailto:")) and words != whole:
            self._write(f" ({whole})")

    @override
    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title = _SPACE.sub(" ", self.title + data[:TITLE_CHARS_MAX]).lstrip()
            self._in_title = len(self.title) < TITLE_CHARS_MAX
        elif not self._dropped:
            self._write(data if self._verbatim else self._collapse_spaces(data))

    def _collapse_spaces(self, data: str) -> str:
        words = _SPACE.sub(" ", data)
        return words.lstrip(" ") if self._is_at_start((" ", "\n")) else words

    def _is_at_start(self, ends: tuple[str, ...]) -> bool:
        return not self._out or self._out[-1].endswith(ends)

    def _write(self, text: str) -> None:
        if text:
            self._out.append(text)
