"""Suggest names for one that was mistyped: "Did you mean …?"."""

import difflib
from collections.abc import Iterable


def find_near_names(name: str, names: Iterable[str]) -> list[str]:
    """Return the names that look most like this one, the best first; at most three spellings."""
    candidates = list(names)
    folded = [candidate.casefold() for candidate in candidates]
    matches = dict.fromkeys(difflib.get_close_matches(name.casefold(), folded, 3, 0.6))
    return [
        candidate for match in matches for candidate in candidates if candidate.casefold() == match
    ]


def suggest_names(name: str, names: Iterable[str]) -> str:
    """Return a sentence to append to an error: near names, else the known ones, else nothing."""
    names = list(names)
    near = find_near_names(name, names)
    if near:
        return f" Did you mean {' or '.join(near)}?"
    if names:
        return f" Known: {', '.join(names[:20])}."
    return ""
