"""Code in a reply: each line in colours, and wrapped behind its own indentation.

Lines are coloured by pygments, which is loaded for the first block whose language is known.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from windlass.cli.markdown.inline import CODE
from windlass.cli.screen import Screen
from windlass.cli.wrapping import StyledPiece, write_wrapped

if TYPE_CHECKING:
    from pygments.lexer import Lexer

INDENT = "  "
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
