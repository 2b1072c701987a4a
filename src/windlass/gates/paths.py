"""Paths, as rules see them: by their names alone, with every detour taken out.

The law: a path is judged by where it leads, not by how it is spelled. What the spelling does not
tell (a home folder, a backslash, an absolute path where the rule has a relative one) is a MAYBE; so
is what leads there from the folder that this process runs in, unless a root is given.
Links are not followed here: the tools' own workspace does that.
"""

from dataclasses import dataclass
from pathlib import Path

from windlass.gates.globs import HOLE, Match, glob

DEPTH_MAX = 64


@dataclass(frozen=True, slots=True)
class Spot:
    """A path without detours: `/a/b` from the top, or from some folder, or from above it."""

    absolute: bool
    above: int
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        return "/.." * self.above + "".join(f"/{name}" for name in self.names)


def spot(path: str) -> Spot:
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
    return Spot(absolute, above, tuple(names))


def plain(path: str) -> str:
    """The shortest spelling of a path."""
    found = spot(path)
    return found.text or "/" if found.absolute else found.text.removeprefix("/") or "."


def match_path(pattern: str, path: str, root: str | None = None) -> Match:
    """Whether a path is one that the pattern means. `root`: where relative paths begin."""
    spellings = {path, path.replace("\\", "/"), *_at_home(path)}
    odd = len(spellings) > 1 or path != path.strip() or not path.isprintable()
    patterns = {pattern, *_at_home(pattern)}
    found = max(_match(one, spelled, root) for one in patterns for spelled in spellings)
    return min(found, Match.MAYBE) if odd else found


def _at_home(path: str) -> list[str]:
    """What a path with `~` may mean."""
    if not path.startswith("~"):
        return []
    user, slash, rest = path.partition("/")
    home = str(Path.home()) if user == "~" else f"/{HOLE}"
    return [f"{home}{slash}{rest}"]


def _match(pattern: str, path: str, root: str | None) -> Match:
    wanted, given = spot(pattern), spot(path)
    if root is not None:
        given = _seen_from(root, given, absolute=wanted.absolute)
    compiled = glob(wanted.text, "/")
    if wanted.absolute == given.absolute and wanted.above == given.above:
        return compiled.match(given.text)
    if wanted.absolute:
        start = HOLE if given.above else str(Path.cwd())
        return min(Match.MAYBE, compiled.match("/".join((start, *given.names))))
    if root is not None and given.absolute:
        return Match.NO  # It was looked at from the root, and lies elsewhere.
    if len(given.names) > DEPTH_MAX:
        return Match.MAYBE
    tails = ("".join(f"/{name}" for name in given.names[at:]) for at in range(len(given.names) + 1))
    inside = glob("".join(f"/{name}" for name in wanted.names), "/")
    return min(Match.MAYBE, max(inside.match(tail) for tail in tails))


def _seen_from(root: str, given: Spot, *, absolute: bool) -> Spot:
    """The same place, told as the rule tells it: absolute, or relative to the root if below it."""
    whole = given if given.absolute else spot(f"{root}/{given.text}")
    base = spot(root).names
    if absolute or whole.names[: len(base)] != base:
        return Spot(absolute=True, above=0, names=whole.names)
    return Spot(absolute=False, above=0, names=whole.names[len(base) :])
