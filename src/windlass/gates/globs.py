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
QUOTED_SPACE = "\ufdd1"
"""Stands in a text for white space that does not separate words."""
STAR_BARRIER = "\ufdd2"
"""Stands in a text before what a star may not swallow."""

TEXT_CHARS_MAX = 20_000
"""A longer text is not walked: unless it is plain, it might match."""


class MatchResult(IntEnum):
    NO = 0
    MAYBE = 1
    YES = 2


class GlobPattern:
    """A compiled pattern. `stop`: the characters that `*` and `?` do not match; `**` does."""

    __slots__ = ("_automaton", "_chunks", "_folded_automaton", "_folded_chunks", "pattern")

    def __init__(self, pattern: str, stop: str = "", *, question_mark: bool = True) -> None:
        self.pattern = pattern
        self._automaton = _GlobAutomaton(pattern, stop, question_mark=question_mark)
        self._folded_automaton = _GlobAutomaton(
            fold_spelling(pattern), stop, question_mark=question_mark
        )
        plain = not stop and not (question_mark and "?" in pattern)
        self._chunks = re.split(r"\*+", pattern) if plain else None
        self._folded_chunks = [fold_spelling(chunk) for chunk in self._chunks or ()]

    def match(self, text: str) -> MatchResult:
        if self._chunks is not None and not any(
            mark in text for mark in (HOLE, QUOTED_SPACE, STAR_BARRIER)
        ):
            if _match_chunks(self._chunks, text):
                return MatchResult.YES
            return MatchResult(_match_chunks(self._folded_chunks, fold_spelling(text)))
        if len(text) > TEXT_CHARS_MAX:
            return MatchResult.MAYBE
        if self._automaton.accepts(text, certain=True):
            return MatchResult.YES
        return MatchResult(self._folded_automaton.accepts(fold_spelling(text), certain=False))


@lru_cache(maxsize=1024)
def compile_glob(pattern: str, stop: str = "", *, question_mark: bool = True) -> GlobPattern:
    """The compiled pattern, made once."""
    return GlobPattern(pattern, stop, question_mark=question_mark)


def fold_spelling(text: str) -> str:
    """A text without what some systems do not tell apart: case, width, composition, our marks."""
    plain = text.replace(QUOTED_SPACE, " ").replace(STAR_BARRIER, "")
    return unicodedata.normalize("NFKC", plain).casefold()


def printable_text(text: str, chars_max: int = 120) -> str:
    """A text with marks, for people: in one line, and not too long."""
    plain = text.replace(QUOTED_SPACE, " ").replace(STAR_BARRIER, "").replace(HOLE, "…")
    line = " ".join("".join(c if c.isprintable() else " " for c in plain).split())
    return line if len(line) <= chars_max else f"{line[:chars_max]}…"


def _match_chunks(chunks: list[str], text: str) -> bool:
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


class _GlobAutomaton:
    """The pattern as an automaton: bit i says that the first i tokens are matched."""

    __slots__ = (
        "_any_bits",
        "_literals",
        "_one_bits",
        "_skip_bits",
        "_star_bits",
        "_stop",
        "_token_count",
    )

    def __init__(self, pattern: str, stop: str, *, question_mark: bool) -> None:
        self._stop = stop
        self._literals: dict[str, int] = {}
        self._one_bits = self._star_bits = self._any_bits = self._skip_bits = 0
        self._token_count = 0
        at = 0
        while at < len(pattern):
            at += self._add_token(pattern, at, question_mark=question_mark)

    def _add_token(self, pattern: str, at: int, *, question_mark: bool) -> int:
        bit = 1 << self._token_count
        self._token_count += 1
        char = pattern[at]
        if char == "*":
            stars = len(pattern) - at - len(pattern[at:].lstrip("*"))
            if stars > 1 or not self._stop:
                self._any_bits |= bit
            else:
                self._star_bits |= bit
            return stars
        if char == "?" and question_mark:
            self._one_bits |= bit
            return 1
        self._literals[char] = self._literals.get(char, 0) | bit
        if "/" in self._stop and re.match(r"/\*\*+(?=/|$)", pattern[at:]):
            self._skip_bits |= bit  # Folders between are optional, their slash included.
        return 1

    def accepts(self, text: str, *, certain: bool) -> bool:
        loops, states = self._any_bits | self._star_bits, self._expand_states(1)
        for char in text:
            if char == STAR_BARRIER:
                # What a star has reached by itself ends here; what was named goes on.
                states &= ~(loops | loops << 1)
            elif char == HOLE and certain:
                states &= self._any_bits
            elif char == HOLE:
                states &= -states
                states = (2 << self._token_count) - states if states else 0
            else:
                free = char not in self._stop
                stays = states & (loops if free else self._any_bits)
                fits = self._literals.get(char, 0) | (self._one_bits if free else 0)
                states = (states & fits) << 1 | stays
            states = self._expand_states(states)
            if not states:
                return False
        return bool(states >> self._token_count & 1)

    def _expand_states(self, states: int) -> int:
        before = 0
        while states != before:
            before = states
            states |= (states & self._skip_bits) << 2
            states |= (states & (self._any_bits | self._star_bits)) << 1
        return states
