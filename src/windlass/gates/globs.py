"""Globs that know what they do not know: a text matches, does not, or might.

The law: YES holds whatever stands in the holes of the text; NO holds whatever stands in them, and
in either case of letters; everything between is MAYBE. The cost is linear in the text, whatever the
pattern: all states of the pattern are the bits of one number.

Only `*`, `**` and, where it is asked for, `?` have a meaning; every other character is itself.
"""

import re
import unicodedata
from enum import IntEnum
from functools import lru_cache

HOLE = "\ufdd0"
"""Stands in a text for any other text, also none."""
BLANK = "\ufdd1"
"""Stands in a text for white space that does not separate words."""
SEAL = "\ufdd2"
"""Stands in a text before what a star may not swallow."""

TEXT_CHARS_MAX = 20_000
"""A longer text is not walked: unless it is plain, it might match."""


class Match(IntEnum):
    NO = 0
    MAYBE = 1
    YES = 2


class Glob:
    """A compiled pattern. `stop`: the characters that `*` and `?` do not match; `**` does."""

    __slots__ = ("_chunks", "_folded", "_folded_chunks", "_walk", "pattern")

    def __init__(self, pattern: str, stop: str = "", *, one: bool = True) -> None:
        self.pattern = pattern
        self._walk = _Walk(pattern, stop, one=one)
        self._folded = _Walk(fold(pattern), stop, one=one)
        plain = not stop and not (one and "?" in pattern)
        self._chunks = re.split(r"\*+", pattern) if plain else None
        self._folded_chunks = [fold(chunk) for chunk in self._chunks or ()]

    def match(self, text: str) -> Match:
        if self._chunks is not None and not any(mark in text for mark in (HOLE, BLANK, SEAL)):
            if _in_order(self._chunks, text):
                return Match.YES
            return Match(_in_order(self._folded_chunks, fold(text)))
        if len(text) > TEXT_CHARS_MAX:
            return Match.MAYBE
        if self._walk.accepts(text, certain=True):
            return Match.YES
        return Match(self._folded.accepts(fold(text), certain=False))


@lru_cache(maxsize=1024)
def glob(pattern: str, stop: str = "", *, one: bool = True) -> Glob:
    """The compiled pattern, made once."""
    return Glob(pattern, stop, one=one)


def fold(text: str) -> str:
    """A text without what some systems do not tell apart: case, width, composition, our marks."""
    plain = text.replace(BLANK, " ").replace(SEAL, "")
    return unicodedata.normalize("NFKC", plain).casefold()


def shown(text: str, chars_max: int = 120) -> str:
    """A text with marks, for people: in one line, and not too long."""
    plain = text.replace(BLANK, " ").replace(SEAL, "").replace(HOLE, "…")
    line = " ".join("".join(c if c.isprintable() else " " for c in plain).split())
    return line if len(line) <= chars_max else f"{line[:chars_max]}…"


def _in_order(chunks: list[str], text: str) -> bool:
    """Whether the text is these chunks with anything between them."""
    first, *rest = chunks
    if not rest:
        return text == first
    last, at = rest.pop(), len(first)
    if not text.startswith(first) or not text.endswith(last):
        return False
    for chunk in rest:
        at = text.find(chunk, at)
        if at < 0:
            return False
        at += len(chunk)
    return at + len(last) <= len(text)


class _Walk:
    """The pattern as an automaton: bit i says that the first i tokens are matched."""

    __slots__ = ("_any", "_count", "_literals", "_ones", "_skips", "_stars", "_stop")

    def __init__(self, pattern: str, stop: str, *, one: bool) -> None:
        self._stop = stop
        self._literals: dict[str, int] = {}
        self._ones = self._stars = self._any = self._skips = 0
        self._count = 0
        at = 0
        while at < len(pattern):
            at += self._token(pattern, at, one=one)

    def _token(self, pattern: str, at: int, *, one: bool) -> int:
        bit = 1 << self._count
        self._count += 1
        char = pattern[at]
        if char == "*":
            stars = len(pattern) - at - len(pattern[at:].lstrip("*"))
            if stars > 1 or not self._stop:
                self._any |= bit
            else:
                self._stars |= bit
            return stars
        if char == "?" and one:
            self._ones |= bit
            return 1
        self._literals[char] = self._literals.get(char, 0) | bit
        if "/" in self._stop and re.match(r"/\*\*+(?=/|$)", pattern[at:]):
            self._skips |= bit  # Folders between are optional, their slash included.
        return 1

    def accepts(self, text: str, *, certain: bool) -> bool:
        loops, states = self._any | self._stars, self._closure(1)
        for char in text:
            if char == SEAL:
                # What a star has reached by itself ends here; what was named goes on.
                states &= ~(loops | loops << 1)
            elif char == HOLE and certain:
                states &= self._any
            elif char == HOLE:
                states &= -states
                states = (2 << self._count) - states if states else 0
            else:
                free = char not in self._stop
                stays = states & (loops if free else self._any)
                fits = self._literals.get(char, 0) | (self._ones if free else 0)
                states = (states & fits) << 1 | stays
            states = self._closure(states)
            if not states:
                return False
        return bool(states >> self._count & 1)

    def _closure(self, states: int) -> int:
        before = 0
        while states != before:
            before = states
            states |= (states & self._skips) << 2
            states |= (states & (self._any | self._stars)) << 1
        return states
