"""Whether the characters behind a public prefix are a secret, and which of them."""

import re
from collections.abc import Callable, Iterator

from windlass.core.secrets.public_shapes import PublicShape

WINDOW_CHARS = 65_536
"""How much of a long text is searched at once.

A search in C holds the interpreter's lock until it is over. In windows, a search of megabytes in a
thread does not block the event loop.
"""

Span = tuple[int, int]
KeyJudge = Callable[[str, int, int], Span | None]
"""Gets a text and a run of characters in it; returns the place of the secret, or None."""

_WORD = re.compile(r"[A-Za-z0-9]++")
_LINE_CHARS = 40
_LINE = re.compile(rf"[A-Za-z0-9+/=]{{{_LINE_CHARS}}}")
_AWS = re.compile(r"[A-Z0-9]{16}")
_RANDOM_WORD_CHARS = 12
_SAMPLES = ("pass", "password", "passwd", "pwd", "pw", "secret", "token", "xxx", "changeme")


def _words_of(text: str, start: int, end: int, chars_min: int) -> Iterator[str]:
    """Yield the words of a stretch that are long enough. The cost is that of those looked at."""
    for found in _WORD.finditer(text, start, end):
        if found.end() - found.start() >= chars_min:
            yield found.group()


def _is_mixed(word: str) -> bool:
    return not word.isalpha() and not word.isdigit()


def judge_token(least: int, word: int = 12) -> KeyJudge:
    """Return a test for tokens: long enough, with a long word of mixed letters and digits."""

    def judge(text: str, start: int, end: int) -> Span | None:
        if end - start < least:
            return None
        words = _words_of(text, start, end, word)
        return (start, end) if any(map(_is_mixed, words)) else None

    return judge


def judge_letters(least: int) -> KeyJudge:
    """Return a test for tokens that may have no digits: then both cases must occur."""

    def judge(text: str, start: int, end: int) -> Span | None:
        body = text[start:end]
        ordinary = end - start < least or body.islower() or body.isupper() or body.isdigit()
        return None if ordinary else (start, end)

    return judge


def judge_aws_key(text: str, start: int, end: int) -> Span | None:
    return (start, end) if end - start == 16 and _AWS.match(text, start) else None  # noqa: PLR2004


def judge_jwt(text: str, start: int, end: int) -> Span | None:
    """A JSON Web Token has three long parts in a row."""
    in_a_row = 0
    at = start
    while at <= end:
        dot = text.find(".", at, end)
        part_end = end if dot < 0 else dot
        in_a_row = in_a_row + 1 if part_end - at >= 8 else 0  # noqa: PLR2004
        if in_a_row == 3:  # noqa: PLR2004
            return start, end
        at = part_end + 1
    return None


def judge_pem(text: str, start: int, end: int) -> Span | None:
    for first in range(start, end, WINDOW_CHARS):
        if _LINE.search(text, first, min(end, first + WINDOW_CHARS + _LINE_CHARS)):
            return (start, end)
    return None


def judge_password(text: str, start: int, end: int) -> Span | None:
    """Find the password in `scheme://user:password@host`, unless it is only a placeholder."""
    if text[end : end + 1] != "@":
        return None
    at = text.find(":", start, end) + 1
    password = text[at:end]
    ordinary = not at or len(password) < 3 or password.lower() in _SAMPLES  # noqa: PLR2004
    return None if ordinary else (at, end)


def judge_public(shape: PublicShape) -> KeyJudge:
    """Return the test of a shape of the table: its length, and that it is not a word."""
    form = re.compile(shape.form)

    def judge(text: str, start: int, end: int) -> Span | None:
        size = end - start
        if size < shape.chars_min or (shape.chars_max is not None and size > shape.chars_max):
            return None
        if shape.form:
            return (start, end) if form.match(text, start, end) else None
        # A key is random: it has digits, or both cases. A name or a sentence has neither.
        words = _words_of(text, start, end, _RANDOM_WORD_CHARS)
        is_random = any(not (word.islower() or word.isupper()) or _is_mixed(word) for word in words)
        return (start, end) if is_random else None

    return judge
