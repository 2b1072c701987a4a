"""What looks like a key, a token or a password, by the public beginning that its maker gave it.

The law: what stands in front is public and stays, what follows is the secret; so a stream need hold
nothing back before the beginning is whole. Each start is looked at once and what it runs over is
passed by, so that the cost is linear in the text, whatever the text is.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

Span = tuple[int, int]
_Judge = Callable[[str, int, int], Span | None]


class Shape(NamedTuple):
    """A public beginning, what may follow it, and whether that is a secret for sure."""

    prefix: str
    run: re.Pattern[str]
    judge: _Judge


class Found(NamedTuple):
    """What a text holds. From `hold` on it may yet become a secret, which begins at `keep`."""

    spans: list[Span]
    hold: int
    keep: int


def _run(characters: str) -> re.Pattern[str]:
    return re.compile(f"(?:{characters})*+")


_PLAIN = _run("[A-Za-z0-9]")
_WORDS = _run("[A-Za-z0-9_]")
_DASHED = _run("[A-Za-z0-9_-]")
_DOTTED = _run("[A-Za-z0-9_.-]")
_HEADER = _run("[A-Za-z0-9._~+/=-]")
_USER = _run(r"""[^\s/@"'<>`|{}\[\]\\^#?*$]""")
# Base64 in lines, whose breaks may be escaped, with the head lines that old encrypted keys have.
_PEM = _run(r"[A-Za-z0-9+/=:,]|-(?!-)|(?<=:)[ ]|[\r\n]+[ \t]*|\\{1,4}+[nrt]|\\+\Z")

_APART = re.compile(r"[^A-Za-z0-9]+")
_LINE = re.compile(r"[A-Za-z0-9+/=]{40}")
_AWS = re.compile(r"[A-Z0-9]{16}")
_SAMPLES = ("pass", "password", "passwd", "pwd", "pw", "secret", "token", "xxx", "changeme")


def _mixed(word: str) -> bool:
    return not word.isalpha() and not word.isdigit()


def _token(least: int, word: int = 12) -> _Judge:
    """Long enough, with a word of letters and digits that nobody would write by hand."""

    def judge(text: str, start: int, end: int) -> Span | None:
        if end - start < least:
            return None
        words = _APART.split(text[start:end])
        sure = any(len(one) >= word and _mixed(one) for one in words)
        return (start, end) if sure else None

    return judge


def _letters(least: int) -> _Judge:
    """Some tokens have no digits: then capitals must stand among the small letters."""

    def judge(text: str, start: int, end: int) -> Span | None:
        body = text[start:end]
        ordinary = end - start < least or body.islower() or body.isupper() or body.isdigit()
        return None if ordinary else (start, end)

    return judge


def _aws(text: str, start: int, end: int) -> Span | None:
    return (start, end) if end - start == 16 and _AWS.match(text, start) else None  # noqa: PLR2004


def _jwt(text: str, start: int, end: int) -> Span | None:
    """Three long parts in a row."""
    in_a_row = 0
    for part in text[start:end].split("."):
        in_a_row = in_a_row + 1 if len(part) >= 8 else 0  # noqa: PLR2004
        if in_a_row == 3:  # noqa: PLR2004
            return start, end
    return None


def _pem(text: str, start: int, end: int) -> Span | None:
    return (start, end) if _LINE.search(text, start, end) else None


def _password(text: str, start: int, end: int) -> Span | None:
    """The password in `scheme://user:password@host`, but for one that only says what goes there."""
    if text[end : end + 1] != "@":
        return None
    at = text.find(":", start, end) + 1
    password = text[at:end]
    ordinary = not at or len(password) < 3 or password.lower() in _SAMPLES  # noqa: PLR2004
    return None if ordinary else (at, end)


