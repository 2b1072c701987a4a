"""What looks like a key, a token or a password, by the public beginning that its maker gave it.

The law: what stands in front is public and stays, what follows is the secret; so a stream need hold
nothing back before the beginning is whole. Each start is looked at once and what it runs over is
passed by, so that the cost is linear in the text, whatever the text is.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

Span = tuple[int, int]
_KeyJudge = Callable[[str, int, int], Span | None]


class KeyShape(NamedTuple):
    """A public beginning, what may follow it, and whether that is a secret for sure."""

    prefix: str
    run: re.Pattern[str]
    judge: _KeyJudge


class KeySearch(NamedTuple):
    """What a text holds. From `hold` on it may yet become a secret, which begins at `keep`."""

    spans: list[Span]
    hold: int
    keep: int


def _run_of(characters: str) -> re.Pattern[str]:
    return re.compile(f"(?:{characters})*+")


_PLAIN = _run_of("[A-Za-z0-9]")
_WORDS = _run_of("[A-Za-z0-9_]")
_DASHED = _run_of("[A-Za-z0-9_-]")
_DOTTED = _run_of("[A-Za-z0-9_.-]")
_HEADER = _run_of("[A-Za-z0-9._~+/=-]")
_USER = _run_of(r"""[^\s/@"'<>`|{}\[\]\\^#?*$]""")
# Base64 in lines, whose breaks may be escaped, with the head lines that old encrypted keys have.
_PEM = _run_of(r"[A-Za-z0-9+/=:,]|-(?!-)|(?<=:)[ ]|[\r\n]+[ \t]*|\\{1,4}+[nrt]|\\+\Z")

_APART = re.compile(r"[^A-Za-z0-9]+")
_LINE = re.compile(r"[A-Za-z0-9+/=]{40}")
_AWS = re.compile(r"[A-Z0-9]{16}")
_SAMPLES = ("pass", "password", "passwd", "pwd", "pw", "secret", "token", "xxx", "changeme")


def _is_mixed(word: str) -> bool:
    return not word.isalpha() and not word.isdigit()


def _judge_token(least: int, word: int = 12) -> _KeyJudge:
    """Long enough, with a word of letters and digits that nobody would write by hand."""

    def judge(text: str, start: int, end: int) -> Span | None:
        if end - start < least:
            return None
        words = _APART.split(text[start:end])
        sure = any(len(one) >= word and _is_mixed(one) for one in words)
        return (start, end) if sure else None

    return judge


def _judge_letters(least: int) -> _KeyJudge:
    """Some tokens have no digits: then capitals must stand among the small letters."""

    def judge(text: str, start: int, end: int) -> Span | None:
        body = text[start:end]
        ordinary = end - start < least or body.islower() or body.isupper() or body.isdigit()
        return None if ordinary else (start, end)

    return judge


def _judge_aws_key(text: str, start: int, end: int) -> Span | None:
    return (start, end) if end - start == 16 and _AWS.match(text, start) else None  # noqa: PLR2004


def _judge_jwt(text: str, start: int, end: int) -> Span | None:
    """Three long parts in a row."""
    in_a_row = 0
    for part in text[start:end].split("."):
        in_a_row = in_a_row + 1 if len(part) >= 8 else 0  # noqa: PLR2004
        if in_a_row == 3:  # noqa: PLR2004
            return start, end
    return None


def _judge_pem(text: str, start: int, end: int) -> Span | None:
    return (start, end) if _LINE.search(text, start, end) else None


def _judge_password(text: str, start: int, end: int) -> Span | None:
    """The password in `scheme://user:password@host`, but for one that only says what goes there."""
    if text[end : end + 1] != "@":
        return None
    at = text.find(":", start, end) + 1
    password = text[at:end]
    ordinary = not at or len(password) < 3 or password.lower() in _SAMPLES  # noqa: PLR2004
    return None if ordinary else (at, end)


