"""A text in, pieces of it out that are small enough to rank and to show.

The law: every word of the text is in some piece, and the cost grows with the text.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

CHUNK_CHARS = 1_500
TITLE_CHARS_MAX = 300
OVERLAP_CHARS = 150
"""What two neighbours share, so that a sentence at the cut is whole in one of them."""

TextFormat = Literal["text", "markdown"]

_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_PATH_SEPARATOR = " \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} "
_CUTS = ("\n\n", "\n", ". ", " ")
_SPACE = re.compile(r"\s")


class TextChunk(msgspec.Struct, frozen=True):
    """A piece of a text, with the headings that it stands under."""

    title: str
    text: str


def split_text(text: str, title: str, form: TextFormat) -> Sequence[TextChunk]:
    """The pieces of a text in their order; those of Markdown never reach across a heading."""
    if form == "text":
        return [TextChunk(title, piece) for piece in _split_pieces(text)]
    return [
        TextChunk(_PATH_SEPARATOR.join(path)[:TITLE_CHARS_MAX], piece)
        for path, body in _split_sections(text, title)
        for piece in _split_pieces(body)
    ]


def first_heading(text: str) -> str:
    """The first heading of a Markdown text, or nothing."""
    return next((words for _, words in _list_headings(text.split("\n")) if words), "")


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
    """Where a piece ends: between two paragraphs if it can be, and in the second half."""
    least, most = start + CHUNK_CHARS // 2, start + CHUNK_CHARS
    for cut in _CUTS:
        if (at := text.rfind(cut, least, most)) >= 0:
            return at + len(cut)
    return most


def _split_sections(text: str, title: str) -> Iterator[tuple[list[str], str]]:
    """What stands under each heading, with the heading itself and the path to it."""
    lines = text.split("\n")
    headings = dict(_find_headings(lines))
    path: list[tuple[int, str]] = []
    starts = [0, *(at for at in headings if at)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        level, words = headings.get(start, (0, ""))
        if level:
            path = [*(one for one in path if one[0] < level), (level, words)]
        bare = level and not "".join(lines[start + 1 : end]).strip()
        if bare and headings.get(end, (0, ""))[0] > level:
            continue  # The headings below say this one in their path.
        under = [words for _, words in path if words]
        yield (
            ([title] if title and title not in under[:1] else []) + under,
            "\n".join(lines[start:end]),
        )


def _list_headings(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    return (heading for _, heading in _find_headings(lines))


def _find_headings(lines: Sequence[str]) -> Iterator[tuple[int, tuple[int, str]]]:
    """The headings by line, with level and words; what is fenced is no heading."""
    fence = ""
    for at, line in enumerate(lines):
        if (mark := _FENCE.match(line)) is not None:
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence):
                fence = ""
        elif not fence and (found := _HEADING.match(line)) is not None:
            yield at, (len(found[1]), line[found.end() :].strip().rstrip("#").rstrip())
