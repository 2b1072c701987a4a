"""Glob patterns for files of a workspace, as the `glob` and `grep` tools accept them.

`*` and `?` match within a name, `[ab]` and `{a,b}` are choices, `**` matches any number of folders.
A pattern without a slash matches a name in any folder; `./*.md` matches in the first folder only.
A path is matched name by name, so a hostile pattern cannot make the match slow. (The patterns of
policy rules in `windlass.gates` are another, stricter language.)
"""

import fnmatch
import re
from collections.abc import Iterator

from windlass.core.errors import ModelRetry

PATTERN_CHARS_MAX = 1_000
CHOICES_MAX = 100
"""Patterns that the braces of one pattern may expand to."""

_BRACE_GROUP = re.compile(r"\{([^{}]*)\}")


class FileGlob:
    """One compiled pattern. Raises ModelRetry if the pattern is invalid."""

    def __init__(self, pattern: str) -> None:
        if pattern.startswith("/") or ".." in pattern.split("/"):
            raise ModelRetry(
                "A glob is relative to the folder `path`: it must not start with `/` or contain "
                "`..`."
            )
        if not pattern.strip() or len(pattern) > PATTERN_CHARS_MAX or "\0" in pattern:
            raise ModelRetry(
                f"A glob must have 1 to {PATTERN_CHARS_MAX} characters, for example `**/*.py`."
            )
        self._alternatives = [_compile_steps(choice) for choice in _expand_braces(pattern)]

    def matches_path(self, path: str) -> bool:
        """Whether a relative path, with `/` between its names, matches."""
        names = path.split("/")
        return any(_match_steps(steps, names) for steps in self._alternatives)


_GlobStep = re.Pattern[str] | None
"""Matches one name of a path; None, for `**`, matches any number of names."""


def _expand_braces(pattern: str) -> list[str]:
    """Return the pattern once for each choice in its braces."""
    done: list[str] = []
    todo = [pattern]
    while todo:
        current = todo.pop()
        braces = _BRACE_GROUP.search(current)
        if braces is None:
            done.append(current)
        else:
            before = current[: braces.start()]
            after = current[braces.end() :]
            todo += [f"{before}{choice}{after}" for choice in braces[1].split(",")]
        if len(done) + len(todo) > CHOICES_MAX:
            raise ModelRetry(
                f"The braces of a glob may expand to at most {CHOICES_MAX} patterns. Use fewer "
                "choices."
            )
    return done


def _compile_steps(pattern: str) -> list[_GlobStep]:
    names = [name for name in pattern.split("/") if name not in {"", "."}]
    if "/" not in pattern:
        names.insert(0, "**")
    # `**` after `**` means nothing more, and hundreds of them would take a square of the time.
    pairs = zip(names, [*names[1:], ""], strict=True)
    names = [name for name, following in pairs if not name == following == "**"]
    return [None if name == "**" else re.compile(fnmatch.translate(name)) for name in names]


def _match_steps(steps: list[_GlobStep], names: list[str]) -> bool:
    """Whether the steps match all names.

    Keeps the set of positions that the steps may have reached, like a regular expression without
    backtracking, so the time is at most steps x names.
    """
    positions = set(_reachable_steps(steps, 0))
    for name in names:
        positions = {
            following
            for position in positions
            if position < len(steps)
            for following in _next_steps(steps, position, name)
        }
    return len(steps) in positions


def _reachable_steps(steps: list[_GlobStep], position: int) -> Iterator[int]:
    """Yield a position, and those after it that can be reached because `**` may match nothing."""
    yield position
    while position < len(steps) and steps[position] is None:
        position += 1
        yield position


def _next_steps(steps: list[_GlobStep], position: int, name: str) -> Iterator[int]:
    step = steps[position]
    if step is None:
        yield from _reachable_steps(steps, position)
    elif step.match(name):
        yield from _reachable_steps(steps, position + 1)