URL_PREFIX = "://"
SHAPE_GROUPS: dict[str, tuple[KeyShape, ...]] = {
    URL_PREFIX: (KeyShape(URL_PREFIX, _USER, _judge_password),),
    "sk-": (KeyShape("sk-", _DASHED, _judge_token(16)),),
    "AIza": (KeyShape("AIza", _DASHED, _judge_token(30, 6)),),
    "AKIA": (KeyShape("AKIA", _PLAIN, _judge_aws_key),),
    "ASIA": (KeyShape("ASIA", _PLAIN, _judge_aws_key),),
    **{f"gh{kind}_": (KeyShape(f"gh{kind}_", _WORDS, _judge_token(30)),) for kind in "pousr"},
    "github_pat_": (KeyShape("github_pat_", _WORDS, _judge_token(40)),),
    "glpat-": (KeyShape("glpat-", _DASHED, _judge_token(18, 8)),),
    "xox": tuple(KeyShape(f"xox{kind}-", _DASHED, _judge_token(20, 8)) for kind in "abceprs"),
    "xapp-": (KeyShape("xapp-", _DASHED, _judge_token(20, 8)),),
    "hf_": (KeyShape("hf_", _PLAIN, _judge_letters(30)),),
    "gsk_": (KeyShape("gsk_", _PLAIN, _judge_token(40)),),
    "npm_": (KeyShape("npm_", _PLAIN, _judge_letters(34)),),
    "pypi-": (KeyShape("pypi-", _DASHED, _judge_token(50)),),
    "k_live_": tuple(KeyShape(f"{kind}k_live_", _PLAIN, _judge_token(16)) for kind in "sr"),
    "earer ": tuple(KeyShape(f"{first}earer ", _HEADER, _judge_token(16, 6)) for first in "Bb"),
    "Basic ": (KeyShape("Basic ", _HEADER, _judge_token(16, 6)),),
    "PRIVATE KEY-----": (KeyShape("PRIVATE KEY-----", _PEM, _judge_pem),),
    "eyJ": (KeyShape("eyJ", _DOTTED, _judge_jwt),),
}
"""The shapes, each under something that every text with one of them has in it."""
PREFIX_CHARS_MAX = max(len(shape.prefix) for group in SHAPE_GROUPS.values() for shape in group)
_RARE_MARKS = ("-", "_", "/", "AIza", "IA", "eyJ", "earer ", "asic ")
"""Each of them has one of these in it, and most short texts have none."""


def compile_any(words: Iterable[str]) -> re.Pattern[str]:
    """Any of these, sorted by how they begin: so a search need try few of them at each place."""
    by_first: dict[str, list[str]] = {}
    for word in words:
        by_first.setdefault(re.escape(word[0]), []).append(re.escape(word[1:]))
    return re.compile("|".join(f"{first}(?:{'|'.join(rest)})" for first, rest in by_first.items()))


_ANY_SHAPE_START = compile_any(SHAPE_GROUPS)


def has_no_key(text: str) -> bool:
    """Whether no secret begins in a text; for most short ones, at the cost of a glance."""
    for rare in _RARE_MARKS:
        if rare in text:
            return _ANY_SHAPE_START.search(text) is None
    return True


def find_keys(text: str, *, whole: bool) -> KeySearch:
    """The secrets in a text; unless it is whole, what its end leaves open is told apart."""
    spans: list[Span] = []
    size = hold = keep = len(text)
    for known, group in SHAPE_GROUPS.items() if not has_no_key(text) else ():
        for shape in group if known in text else ():
            for at, start, end in _find_runs(shape, text):
                if end == size and not whole:
                    keep = min(keep, at)
                    hold = min(hold, _secret_start(shape, text, start))
                elif span := shape.judge(text, start, end):
                    spans.append(span)
    return KeySearch(spans, hold, keep)


def _find_runs(shape: KeyShape, text: str) -> Iterator[tuple[int, int, int]]:
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


def _secret_start(shape: KeyShape, text: str, start: int) -> int:
    """Where the secret would begin, in a run that reaches the end of the text."""
    if shape.prefix != URL_PREFIX:
        return start
    colon = text.find(":", start)
    return len(text) if colon < 0 else colon + 1
