"""Patterns for files that were made to cost time."""

import pytest

from windlass.tools.files import file_globs
from windlass.tools.files.file_globs import FileGlob


@pytest.mark.contract("T3")
def test_many_double_stars_cost_as_much_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: each step of the pattern is looked at once for each name of a path."""
    looks = 0
    reachable = file_globs._reachable_steps

    def count(steps: list[object], position: int) -> list[int]:
        nonlocal looks
        found = list(reachable(steps, position))  # type: ignore[arg-type]
        looks += len(found)
        return found

    monkeypatch.setattr(file_globs, "_reachable_steps", count)
    names = 99
    glob = FileGlob("**/" * 330 + "x")
    assert not glob.matches_path("a/" * names + "y")
    assert looks <= 10 * names
    assert glob.matches_path("a/" * names + "x")
    assert glob.matches_path("x")


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("**/**", "a/b", True),
        ("a/**/**/b", "a/b", True),
        ("a/**/**/b", "a/c/d/b", True),
        ("a/**/*/**/b", "a/b", False),
        ("**/**/*.py", "x.py", True),
    ],
)
def test_double_stars_in_a_row_mean_one(pattern: str, path: str, matches: bool) -> None:  # noqa: FBT001 - a parameter of the table
    assert FileGlob(pattern).matches_path(path) is matches
