"""Near names, for whoever mistyped one: "did you mean …?"."""

import difflib
from collections.abc import Iterable


def find_near_names(name: str, names: Iterable[str]) -> list[str]:
    """The names that look most like this one, best first."""
    known = list(names)
    found = difflib.get_close_matches(name.casefold(), map(str.casefold, known), 3, 0.6)
    return [one for folded in dict.fromkeys(found) for one in known if one.casefold() == folded]


def suggest_names(name: str, names: Iterable[str]) -> str:
    """A sentence to put behind an error, or nothing."""
    names = list(names)
    found = find_near_names(name, names)
    if found:
        return f" Did you mean {' or '.join(found)}?"
    return f" Known: {', '.join(names[:20])}." if names else ""