URL = "://"
GROUPS: dict[str, tuple[Shape, ...]] = {
    URL: (Shape(URL, _USER, _password),),
    "sk-": (Shape("sk-", _DASHED, _token(16)),),
    "AIza": (Shape("AIza", _DASHED, _token(30, 6)),),
    "AKIA": (Shape("AKIA", _PLAIN, _aws),),
    "ASIA": (Shape("ASIA", _PLAIN, _aws),),
    **{f"gh{kind}_": (Shape(f"gh{kind}_", _WORDS, _token(30)),) for kind in "pousr"},
    "github_pat_": (Shape("github_pat_", _WORDS, _token(40)),),
    "glpat-": (Shape("glpat-", _DASHED, _token(18, 8)),),
    "xox": tuple(Shape(f"xox{kind}-", _DASHED, _token(20, 8)) for kind in "abceprs"),
    "xapp-": (Shape("xapp-", _DASHED, _token(20, 8)),),
    "hf_": (Shape("hf_", _PLAIN, _letters(30)),),
    "gsk_": (Shape("gsk_", _PLAIN, _token(40)),),
    "npm_": (Shape("npm_", _PLAIN, _letters(34)),),
    "pypi-": (Shape("pypi-", _DASHED, _token(50)),),
    "k_live_": tuple(Shape(f"{kind}k_live_", _PLAIN, _token(16)) for kind in "sr"),
    "earer ": tuple(Shape(f"{first}earer ", _HEADER, _token(16, 6)) for first in "Bb"),
    "Basic ": (Shape("Basic ", _HEADER, _token(16, 6)),),
    "PRIVATE KEY-----": (Shape("PRIVATE KEY-----", _PEM, _pem),),
    "eyJ": (Shape("eyJ", _DOTTED, _jwt),),
}
"""The shapes, each under something that every text with one of them has in it."""
PREFIX_CHARS_MAX = max(len(shape.prefix) for group in GROUPS.values() for shape in group)
_RARE = ("-", "_", "/", "AIza", "IA", "eyJ", "earer ", "asic ")
"""Each of them has one of these in it, and most short texts have none."""


def any_of(words: Iterable[str]) -> re.Pattern[str]:
    """Any of these, sorted by how they begin: so a search need try few of them at each place."""
    by_first: dict[str, list[str]] = {}
    for word in words:
        by_first.setdefault(re.escape(word[0]), []).append(re.escape(word[1:]))
    return re.compile("|".join(f"{first}(?:{'|'.join(rest)})" for first, rest in by_first.items()))


_BEGINNING = any_of(GROUPS)


def quiet(text: str) -> bool:
    """Whether no secret begins in a text; for most short ones, at the cost of a glance."""
    for rare in _RARE:
        if rare in text:
            return _BEGINNING.search(text) is None
    return True


def find(text: str, *, whole: bool) -> Found:
    """The secrets in a text; unless it is whole, what its end leaves open is told apart."""
    spans: list[Span] = []
    size = hold = keep = len(text)
    for known, group in GROUPS.items() if not quiet(text) else ():
        for shape in group if known in text else ():
            for at, start, end in _runs(shape, text):
                if end == size and not whole:
                    keep = min(keep, at)
                    hold = min(hold, _from(shape, text, start))
                elif span := shape.judge(text, start, end):
                    spans.append(span)
    return Found(spans, hold, keep)


def _runs(shape: Shape, text: str) -> Iterator[tuple[int, int, int]]:
    """Where a shape begins, and from where to where what follows goes."""
    prefix = shape.prefix
    at = text.find(prefix)
    while at >= 0:
        start = end = at + len(prefix)
        if at == 0 or not (text[at - 1].isalnum() and text[at].isalpha()):
            found = shape.run.match(text, start)
            end = found.end() if found else start
            yield at, start, end
        # What is inside a run is judged with the run.
        at = text.find(prefix, end)


def _from(shape: Shape, text: str, start: int) -> int:
    """Where the secret would begin, in a run that reaches the end of the text."""
    if shape.prefix != URL:
        return start
    colon = text.find(":", start)
    return len(text) if colon < 0 else colon + 1
