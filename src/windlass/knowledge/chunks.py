"""Splits a text into chunks that are small enough to rank and to show.

Invariant: every word of the text is in some chunk, and the cost is linear in the text.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

CHUNK_CHARS = 1_500
TITLE_CHARS_MAX = 300
OVERLAP_CHARS = 150
"""Two neighbours share this much, so that a sentence at the cut is complete in one of them."""

TextFormat = Literal["text", "markdown"]

_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_PATH_SEPARATOR = " \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} "
_CUTS = ("\n\n", "\n", ". ", " ")
_SPACE = re.compile(r"\s")


class TextChunk(msgspec.Struct, frozen=True):
    """A piece of a text. Its title is the path of headings above it."""

    title: str
    text: str


def split_text(text: str, title: str, form: TextFormat) -> Sequence[TextChunk]:
    """The chunks of a text in their order. A chunk of Markdown never crosses a heading."""
    if form == "text":
        return [TextChunk(title, piece) for piece in _split_pieces(text)]
    return [
        TextChunk(_PATH_SEPARATOR.join(path)[:TITLE_CHARS_MAX], piece)
        for path, body in _split_sections(text, title)
        for piece in _split_pieces(body)
    ]


def first_heading(text: str) -> str:
    """The first heading of a Markdown text; empty if it has none."""
    headings = _find_headings(text.split("\n"))
    return next((words for _, (_, words) in headings if words), "")


def _split_pieces(text: str) -> Iterator[str]:
    text = text.strip()
    start = 0
    while len(text) - start > CHUNK_CHARS:
        end = _find_cut(text, start)
        yield text[start:end].strip()
        start = end - OVERLAP_CHARS
        if (space := _SPACE.search(text, start, end)) is not None:
            start = space.end()
    if rest := text[start:].strip():
        yield rest


def _find_cut(text: str, start: int) -> int:
    """Where a chunk ends: in its second half, between two paragraphs, lines, sentences or words."""
    earliest = start + CHUNK_CHARS // 2
    latest = start + CHUNK_CHARS
    for cut in _CUTS:
        if (at := text.rfind(cut, earliest, latest)) >= 0:
            return at + len(cut)
    return latest


def _split_sections(text: str, title: str) -> Iterator[tuple[list[str], str]]:
    """The text under each heading, with the heading itself and the path of headings to it."""
    lines = text.split("\n")
    headings = dict(_find_headings(lines))
    path: list[tuple[int, str]] = []
    starts = [0, *(at for at in headings if at)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        level, words = headings.get(start, (0, ""))
        if level:
            path = [*(heading for heading in path if heading[0] < level), (level, words)]
        is_empty = level and not "".join(lines[start + 1 : end]).strip()
        if is_empty and headings.get(end, (0, ""))[0] > level:
            continue  # The sections below have this heading in their path.
        titles = [words for _, words in path if words]
        if title and title not in titles[:1]:
            titles.insert(0, title)
        yield titles, "\n".join(lines[start:end])


def _find_headings(lines: Sequence[str]) -> Iterator[tuple[int, tuple[int, str]]]:
    """The line, level and words of each heading. Lines inside of code fences are not headings."""
    fence = ""
    for at, line in enumerate(lines):
        if (mark := _FENCE.match(line)) is not None:
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence):
                fence = ""
        elif not fence and (found := _HEADING.match(line)) is not None:
            yield at, (len(found[1]), line[found.end() :].strip().rstrip("#").rstrip())
