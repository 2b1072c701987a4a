"""Lines that keep their spaces, wrapped at the width of the page: code, tables, tool output."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len, get_character_cell_size

from windlass.cli.screen import Screen

StyledPiece = tuple[str, str]
HANG = "  "
"""How much further than its beginning a line is indented where it continues."""


def wrap_cells(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` cells, broken at spaces where that is possible."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if cell_len(joined) <= width:
            line = joined
            continue
        if line:
            lines.append(line)
        while cell_len(word) > width:
            head = _take_cells(word, width)
            lines.append(head)
            word = word[len(head) :]  # noqa: PLW2901 - the rest of the word
        line = word
    return [*lines, line] if line else lines


def write_wrapped(screen: Screen, pieces: Sequence[StyledPiece], indent: str = "") -> None:
    """Write one line after an indent, and continue below the text where it does not fit."""
    width = max(10, screen.width - cell_len(indent))
    text = "".join(piece for _, piece in pieces)
    own_indent = text[: len(text) - len(text.lstrip(" "))]
    if cell_len(own_indent) > width // 2:
        own_indent = ""
    hang = indent + own_indent + HANG
    for number, row in enumerate(_split_rows(pieces, width, width - cell_len(own_indent + HANG))):
        screen.write_verbatim(hang if number else indent)
        for style, piece in row:
            screen.write_verbatim(piece, style)
        screen.start_new_line()


def _split_rows(
    pieces: Sequence[StyledPiece], first_width: int, width: int
) -> Iterator[list[StyledPiece]]:
    chars = [(style, char) for style, piece in pieces for char in piece]
    room = first_width
    while True:
        count = _count_fitting(chars, room)
        yield _join_chars(chars[:count])
        chars = chars[count:]
        if not chars:
            return
        room = max(1, width)


def _count_fitting(chars: Sequence[StyledPiece], room: int) -> int:
    """How many characters fit, up to a space if there is one in the second half of the row."""
    cells = 0
    count = 0
    for _, char in chars:
        cells += get_character_cell_size(char)
        if cells > room:
            break
        count += 1
    if count == len(chars):
        return count
    for at in range(count, count // 2, -1):
        if chars[at - 1][1] == " ":
            return at
    return max(1, count)


def _join_chars(chars: Sequence[StyledPiece]) -> list[StyledPiece]:
    joined: list[StyledPiece] = []
    for style, char in chars:
        if joined and joined[-1][0] == style:
            joined[-1] = (style, joined[-1][1] + char)
        else:
            joined.append((style, char))
    return joined


def _take_cells(text: str, width: int) -> str:
    cells = 0
    for at, char in enumerate(text):
        cells += get_character_cell_size(char)
        if cells > width:
            return text[: max(1, at)]
    return text
