"""What lines of Markdown show: marks within a line, code in colours, and tables laid out.

Invariant: nothing that was shown is taken back. Text that may still become a mark is held until the
next piece of the text decides it, or until the line ends. Lines of code are coloured by pygments,
which is loaded for the first block whose language is known.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, cast

from rich.cells import cell_len

from windlass.cli.screen import Screen
from windlass.cli.wrapping import StyledPiece, wrap_cells, write_wrapped

STRONG = "bold"
EMPHASIS = "italic"
STRIKE = "strike"
CODE = "cyan"
LINK = "underline"
FAINT = "dim"
HALVES = ("~", "!", "\\")
LINK_CHARS_MAX = 500
"""A link that is longer than this is shown as it was written."""

_SPECIAL = re.compile(r"`+|\*{1,3}|_{1,3}|~~|!?\[|\\.|[\\~!]\Z")
"""Marks, escaped characters, and at the end of a text the first half of either."""
_LINK_FORM = re.compile(
    r"(!?)\[([^\[\]\n]*)\]\(<?([^()<>\s]*(?:\([^()\s]*\)[^()<>\s]*)?)>?(?:\s+\"[^\"]*\")?\)"
)
_LINK_BEGUN = re.compile(r"!?\[[^\[\]\n]*(?:\](?:\([^\n]*)?)?")
_ESCAPABLE = re.compile(r"[!-/:-@\[-`{-~]")

StyledText = tuple[str, str]
"""A style and a text."""


@dataclass(slots=True)
class InlineState:
    """Which marks are open in the line."""

    code: str = ""
    """The backticks that began the code; empty outside of code."""
    strong: bool = False
    emphasis: bool = False
    strike: bool = False
    last_char: str = ""

    @property
    def style(self) -> str:
        if self.code:
            return CODE
        named = ((self.strong, STRONG), (self.emphasis, EMPHASIS), (self.strike, STRIKE))
        return " ".join(style for is_open, style in named if is_open)

    def read(self, text: str, *, whole: bool) -> tuple[list[StyledText], str]:
        """The styled pieces of a text, and the end of it that has to wait for more.

        `whole`: no more of the line will come, so nothing waits.
        """
        pieces: list[StyledText] = []
        at = 0
        while at < len(text):
            found = _SPECIAL.search(text, at)
            if found is None:
                self._add(pieces, text[at:])
                break
            self._add(pieces, text[at : found.start()])
            if not whole and self._is_open_ended(text, found):
                return pieces, text[found.start() :]
            at = self._take_mark(pieces, text, found)
        return pieces, ""

    def _is_open_ended(self, text: str, found: re.Match[str]) -> bool:
        """Whether what follows can change the meaning of a mark."""
        if found.end() == len(text):
            return True
        if self.code or not found[0].endswith("["):
            return False
        begun = _LINK_BEGUN.match(text, found.start())
        is_short = len(text) - found.start() < LINK_CHARS_MAX
        is_complete = _LINK_FORM.match(text, found.start()) is not None
        return begun is not None and begun.end() == len(text) and is_short and not is_complete

    def _take_mark(self, pieces: list[StyledText], text: str, found: re.Match[str]) -> int:
        """Read one mark. Returns where the text continues after it."""
        mark = found[0]
        if self.code:
            if mark == self.code:
                self.code = ""
            else:
                self._add(pieces, mark)
        elif mark in HALVES:
            self._add(pieces, mark)
        elif mark[0] == "`":
            self.code = mark
        elif mark[0] == "\\":
            escaped = mark[1:]
            self._add(pieces, escaped if _ESCAPABLE.fullmatch(escaped) else mark)
        elif mark.endswith("["):
            return self._take_link(pieces, text, found)
        elif not self._toggle(mark, text[found.end() : found.end() + 1]):
            self._add(pieces, mark)
        return found.end()

    def _take_link(self, pieces: list[StyledText], text: str, found: re.Match[str]) -> int:
        link = _LINK_FORM.match(text, found.start())
        if link is None:
            self._add(pieces, found[0])
            return found.end()
        is_image, words, url = bool(link[1]), link[2], link[3]
        style = f"{self.style} {LINK}".strip()
        if is_image:
            pieces.append((FAINT, f"[image: {words or url}]"))
        elif words in (url, ""):
            pieces.append((style, url))
        else:
            pieces += [(style, words), (FAINT, f" ({url})")]
        self.last_char = ")"
        return link.end()

    def _toggle(self, mark: str, following: str) -> bool:
        """Open or close the style of a mark. Returns whether it was a mark at all."""
        names = {"~~": ("strike",), "3": ("strong", "emphasis"), "2": ("strong",)}
        wanted = names.get(mark) or names.get(str(len(mark)), ("emphasis",))
        is_open = all(getattr(self, name) for name in wanted)
        if is_open:
            may = bool(self.last_char) and not self.last_char.isspace()
            may = may and (mark[0] != "_" or not following.isalnum())
        else:
            may = bool(following) and not following.isspace() and not self.last_char.isalnum()
            may = may or (mark[0] == "*" and len(mark) > 1 and self._joins_words(following))
        if may:
            for name in wanted:
                setattr(self, name, not is_open)
        return may

    def _joins_words(self, following: str) -> bool:
        # `2**3` is a power, and a word in the middle of which bold begins is rare.
        return following.isalpha() and self.last_char.isalpha()

    def _add(self, pieces: list[StyledText], text: str) -> None:
        if text:
            pieces.append((self.style, text))
            self.last_char = text[-1]


def strip_marks(text: str) -> str:
    """The text of a line as it is shown, without its marks."""
    pieces, _ = InlineState().read(text, whole=True)
    return "".join(piece for _, piece in pieces)


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
