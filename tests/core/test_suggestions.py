"""Near names, for whoever mistyped one."""

import pytest

from windlass.core.suggestions import did_you_mean, near

TOOLS = ["read_file", "write_file", "grep", "bash"]


def test_the_nearest_comes_first() -> None:
    """T7: unknown tool, with near names."""
    assert near("read_fil", TOOLS)[0] == "read_file"


@pytest.mark.parametrize("name", ["READ_FILE", "Read_File"])
def test_capitals_do_not_matter(name: str) -> None:
    assert near(name, TOOLS)[0] == "read_file"


def test_the_known_spelling_is_told() -> None:
    assert near("readfile", ["ReadFile"]) == ["ReadFile"]


def test_at_most_three_are_near() -> None:
    assert len(near("tool", [f"tool{at}" for at in range(9)])) == 3


def test_nothing_is_near_to_nonsense() -> None:
    assert near("xyzzy", TOOLS) == []
    assert near("", TOOLS) == []


def test_names_that_differ_in_capitals_are_both_near() -> None:
    assert set(near("read", ["Read", "READ"])) == {"Read", "READ"}


def test_a_sentence_names_what_is_near() -> None:
    assert did_you_mean("bsh", TOOLS) == " Did you mean bash?"
    assert " or " in did_you_mean("file", ["file1", "file2"])


def test_without_a_near_name_all_are_told_up_to_a_bound() -> None:
    names = iter(f"tool{at}" for at in range(100))
    told = did_you_mean("xyzzy", names)
    assert told.startswith(" Known: tool0, ")
    assert told.endswith("tool19.")


def test_where_nothing_is_known_nothing_is_told() -> None:
    assert did_you_mean("xyzzy", []) == ""
