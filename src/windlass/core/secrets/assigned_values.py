"""Find secrets by the name that a text gives them: `password=…`, `"api_key": "…"`.

A name says less than the prefix of an issuer, because code and prose use the same words. So a value
counts only if it looks random, and is not code, a path, a sample or the token of a page.
"""

import re
from collections.abc import Callable

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
_WORD = re.compile(r"[A-Za-z0-9]{6,}+")
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
        words = _WORD.findall(value)
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
