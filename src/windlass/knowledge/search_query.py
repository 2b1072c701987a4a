"""Any text in, a query that a full-text index understands out.

The law: there is no text that is a mistake. Words are quoted one by one, so that nothing in them is
read as an operator.
"""

import re

WORDS_MAX = 64
"""Of a prompt that is long, the first ones."""
WORD_CHARS_MAX = 100
"""A word that is longer is found by its beginning."""
PREFIX_CHARS_MIN = 4
"""Shorter words are looked for as they are; longer ones may also begin a word."""

_WORD_BREAKS = re.compile(
    r"[\s\x00-\x2f\x3a-\x40\x5b-\x60\x7b-\xa9\xab-\xb4\xb6-\xb9\xbb-\xbf\u2000-\u206f\u3000-\u303f]+"
)
_COMMON_WORDS = (
    "a about an and any are as at be but by can could did do does for from had has have he her"
    " his how i if in into is it its me my no not of on or our she should so than that the their"
    " them then there these they this to us was we were what when where which who why will with"
    " would you your"
)
"""Words that say nothing about what is looked for, unless there are no others."""
_COMMON = frozenset(_COMMON_WORDS.split())


def query_words(query: str) -> list[str]:
    """The words to look for, each once."""
    parts = _WORD_BREAKS.split(query.casefold())
    found = dict.fromkeys(word[:WORD_CHARS_MAX] for word in parts if word)
    telling = [word for word in found if word not in _COMMON]
    return (telling or list(found))[:WORDS_MAX]


def space_words(text: str) -> str:
    """The words of a text and nothing else, for an index with a tokenizer of its own mind."""
    return " ".join(word for word in _WORD_BREAKS.split(text) if word)


def fts5_query(words: list[str]) -> str:
    """A query for SQLite. A word as it is written counts beside the words that begin with it."""
    whole = [f'"{word}"' for word in words]
    begun = [f'"{word}"*' for word in words if len(word) >= PREFIX_CHARS_MIN]
    return " OR ".join(whole + begun)


def tsquery_text(words: list[str]) -> str:
    """The same for Postgres."""
    return " | ".join(f"'{word}'{':*' * (len(word) >= PREFIX_CHARS_MIN)}" for word in words)
