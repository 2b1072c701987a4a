"""Read code for its colours: Pygments finds the kinds of its tokens.

The expressions of a lexer can take hours for a short text, so this runs in a reader.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Protocol, cast

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


def read_code(data: bytes, language: str) -> Iterator[bytes]:
    """Yield the code in coloured pieces, as JSON; null if the language is not known."""
    from pygments import lexers  # noqa: PLC0415 - only the reader needs it
    from pygments.util import ClassNotFound  # noqa: PLC0415 - see above

    find_lexer = cast("FindLexer", lexers.get_lexer_by_name)  # pyright: ignore[reportUnknownMemberType] - it has untyped options
    try:
        lexer = find_lexer(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        yield b"null"
        return
    tokens = lexer.get_tokens(data.decode())
    spans = _join_spans((_kind_of(str(token)), text) for token, text in tokens)
    yield json.dumps(spans).encode()


def _kind_of(token: str) -> str:
    return next((kind for prefix, kind in _KINDS if token.startswith(prefix)), "")


def _join_spans(spans: Iterable[Span]) -> list[Span]:
    joined: list[tuple[str, list[str]]] = []
    for kind, text in spans:
        if joined and joined[-1][0] == kind:
            joined[-1][1].append(text)
        else:
            joined.append((kind, [text]))
    return [(kind, "".join(texts)) for kind, texts in joined]
