"""Find keys, tokens and passwords by the public prefix that their issuer gives them.

The law: the prefix is public and stays visible, what follows it is the secret. So a stream holds
nothing back until a prefix is complete. Each prefix is examined once, and the search goes on after
its run of characters, so that the cost is linear in the text.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

Span = tuple[int, int]
_KeyJudge = Callable[[str, int, int], Span | None]


class KeyShape(NamedTuple):
    """A public prefix, the characters that may follow it, and the test that these are a secret."""

    prefix: str
    run: re.Pattern[str]
    judge: _KeyJudge


class KeySearch(NamedTuple):
    """The secrets in a text, and its open end: keep it from `keep` on, show it up to `hold`."""

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
# Base64 in lines, whose breaks may be escaped, with the header lines of old encrypted keys.
_PEM = _run_of(r"[A-Za-z0-9+/=:,]|-(?!-)|(?<=:)[ ]|[\r\n]+[ \t]*|\\{1,4}+[nrt]|\\+\Z")

_APART = re.compile(r"[^A-Za-z0-9]+")
_LINE = re.compile(r"[A-Za-z0-9+/=]{40}")
_AWS = re.compile(r"[A-Z0-9]{16}")
_SAMPLES = ("pass", "password", "passwd", "pwd", "pw", "secret", "token", "xxx", "changeme")


def _is_mixed(word: str) -> bool:
    return not word.isalpha() and not word.isdigit()


def _judge_token(least: int, word: int = 12) -> _KeyJudge:
    """Return a test for tokens: long enough, with a long word of mixed letters and digits."""

    def judge(text: str, start: int, end: int) -> Span | None:
        if end - start < least:
            return None
        words = _APART.split(text[start:end])
        is_token = any(len(part) >= word and _is_mixed(part) for part in words)
        return (start, end) if is_token else None

    return judge


def _judge_letters(least: int) -> _KeyJudge:
    """Return a test for tokens that may have no digits: then both cases must occur."""

    def judge(text: str, start: int, end: int) -> Span | None:
        body = text[start:end]
        ordinary = end - start < least or body.islower() or body.isupper() or body.isdigit()
        return None if ordinary else (start, end)

    return judge


def _judge_aws_key(text: str, start: int, end: int) -> Span | None:
    return (start, end) if end - start == 16 and _AWS.match(text, start) else None  # noqa: PLR2004


def _judge_jwt(text: str, start: int, end: int) -> Span | None:
    """A JSON Web Token has three long parts in a row."""
    in_a_row = 0
    for part in text[start:end].split("."):
        in_a_row = in_a_row + 1 if len(part) >= 8 else 0  # noqa: PLR2004
        if in_a_row == 3:  # noqa: PLR2004
            return start, end
    return None


def _judge_pem(text: str, start: int, end: int) -> Span | None:
    if _LINE.search(text, start, end):
        return (start, end)
    return None


def _judge_password(text: str, start: int, end: int) -> Span | None:
    """Find the password in `scheme://user:password@host`, unless it is only a placeholder."""
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
"""The shapes, each under a text that every match of them contains."""
PREFIX_CHARS_MAX = max(len(shape.prefix) for group in SHAPE_GROUPS.values() for shape in group)
_RARE_MARKS = ("-", "_", "/", "AIza", "IA", "eyJ", "earer ", "asic ")
"""Every prefix contains one of these, and most short texts contain none of them."""


def compile_any(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for any of these words, grouped by first letter so that few are tried."""
    by_first: dict[str, list[str]] = {}
    for word in words:
        by_first.setdefault(re.escape(word[0]), []).append(re.escape(word[1:]))
    return re.compile("|".join(f"{first}(?:{'|'.join(rest)})" for first, rest in by_first.items()))


_ANY_SHAPE_START = compile_any(SHAPE_GROUPS)


def has_no_key(text: str) -> bool:
    """Whether no secret begins in a text. For most short texts this is very cheap."""
    for rare in _RARE_MARKS:
        if rare in text:
            return _ANY_SHAPE_START.search(text) is None
    return True


def find_keys(text: str, *, whole: bool) -> KeySearch:
    """Return the secrets in a text. Unless it is `whole`, also what its end leaves open."""
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
    """Yield where each prefix begins, and the start and end of the run that follows it."""
    prefix = shape.prefix
    at = text.find(prefix)
    while at >= 0:
        start = end = at + len(prefix)
        if at == 0 or not (text[at - 1].isalnum() and text[at].isalpha()):
            found = shape.run.match(text, start)
            end = found.end() if found else start
            yield at, start, end
        # A prefix inside a run is judged with that run.
        at = text.find(prefix, end)


def _secret_start(shape: KeyShape, text: str, start: int) -> int:
    """Return where the secret would begin, in a run that reaches the end of the text."""
    if shape.prefix != URL_PREFIX:
        return start
    colon = text.find(":", start)
    return len(text) if colon < 0 else colon + 1
