"""Any text in, a query for a full-text index out.

Invariant: every text is a valid query. Words are quoted one by one, so that nothing in them is read
as an operator.
"""

import re

WORDS_MAX = 64
"""Of a long prompt, only the first words are searched for."""
WORD_CHARS_MAX = 100
"""A longer word is found by its beginning."""
PREFIX_CHARS_MIN = 4
"""A word of at least this length also finds the words that start with it."""

_WORD_BREAKS = re.compile(
    r"[\s\x00-\x2f\x3a-\x40\x5b-\x60\x7b-\xa9\xab-\xb4\xb6-\xb9\xbb-\xbf\u2000-\u206f\u3000-\u303f]+"
)
_COMMON_WORDS = (
    "a about an and any are as at be but by can could did do does for from had has have he her"
    " his how i if in into is it its me my no not of on or our she should so than that the their"
    " them then there these they this to us was we were what when where which who why will with"
    " would you your"
)
"""Words that do not help a search, unless there are no others."""
_COMMON = frozenset(_COMMON_WORDS.split())


def query_words(query: str) -> list[str]:
    """The words to search for, without repetitions."""
    parts = _WORD_BREAKS.split(query.casefold())
    words = list(dict.fromkeys(word[:WORD_CHARS_MAX] for word in parts if word))
    significant = [word for word in words if word not in _COMMON]
    return (significant or words)[:WORDS_MAX]


def space_words(text: str) -> str:
    """The words of a text, separated by spaces: Postgres would split words differently."""
    return " ".join(word for word in _WORD_BREAKS.split(text) if word)


def fts5_query(words: list[str]) -> str:
    """The query for SQLite: each word, and the words that start with it. Both add to the score."""
    exact = [f'"{word}"' for word in words]
    prefixes = [f'"{word}"*' for word in words if len(word) >= PREFIX_CHARS_MIN]
    return " OR ".join(exact + prefixes)


def tsquery_text(words: list[str]) -> str:
    """The query for Postgres: each word, or the words that start with it."""
    return " | ".join(f"'{word}'{':*' * (len(word) >= PREFIX_CHARS_MIN)}" for word in words)
