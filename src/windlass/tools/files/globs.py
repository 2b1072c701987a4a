"""Patterns for paths: `*` and `?` within a name, `[ab]`, `{a,b}`, and `**` for any folders.

A pattern without a slash fits a name in any folder; `./*.md` fits in the first one only. A path is
matched name by name, in a time that a hostile pattern cannot stretch.
"""

import fnmatch
import re
from collections.abc import Iterator

from windlass.core.errors import ModelRetry

PATTERN_CHARS_MAX = 1_000
CHOICES_MAX = 100
"""Patterns that the braces of one may stand for."""

_BRACE_GROUP = re.compile(r"\{([^{}]*)\}")


class FileGlob:
    """One pattern, ready to match paths."""

    def __init__(self, pattern: str) -> None:
        if pattern.startswith("/") or ".." in pattern.split("/"):
            raise ModelRetry("A glob starts in the folder `path`, without `/` or `..` before it.")
        if not pattern.strip() or len(pattern) > PATTERN_CHARS_MAX or "\0" in pattern:
            raise ModelRetry(f"A glob has 1 to {PATTERN_CHARS_MAX} characters, such as `**/*.py`.")
        self._alternatives = [_compile_steps(one) for one in _expand_braces(pattern)]

    def matches_path(self, path: str) -> bool:
        names = path.split("/")
        return any(_match_steps(steps, names) for steps in self._alternatives)


_GlobStep = re.Pattern[str] | None
"""One name of a path, or any number of them."""


def _expand_braces(pattern: str) -> list[str]:
    """The pattern once for each of the choices in its braces."""
    done: list[str] = []
    todo = [pattern]
    while todo:
        one = todo.pop()
        braces = _BRACE_GROUP.search(one)
        if braces is None:
            done.append(one)
        else:
            before, after = one[: braces.start()], one[braces.end() :]
            todo += [f"{before}{choice}{after}" for choice in braces[1].split(",")]
        if len(done) + len(todo) > CHOICES_MAX:
            raise ModelRetry(f"The braces of a glob may stand for {CHOICES_MAX} patterns at most.")
    return done


def _compile_steps(pattern: str) -> list[_GlobStep]:
    names = [name for name in pattern.split("/") if name not in {"", "."}]
    anywhere = ["**"] if "/" not in pattern else []
    return [
        None if name == "**" else re.compile(fnmatch.translate(name)) for name in anywhere + names
    ]


def _match_steps(steps: list[_GlobStep], names: list[str]) -> bool:
    """Whether the steps lead through all names; at each name, `at` is where they may stand."""
    at = set(_reachable_steps(steps, 0))
    for name in names:
        at = {
            further
            for here in at
            if here < len(steps)
            for further in _next_steps(steps, here, name)
        }
    return len(steps) in at


def _reachable_steps(steps: list[_GlobStep], here: int) -> Iterator[int]:
    """A place, and those behind it that `**` leaves open."""
    yield here
    while here < len(steps) and steps[here] is None:
        here += 1
        yield here


def _next_steps(steps: list[_GlobStep], here: int, name: str) -> Iterator[int]:
    step = steps[here]
    if step is None:
        yield from _reachable_steps(steps, here)
    elif step.match(name):
        yield from _reachable_steps(steps, here + 1)
