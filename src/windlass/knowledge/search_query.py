"""Any text in, terms and queries for a full-text index out.

Scripts that are written without spaces, such as Chinese and Japanese, have no words to look up.
Their texts are indexed by pairs of neighbouring characters, and so are queries: most words of both
languages have two characters, which the usual groups of three would miss. Word stems are left to
the databases: SQLite's `porter` and the English stems of Postgres.

Invariant: every text is a valid query. Words are quoted one by one, so that nothing in them is read
as an operator.
"""

import re
from collections.abc import Iterator
from unicodedata import normalize

WORDS_MAX = 64
"""Of a long prompt, only the first words are searched for."""
WORD_CHARS_MAX = 100
"""A longer word is found by its beginning."""
PREFIX_CHARS_MIN = 4
"""A word of at least this length also finds the words that start with it."""

_WORD_BREAKS = re.compile(
    r"[\s\x00-\x2f\x3a-\x40\x5b-\x60\x7b-\xa9\xab-\xb4\xb6-\xb9\xbb-\xbf\u2000-\u206f"
    r"\u3000-\u3004\u3008-\u303f\u30fb]+"
)
# Thai, Lao, Burmese, Khmer, kana, ideographs and Hangul, whose words have particles behind them.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
_find_unspaced = re.compile(f"[{_UNSPACED}]").search
_find_runs = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+").findall
_COMMON_WORDS = (
    "a about an and any are as at be but by can could did do does for from had has have he her"
    " his how i if in into is it its me my no not of on or our she should so than that the their"
    " them then there these they this to us was we were what when where which who why will with"
    " would you your"
)
"""Words that do not help a search, unless there are no others."""
_COMMON = frozenset(_COMMON_WORDS.split())


def query_words(query: str) -> list[str]:
    """The terms to search for, without repetitions: words, and pairs of characters."""
    parts = _WORD_BREAKS.split(normalize("NFKC", query).casefold())
    terms = (term[:WORD_CHARS_MAX] for part in parts if part for term in _split_scripts(part))
    words = list(dict.fromkeys(terms))
    significant = [word for word in words if word not in _COMMON]
    return (significant or words)[:WORDS_MAX]


def space_words(text: str) -> str:
    """The words of a text, separated by spaces: Postgres would split words differently."""
    return " ".join(word for word in _WORD_BREAKS.split(text) if word)


def pair_terms(*texts: str) -> str:
    """The terms by which texts without spaces are found; empty if there are none."""
    return " ".join(
        term
        for text in texts
        if _find_unspaced(text)
        for word in _WORD_BREAKS.split(normalize("NFKC", text).casefold())
        if _find_unspaced(word)
        for term in _split_scripts(word, is_indexed=True)
    )


def _split_scripts(word: str, *, is_indexed: bool = False) -> Iterator[str]:
    """Yield a word, or the pairs of its characters if its script has no spaces.

    In the index the last character stands alone as well, so that a query of one character finds it.
    """
    for run in _find_runs(word):
        if not _find_unspaced(run):
            yield run
            continue
        yield from (run[at : at + 2] for at in range(len(run) - 1))
        if is_indexed or len(run) == 1:
            yield run[-1]


def _has_longer_forms(term: str) -> bool:
    """Whether terms that begin with this one are meant, too."""
    return len(term) >= PREFIX_CHARS_MIN or (len(term) == 1 and bool(_find_unspaced(term)))


def fts5_query(words: list[str]) -> str:
    """The query for SQLite: each word, and the words that start with it. Both add to the score."""
    exact = [f'"{word}"' for word in words]
    prefixes = [f'"{word}"*' for word in words if _has_longer_forms(word)]
    return " OR ".join(exact + prefixes)


def tsquery_text(words: list[str]) -> str:
    """The query for Postgres: each word, or the words that start with it."""
    return " | ".join(f"'{word}'{':*' * _has_longer_forms(word)}" for word in words)
