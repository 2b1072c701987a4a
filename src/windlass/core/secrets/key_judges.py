"""Whether the characters behind a public prefix are a secret, and which of them.

Other secrets are found by the name that a text gives them: `password=…`, `"api_key": "…"`. A name
says less than the prefix of an issuer, because code and prose use the same words. So a value counts
only if it looks random, and is not code, a path, a sample or the token of a page.
"""

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
_CHANGE = re.compile(r"[a-z](?=[A-Z0-9])|[A-Z](?=[0-9])|[0-9](?=[A-Za-z])")
_CHANGES_MIN = 5
_SCATTERED_CHARS = 256
"""How much of a run is looked at for such changes."""
_SAMPLES = ("pass", "password", "passwd", "pwd", "pw", "secret", "token", "xxx", "changeme")


def _words_of(text: str, start: int, end: int, chars_min: int) -> Iterator[str]:
    """Yield the words of a stretch that are long enough. The cost is that of those looked at."""
    for found in _WORD.finditer(text, start, end):
        if found.end() - found.start() >= chars_min:
            yield found.group()


def _is_mixed(word: str) -> bool:
    return not word.isalpha() and not word.isdigit()


def _is_scattered(text: str, start: int, end: int) -> bool:
    """Whether a run goes from one kind of character to another again and again.

    So does a random key whose dashes leave no long word. A name has a hump here and there, and
    rarely a digit as well.
    """
    piece = text[start : min(end, start + _SCATTERED_CHARS)]
    if piece.islower() or piece.isupper() or not any(map(str.isdigit, piece)):
        return False
    return len(_CHANGE.findall(piece)) >= _CHANGES_MIN


def judge_token(least: int, word: int = 12) -> KeyJudge:
    """Return a test for tokens: long enough, with a long word of mixed letters and digits.

    Or with many changes between them.
    """

    def judge(text: str, start: int, end: int) -> Span | None:
        if end - start < least:
            return None
        words = _words_of(text, start, end, word)
        is_random = any(map(_is_mixed, words)) or _is_scattered(text, start, end)
        return (start, end) if is_random else None

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
        return (start, end) if is_random or _is_scattered(text, start, end) else None

    return judge


ASSIGNED_NAMES = (
    *("assword", "asswd", "ecret", "oken", "api_key", "api-key", "apikey", "apiKey"),
    *("access_key", "private_key", "secret_key", "client_secret", "signing_key"),
    *("ASSWORD", "ASSWD", "ECRET", "OKEN", "API_KEY", "APIKEY"),
    *("ACCESS_KEY", "PRIVATE_KEY", "SECRET_KEY", "SIGNING_KEY"),
)
"""How the names end that secrets have, without a first letter that may be small or large."""

_NAME_END = r"""\\{0,4}+["'`]?+[ \t]{0,3}+"""
_SIGN = r"""[:=]{1,2}+>?+[ \t]{0,3}+\\{0,4}+["'`]?+"""
_VALUE = r"[A-Za-z0-9_\-./+~!@#$%^&*=?]*+"
ASSIGNED_RUN = re.compile(f"{_NAME_END}(?:{_SIGN}{_VALUE})?+")
"""The rest of an assignment. Each beginning of it matches too, so that a stream can wait for more.
"""
_BEFORE_VALUE = re.compile(f"{_NAME_END}{_SIGN}")
_ASSIGNMENT = re.compile(
    rf"(?:oken|ecret|assword|asswd|OKEN|ECRET|ASSWORD|ASSWD){_NAME_END}(?:[:=]|\Z)"
)
_VALUE_CHARS_MIN = 8
_LONG_WORD = re.compile(r"[A-Za-z0-9]{6,}+")
_NUMBERED = re.compile(r"[A-Za-z]+[0-9]{1,4}")
_CODE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)++")
_SAMPLE = re.compile(r"(?i:test|example|sample|change|dummy|fake|demo|your|xxx|password|secret)")
_PAGE_TOKEN = re.compile(r"(?i:next|page|start|continuation|sync|cursor|resume|forward)[_-]?[tT]")
CONTEXT_CHARS = 14
"""How many characters before a name are looked at."""
_PASSWORDS = ("assword", "asswd", "ASSWORD", "ASSWD")


def may_assign(text: str) -> bool:
    """Whether something may be assigned to one of the words that prose uses as well."""
    return _ASSIGNMENT.search(text) is not None


def judge_assigned(name: str) -> Callable[[str, int, int], tuple[int, int] | None]:
    """Return the test of what is assigned to a name: the place of the secret, or None."""
    is_password = name in _PASSWORDS

    def judge(text: str, start: int, end: int) -> tuple[int, int] | None:
        found = _BEFORE_VALUE.match(text, start)
        at = found.end() if found else end
        if end - at < _VALUE_CHARS_MIN:
            return None
        value = text[at:end].rstrip(".!?")
        if _is_ordinary(value) or text[end : end + 1] in ("(", "[", "{"):
            return None
        words = _LONG_WORD.findall(value)
        if not any(_is_random(word, may_be_numbered=is_password) for word in words):
            return None
        before = text[max(0, start - len(name) - CONTEXT_CHARS) : start - len(name) + 1]
        if not is_password and _PAGE_TOKEN.search(f"{before[:-1]}t"):
            return None
        return at, at + len(value)

    return judge


def _is_ordinary(value: str) -> bool:
    """Whether a value is a path, a variable, a piece of code or a sample."""
    if len(value) < _VALUE_CHARS_MIN or value[0] in "/.~$%*&?" or "://" in value:
        return True
    return _CODE.fullmatch(value) is not None or _SAMPLE.search(value) is not None


def _is_random(word: str, *, may_be_numbered: bool) -> bool:
    """Whether a word mixes letters and digits, as `python3` does only at its end."""
    if word.isalpha() or word.isdigit():
        return False
    return may_be_numbered or _NUMBERED.fullmatch(word) is None
