"""Paths as rules see them: by their names alone, with `.` and `..` resolved.

Invariant: a path is judged by where it leads, not by how it is spelled. If the spelling does not
say where it leads (a home folder, a backslash, an absolute path where the rule has a relative one),
the result is MAYBE. So it is if the path only matches from the current folder of this process,
unless a root is given. Symbolic links are not followed here: the workspace of the tools does that.
"""

from dataclasses import dataclass
from pathlib import Path

from windlass.gates.globs import HOLE, MatchResult, compile_glob

DEPTH_MAX = 64


@dataclass(frozen=True, slots=True)
class NormalPath:
    """A path without `.` and `..`: absolute, relative to some folder, or to one above it."""

    absolute: bool
    levels_above: int
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        return "/.." * self.levels_above + "".join(f"/{name}" for name in self.names)


def parse_path(path: str) -> NormalPath:
    """Resolve `.` and `..` in a path, by its text alone."""
    absolute = path.startswith("/")
    levels_above = 0
    names: list[str] = []
    for name in path.split("/"):
        if name in {"", "."}:
            continue
        if name != "..":
            names.append(name)
        elif names:
            names.pop()
        elif not absolute:
            levels_above += 1
    return NormalPath(absolute, levels_above, tuple(names))


def simplify_path(path: str) -> str:
    """The shortest spelling of a path."""
    parsed = parse_path(path)
    if parsed.absolute:
        return parsed.text or "/"
    return parsed.text.removeprefix("/") or "."


def match_path(pattern: str, path: str, root: str | None = None) -> MatchResult:
    """Whether a path matches a pattern. `root`: the folder where relative paths start."""
    spellings = {path, path.replace("\\", "/"), *_expand_home(path)}
    is_ambiguous = len(spellings) > 1 or path != path.strip() or not path.isprintable()
    results = [
        _match_spelling(variant, spelling, root)
        for variant in {pattern, *_expand_home(pattern)}
        for spelling in spellings
    ]
    return max(results).doubted_if(is_ambiguous)


def _expand_home(path: str) -> list[str]:
    """What a path that starts with `~` may expand to."""
    if not path.startswith("~"):
        return []
    user, slash, rest = path.partition("/")
    # The home folder of another user may be anywhere.
    home = str(Path.home()) if user == "~" else f"/{HOLE}"
    return [f"{home}{slash}{rest}"]


def _match_spelling(pattern: str, path: str, root: str | None) -> MatchResult:
    wanted = parse_path(pattern)
    given = parse_path(path)
    if root is not None:
        given = _resolve_from_root(root, given, absolute=wanted.absolute)
    compiled = compile_glob(wanted.text, "/")
    if wanted.absolute == given.absolute and wanted.levels_above == given.levels_above:
        return compiled.match(given.text)
    if wanted.absolute:
        start = HOLE if given.levels_above else str(Path.cwd())
        return min(MatchResult.MAYBE, compiled.match("/".join((start, *given.names))))
    if root is not None and given.absolute:
        return MatchResult.NO  # The path was resolved from the root, and lies outside of it.
    if len(given.names) > DEPTH_MAX:
        return MatchResult.MAYBE
    # The folder that the relative pattern starts from is not known: try each part of the path.
    tails = ("".join(f"/{name}" for name in given.names[at:]) for at in range(len(given.names) + 1))
    inside = compile_glob("".join(f"/{name}" for name in wanted.names), "/")
    return min(MatchResult.MAYBE, max(inside.match(tail) for tail in tails))


def _resolve_from_root(root: str, given: NormalPath, *, absolute: bool) -> NormalPath:
    """The same path in the form of the rule: absolute, or relative to the root if it is below."""
    whole = given if given.absolute else parse_path(f"{root}/{given.text}")
    base = parse_path(root).names
    if absolute or whole.names[: len(base)] != base:
        return NormalPath(absolute=True, levels_above=0, names=whole.names)
    return NormalPath(absolute=False, levels_above=0, names=whole.names[len(base) :])
