"""Edits that would fill the memory or keep the interpreter busy (T13)."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from windlass.core.errors import ModelRetry
from windlass.tools.files.edits import Edit, apply_edits, build_diff, edit_state

SECONDS_MAX = 2.0


@contextmanager
def takes_no_time() -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < SECONDS_MAX


@pytest.mark.contract("T13")
def test_edits_that_multiply_one_another_are_refused() -> None:
    """Five edits of 60 characters would make 10**15 characters of one."""
    edits = [
        Edit(old, new * 1_000, replace_all=True)
        for old, new in [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "f")]
    ]
    with takes_no_time():
        with pytest.raises(ModelRetry, match=r"Edit 3 of 5: the file would have more than"):
            apply_edits("a", edits)
        assert edit_state("a", edits) == "unknown"


@pytest.mark.contract("T13")
def test_too_many_edits_are_refused() -> None:
    edits = [Edit("a", "b"), Edit("b", "a")] * 1_000
    with takes_no_time(), pytest.raises(ModelRetry, match="too many for one call"):
        apply_edits("a", edits)


@pytest.mark.contract("T13")
@pytest.mark.parametrize("last", ["b", "a"])
def test_a_long_text_that_is_missing_is_explained_in_linear_time(last: str) -> None:
    text = "a\t" * 200_000
    old = "a " * 20_000 + last
    with takes_no_time(), pytest.raises(ModelRetry, match="`old` was not found"):
        apply_edits(text, [Edit(old, "x")])


def test_a_text_that_differs_in_white_space_is_still_found() -> None:
    text = "one\n\ntwo  three\n    four\tfive six\n"
    with pytest.raises(ModelRetry, match="Line 3 differs from it only in white space"):
        apply_edits(text, [Edit("two three\nfour five", "x")])
    with pytest.raises(ModelRetry, match="Line 4 differs from it only in white space"):
        apply_edits(text, [Edit("ive  six", "x")])
    with pytest.raises(ModelRetry, match="Read the file again"):
        apply_edits(text, [Edit("five seven", "x")])


@pytest.mark.contract("T13")
def test_a_diff_of_the_same_few_lines_takes_no_time() -> None:
    before = "\n".join(str(at % 150) for at in range(9_000))
    after = "\n".join(str(at * 7 % 150) for at in range(9_000))
    with takes_no_time():
        assert build_diff(before, f"{after}\nend", "a").startswith("[diff too long to show")
