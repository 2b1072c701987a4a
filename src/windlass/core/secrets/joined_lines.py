"""Known values that were broken into lines: by `base64`, in a mail, by a shell.

Invariant: the cost grows with the length of a text and not faster. A quick look at all lines joined
shows whether a closer one is due, which joins only words at the ends of lines.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

JOINED_CHARS_MIN = 16
"""A shorter value could be two words, one at the end of a line and one at the start of the next."""
_BREAK = re.compile(r"\n[ \t]*")
_WRITTEN_BREAK = re.compile(r"(?:\\r)?\\n[ \t]*")
"""A break as it is written in JSON."""
_LINE_END = re.compile(r"[=\\]?\r?\Z")
"""What may come before a break: `=` in a mail, a backslash in a shell, `\\r` in some files."""
_ANY_BREAK = re.compile(r"[\n\r=\\]")
_GAP = re.compile(r"\s")
"""Only words are joined, so a form with a gap in it is not found."""
_GAP_BYTES = b" \t\r\n"
"""What may come between two words that are joined."""
_OPEN_END = re.compile(r"[=\\]?\r?\n[ \t]*|(?:\\r)?\\n[ \t]*|(?:\\r|[=\\]?\r?)\Z")
"""A break of either kind, or what may become one."""


class JoinedLines(NamedTuple):
    """The words at the ends of lines, without the breaks between them."""

    text: str
    places: list[tuple[int, int]]
    """Where each part begins in `text`, and where in the text that it was taken from."""

    def original_place(self, place: int) -> int:
        """Return where in the original text a character is."""
        at = bisect_right(self.places, (place, 1 << 60)) - 1
        start, original = self.places[at]
        return original + place - start


def join_lines(text: str) -> Iterator[JoinedLines]:
    """Yield the words that are broken into lines, joined; nothing for a text of one line."""
    if "\n" in text:
        yield _join_at(text, _BREAK)
    if "\\n" in text:
        yield _join_at(text, _WRITTEN_BREAK)


def may_be_broken(form: str) -> bool:
    """Whether a form can be distinguished from words at the ends of lines."""
    return len(form) >= JOINED_CHARS_MIN and not _GAP.search(form)


def squeeze_lines(text: str) -> Iterator[bytes]:
    """Yield the text in UTF-8 without its gaps: quickly, to see if a closer look is due."""
    # A search for one character is many times as fast as one for two.
    has_backslash = "\\" in text
    if "\n" not in text and not has_backslash:
        return
    data = text.encode("utf-8", "surrogatepass")
    if b"\n" in data:
        ends = data.replace(b"\r\n", b"\n") if b"\r" in data else data
        ends = ends.replace(b"=\n", b"\n") if b"=" in ends else ends
        ends = ends.replace(b"\\\n", b"\n") if has_backslash else ends
        yield ends.translate(None, _GAP_BYTES)
    if has_backslash and b"\\n" in data:
        ends = data.replace(b"\\r\\n", b"\\n").replace(b"=\\n", b"\\n")
        yield ends.replace(b"\\n", b"").translate(None, _GAP_BYTES)


def squeeze_tail(text: str) -> str:
    """Return the end of an unfinished text, without breaks and without what may begin one.

    It is the same object if there is nothing of that kind.
    """
    if _ANY_BREAK.search(text) is None:
        return text
    return _OPEN_END.sub("", text)


def _join_at(text: str, breaks: re.Pattern[str]) -> JoinedLines:
    parts: list[str] = []
    places: list[tuple[int, int]] = []
    size = 0
    start = 0
    for found in (*breaks.finditer(text), None):
        stop = len(text) if found is None else found.start()
        line = _LINE_END.sub("", text[start:stop])
        for word, at in _outer_words(line):
            parts.append(word)
            places.append((size, start + at))
            size += len(word)
        start = len(text) if found is None else found.end()
    return JoinedLines("".join(parts), places)


def _outer_words(line: str) -> Iterator[tuple[str, int]]:
    """Yield the first and the last word of a line with their places, and a gap between them.

    A line of one word is joined to the lines on both sides.
    """
    words = line.split(None, 1)
    if not words or words[0] == line:
        yield line, 0
        return
    yield f"{words[0]} " if line.startswith(words[0]) else " ", 0
    last = line.rsplit(None, 1)[-1]
    if line.endswith(last):
        yield last, len(line) - len(last)
    else:
        yield " ", len(line) - 1
