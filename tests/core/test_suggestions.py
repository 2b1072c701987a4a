"""Near names, for whoever mistyped one."""

import pytest

from windlass.core.suggestions import find_near_names, suggest_names

TOOLS = ["read_file", "write_file", "grep", "bash"]


def test_the_nearest_comes_first() -> None:
    """T7: unknown tool, with near names."""
    assert find_near_names("read_fil", TOOLS)[0] == "read_file"


@pytest.mark.parametrize("name", ["READ_FILE", "Read_File"])
def test_capitals_do_not_matter(name: str) -> None:
    assert find_near_names(name, TOOLS)[0] == "read_file"


def test_the_known_spelling_is_told() -> None:
    assert find_near_names("readfile", ["ReadFile"]) == ["ReadFile"]


def test_at_most_three_are_near() -> None:
    assert len(find_near_names("tool", [f"tool{at}" for at in range(9)])) == 3


def test_nothing_is_near_to_nonsense() -> None:
    assert find_near_names("xyzzy", TOOLS) == []
    assert find_near_names("", TOOLS) == []


def test_names_that_differ_in_capitals_are_both_near() -> None:
    assert set(find_near_names("read", ["Read", "READ"])) == {"Read", "READ"}


def test_a_sentence_names_what_is_near() -> None:
    assert suggest_names("bsh", TOOLS) == " Did you mean bash?"
    assert " or " in suggest_names("file", ["file1", "file2"])


def test_without_a_near_name_all_are_told_up_to_a_bound() -> None:
    names = iter(f"tool{at}" for at in range(100))
    told = suggest_names("xyzzy", names)
    assert told.startswith(" Known: tool0, ")
    assert told.endswith("tool19.")


def test_where_nothing_is_known_nothing_is_told() -> None:
    assert suggest_names("xyzzy", []) == ""
