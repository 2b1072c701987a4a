"""What a reply shows in whole lines: code in colours, and tables laid out for the page.

Lines are coloured by pygments, which is loaded for the first block whose language is known.
"""

import re
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, cast

from rich.cells import cell_len

from windlass.cli.markdown.inline import CODE, FAINT, STRONG, strip_marks
from windlass.cli.screen import Screen
from windlass.cli.wrapping import StyledPiece, wrap_cells, write_wrapped

if TYPE_CHECKING:
    from pygments.lexer import Lexer

INDENT = "  "
"""Before a line of code."""
LINES_KEPT = 200
"""Lines before the present one that are read again, because a text may have begun in one."""
TOKEN_STYLES = {
    "Token.Comment": "dim italic",
    "Token.Literal.String": "green",
    "Token.Literal.Number": "cyan",
    "Token.Keyword": "magenta",
    "Token.Name.Function": "blue",
    "Token.Name.Class": "bold blue",
    "Token.Name.Decorator": "yellow",
    "Token.Name.Builtin": "cyan",
    "Token.Name.Tag": "magenta",
    "Token.Name.Attribute": "yellow",
    "Token.Generic.Inserted": "green",
    "Token.Generic.Deleted": "red",
    "Token.Generic.Heading": "bold",
    "Token.Generic.Subheading": "dim",
}
COLUMN_MIN = 6
GAP = "  "
"""Between the columns of a table."""
_CELL_END = re.compile(r"(?<!\\)\|")
_RULE_CELL = re.compile(r":?-+:?")


class CodeBlock:
    """The lines between two fences."""

    def __init__(self, language: str) -> None:
        self._lexer = _find_lexer(language)
        self._lines: list[str] = []

    def show_line(self, screen: Screen, line: str) -> None:
        """Write the next line, which is complete."""
        self._lines = [*self._lines[-LINES_KEPT:], line]
        if not line.strip():
            screen.start_new_line()
            return
        write_wrapped(screen, self._style_last_line(), INDENT)

    def _style_last_line(self) -> list[StyledPiece]:
        code = "\n".join(self._lines).expandtabs(4)
        if self._lexer is None:
            return [(CODE, code.rpartition("\n")[2])]
        rows: list[list[StyledPiece]] = [[]]
        for token, text in self._lexer.get_tokens(code):
            first, *others = text.split("\n")
            rows[-1].append((_style_of(str(token)), first))
            rows += [[(_style_of(str(token)), part)] for part in others]
        return rows[len(self._lines) - 1]


def _find_lexer(language: str) -> "Lexer | None":
    """What reads a language; None if it is not known."""
    if not language:
        return None
    # Imported here, because a reply without code needs none of it.
    from pygments import lexers, util  # noqa: PLC0415

    find = cast("Callable[..., Lexer]", lexers.get_lexer_by_name)  # pyright: ignore[reportUnknownMemberType]
    try:
        return find(language, stripnl=False)
    except util.ClassNotFound:
        return None


def _style_of(token: str) -> str:
    """The style of a kind of token, or of the nearest kind above it."""
    while token:
        if token in TOKEN_STYLES:
            return TOKEN_STYLES[token]
        token = token.rpartition(".")[0]
    return ""


class TableRows:
    """The lines of a table, until it is complete."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def show(self, screen: Screen) -> None:
        """Write the table, or the lines as they are if they are not one."""
        lines = self.lines
        self.lines = []
        rows = [_split_cells(line) for line in lines]
        if len(rows) < 2 or not all(map(_RULE_CELL.fullmatch, rows[1])):  # noqa: PLR2004 - a head
            for line in lines:
                screen.stream_text(line)
                screen.start_new_line()
            return
        head, rule, *body = rows
        to_right = [cell.endswith(":") and not cell.startswith(":") for cell in rule]
        table = [[strip_marks(cell) for cell in row] for row in (head, *body)]
        widths = _fit_widths(table, screen.width)
        _show_row(screen, table[0], widths, to_right, STRONG)
        bar = "-" if screen.glyphs.bar == "|" else "─"
        screen.write_verbatim(GAP.join(bar * width for width in widths), FAINT)
        screen.start_new_line()
        for row in table[1:]:
            _show_row(screen, row, widths, to_right, "")


def _split_cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    return [cell.strip().replace("\\|", "|") for cell in _CELL_END.split(inner)]


def _fit_widths(table: Sequence[Sequence[str]], room: int) -> list[int]:
    """The width of each column: as wide as its cells, or less if the page is narrow."""
    columns = list(zip_longest(*table, fillvalue=""))
    widths = [max(map(cell_len, column), default=0) or 1 for column in columns]
    room = max(room - len(GAP) * (len(widths) - 1), len(widths))
    while sum(widths) > room and max(widths) > COLUMN_MIN:
        widths[widths.index(max(widths))] -= 1
    return widths


def _show_row(
    screen: Screen, row: Sequence[str], widths: Sequence[int], to_right: Sequence[bool], style: str
) -> None:
    wrapped = [wrap_cells(cell, width) or [""] for cell, width in zip(row, widths, strict=False)]
    for lines in zip_longest(*wrapped, fillvalue=""):
        cells: list[str] = []
        for at, text in enumerate(lines):
            space = " " * (widths[at] - cell_len(text))
            cells.append(space + text if at < len(to_right) and to_right[at] else text + space)
        screen.write_verbatim(GAP.join(cells).rstrip(), style)
        screen.start_new_line()
