"""Globs with three results: a text matches, does not match, or might match.

A text may have holes: places whose content is not known yet, such as a variable of the
shell. Invariant: YES holds for every content of the holes. NO holds for every content of them, and
also if upper and lower case are not distinguished. Everything else is MAYBE. The cost is linear in
the text for every pattern: the states of the pattern are the bits of one number.

Only `*`, `**` and, if asked for, `?` are special; every other character matches itself.
"""

import re
import unicodedata
from enum import IntEnum
from functools import lru_cache

from windlass.core.text_clip import printable_line

HOLE = "\ufdd0"
"""In a text, represents any text, including an empty one."""
QUOTED_SPACE = "\ufdd1"
"""In a text, represents quoted white space, which does not separate words."""
STAR_BARRIER = "\ufdd2"
"""In a text, precedes a word that a star of a pattern must not match."""

TEXT_CHARS_MAX = 20_000
"""A longer text with holes is not searched: it might match."""


class MatchResult(IntEnum):
    """Whether a pattern matches. The values are ordered: `min` of two is the more cautious."""

    NO = 0
    MAYBE = 1
    YES = 2

    def doubted_if(self, is_doubtful: bool) -> "MatchResult":  # noqa: FBT001 - it is a condition
        """MAYBE instead of YES if there is a doubt; else the same."""
        return min(self, MatchResult.MAYBE) if is_doubtful else self


class GlobPattern:
    """A compiled pattern. `stop`: the characters that `*` and `?` do not match, but `**` does."""

    __slots__ = ("_automaton", "_chunks", "_folded_automaton", "_folded_chunks", "pattern")

    def __init__(self, pattern: str, stop: str = "", *, question_mark: bool = True) -> None:
        self.pattern = pattern
        self._automaton = _GlobAutomaton(pattern, stop, question_mark=question_mark)
        self._folded_automaton = _GlobAutomaton(
            fold_spelling(pattern), stop, question_mark=question_mark
        )
        # The common case, plain texts between stars, is matched with `str.find`, which is faster.
        is_plain = not stop and not (question_mark and "?" in pattern)
        self._chunks = re.split(r"\*+", pattern) if is_plain else None
        self._folded_chunks = [fold_spelling(chunk) for chunk in self._chunks or ()]

    def match(self, text: str) -> MatchResult:
        """Match the whole text, which may have holes and other marks in it."""
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
    """The compiled pattern, from a cache."""
    return GlobPattern(pattern, stop, question_mark=question_mark)


def fold_spelling(text: str) -> str:
    """The text without what some systems ignore: case, width, composition, our marks."""
    plain = text.replace(QUOTED_SPACE, " ").replace(STAR_BARRIER, "")
    return unicodedata.normalize("NFKC", plain).casefold()


def printable_text(text: str, chars_max: int = 120) -> str:
    """A text with marks, as people should see it: in one printable line of at most `chars_max`."""
    plain = text.replace(QUOTED_SPACE, " ").replace(STAR_BARRIER, "").replace(HOLE, "…")
    return printable_line(plain, chars_max)


def _match_chunks(chunks: list[str], text: str) -> bool:
    """Whether the text is these chunks in this order, with anything between them."""
    first, *rest = chunks
    if not rest:
        return text == first
    last = rest.pop()
    at = len(first)
    if not text.startswith(first) or not text.endswith(last):
        return False
    for chunk in rest:
        at = text.find(chunk, at)
        if at < 0:
            return False
        at += len(chunk)
    return at + len(last) <= len(text)


class _GlobAutomaton:
    """The pattern as an automaton. Its states are bits: bit i means that i tokens are matched."""

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
        # Which tokens are `?`, a star, a star that also matches `stop`, and an optional folder.
        self._one_bits = 0
        self._star_bits = 0
        self._any_bits = 0
        self._skip_bits = 0
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
            self._skip_bits |= bit  # `a/**/b` matches `a/b`: the folders and a slash are optional.
        return 1

    def accepts(self, text: str, *, certain: bool) -> bool:
        """Whether the text matches. `certain`: for every content of its holes, not for some."""
        loops = self._any_bits | self._star_bits
        states = self._expand_states(1)
        for char in text:
            if char == STAR_BARRIER:
                # A state that stars reached ends here; one that literal text reached continues.
                states &= ~(loops | loops << 1)
            elif char == HOLE and certain:
                states &= self._any_bits  # Only `**`, or `*` without stops, matches anything.
            elif char == HOLE:
                # Some content reaches every state from the lowest one on: set all bits above it.
                states &= -states
                states = (2 << self._token_count) - states if states else 0
            elif char in self._stop:
                fits = self._literals.get(char, 0)
                states = (states & fits) << 1 | states & self._any_bits
            else:
                fits = self._literals.get(char, 0) | self._one_bits
                states = (states & fits) << 1 | states & loops
            states = self._expand_states(states)
            if not states:
                return False
        return bool(states >> self._token_count & 1)

    def _expand_states(self, states: int) -> int:
        """The states, and those that are reached without another character."""
        before = 0
        while states != before:
            before = states
            states |= (states & self._skip_bits) << 2
            states |= (states & (self._any_bits | self._star_bits)) << 1
        return states
