"""Paths, as rules see them: by their names alone, with every detour taken out.

The law: a path is judged by where it leads, not by how it is spelled. What the spelling does not
tell (a home folder, a backslash, an absolute path where the rule has a relative one) is a MAYBE; so
is what leads there from the folder that this process runs in, unless a root is given.
Links are not followed here: the tools' own workspace does that.
"""

from dataclasses import dataclass
from pathlib import Path

from windlass.gates.globs import HOLE, MatchResult, compile_glob

DEPTH_MAX = 64


@dataclass(frozen=True, slots=True)
class NormalPath:
    """A path without detours: `/a/b` from the top, or from some folder, or from above it."""

    absolute: bool
    levels_above: int
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        return "/.." * self.levels_above + "".join(f"/{name}" for name in self.names)


def parse_path(path: str) -> NormalPath:
    absolute, above, names = path.startswith("/"), 0, list[str]()
    for name in path.split("/"):
        if name in {"", "."}:
            continue
        if name != "..":
            names.append(name)
        elif names:
            names.pop()
        elif not absolute:
            above += 1
    return NormalPath(absolute, above, tuple(names))


def simplify_path(path: str) -> str:
    """The shortest spelling of a path."""
    found = parse_path(path)
    return found.text or "/" if found.absolute else found.text.removeprefix("/") or "."


def match_path(pattern: str, path: str, root: str | None = None) -> MatchResult:
    """Whether a path is one that the pattern means. `root`: where relative paths begin."""
    spellings = {path, path.replace("\\", "/"), *_expand_home(path)}
    odd = len(spellings) > 1 or path != path.strip() or not path.isprintable()
    patterns = {pattern, *_expand_home(pattern)}
    found = max(_match_spelling(one, spelled, root) for one in patterns for spelled in spellings)
    return min(found, MatchResult.MAYBE) if odd else found


def _expand_home(path: str) -> list[str]:
    """What a path with `~` may mean."""
    if not path.startswith("~"):
        return []
    user, slash, rest = path.partition("/")
    home = str(Path.home()) if user == "~" else f"/{HOLE}"
    return [f"{home}{slash}{rest}"]


def _match_spelling(pattern: str, path: str, root: str | None) -> MatchResult:
    wanted, given = parse_path(pattern), parse_path(path)
    if root is not None:
        given = _resolve_from_root(root, given, absolute=wanted.absolute)
    compiled = compile_glob(wanted.text, "/")
    if wanted.absolute == given.absolute and wanted.levels_above == given.levels_above:
        return compiled.match(given.text)
    if wanted.absolute:
        start = HOLE if given.levels_above else str(Path.cwd())
        return min(MatchResult.MAYBE, compiled.match("/".join((start, *given.names))))
    if root is not None and given.absolute:
        return MatchResult.NO  # It was looked at from the root, and lies elsewhere.
    if len(given.names) > DEPTH_MAX:
        return MatchResult.MAYBE
    tails = ("".join(f"/{name}" for name in given.names[at:]) for at in range(len(given.names) + 1))
    inside = compile_glob("".join(f"/{name}" for name in wanted.names), "/")
    return min(MatchResult.MAYBE, max(inside.match(tail) for tail in tails))


def _resolve_from_root(root: str, given: NormalPath, *, absolute: bool) -> NormalPath:
    """The same place, told as the rule tells it: absolute, or relative to the root if below it."""
    whole = given if given.absolute else parse_path(f"{root}/{given.text}")
    base = parse_path(root).names
    if absolute or whole.names[: len(base)] != base:
        return NormalPath(absolute=True, levels_above=0, names=whole.names)
    return NormalPath(absolute=False, levels_above=0, names=whole.names[len(base) :])
