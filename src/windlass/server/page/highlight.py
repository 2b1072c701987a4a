"""Colours for code: Pygments reads it here, so that a page needs no reader of its own."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol, cast

CODE_CHARS_MAX = 60_000
Span = tuple[str, str]
"""A kind of token, which is a class of the style sheet, and its text."""


class TokenReader(Protocol):
    """A lexer of Pygments."""

    def get_tokens(self, text: str) -> Iterable[tuple[object, str]]: ...


class FindLexer(Protocol):
    """Finds the lexer of a language."""

    def __call__(self, alias: str, *, stripnl: bool, ensurenl: bool) -> TokenReader: ...


_KINDS = (
    ("Token.Comment", "comment"),
    ("Token.Keyword.Constant", "constant"),
    ("Token.Keyword", "keyword"),
    ("Token.Literal.String", "string"),
    ("Token.Literal.Number", "number"),
    ("Token.Name.Function", "name"),
    ("Token.Name.Class", "name"),
    ("Token.Name.Decorator", "meta"),
    ("Token.Name.Builtin", "builtin"),
    ("Token.Name.Tag", "keyword"),
    ("Token.Name.Attribute", "name"),
    ("Token.Generic.Deleted", "removed"),
    ("Token.Generic.Inserted", "added"),
    ("Token.Generic.Heading", "name"),
    ("Token.Operator.Word", "keyword"),
)


def highlight_code(language: str, code: str) -> list[Span] | None:
    """Return the code in coloured pieces; None if the language is not known or it is too long."""
    if len(code) > CODE_CHARS_MAX:
        return None
    return _highlight(language.lower(), code)


@lru_cache(maxsize=256)
def _highlight(language: str, code: str) -> list[Span] | None:
    # Loaded when the first code is coloured: the lexers take a while, and many pages have none.
    from pygments import lexers  # noqa: PLC0415 - see above
    from pygments.util import ClassNotFound  # noqa: PLC0415 - see above

    find_lexer = cast("FindLexer", lexers.get_lexer_by_name)  # pyright: ignore[reportUnknownMemberType] - it has untyped options
    try:
        lexer = find_lexer(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
    return _join_spans((_kind_of(str(token)), text) for token, text in lexer.get_tokens(code))


def _kind_of(token: str) -> str:
    return next((kind for prefix, kind in _KINDS if token.startswith(prefix)), "")


def _join_spans(spans: Iterable[Span]) -> list[Span]:
    joined: list[Span] = []
    for kind, text in spans:
        if joined and joined[-1][0] == kind:
            joined[-1] = (kind, joined[-1][1] + text)
        else:
            joined.append((kind, text))
    return joined
