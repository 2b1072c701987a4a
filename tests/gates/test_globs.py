"""Globs with holes: certain, perhaps, or not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.gates.globs import (
    HOLE,
    QUOTED_SPACE,
    STAR_BARRIER,
    TEXT_CHARS_MAX,
    GlobPattern,
    MatchResult,
    compile_glob,
    printable_text,
)

YES, MAYBE, NO = MatchResult.YES, MatchResult.MAYBE, MatchResult.NO


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("git status*", "git status -s", YES),
        ("git status*", "git statu", NO),
        ("git status*", "GIT STATUS", MAYBE),
        ("*", "", YES),
        ("", "", YES),
        ("", "x", NO),
        ("a*a", "a", NO),
        ("a*b*c", "aXbYc", YES),
        ("a?c", "abc", YES),
        ("a?c", "ac", NO),
        ("git status*", f"git {HOLE}", MAYBE),
        ("git *", f"git {HOLE}", YES),
        ("git ?", f"git {HOLE}", MAYBE),
        ("rm *", f"git {HOLE}", NO),
        ("rm *", f"{HOLE} x", MAYBE),
        ("rm *", f"r{HOLE}", MAYBE),
        ("a b", f"a{QUOTED_SPACE}b", MAYBE),
        ("a*b", f"a{QUOTED_SPACE}b", YES),
        ("sudo apt*", f"sudo {STAR_BARRIER}apt update", YES),
        ("sudo *", f"sudo {STAR_BARRIER}apt update", MAYBE),
        ("x*", f"x{HOLE}" * 5, YES),
    ],
)
def test_a_text_is_matched(pattern: str, text: str, found: MatchResult) -> None:
    assert compile_glob(pattern).match(text) is found


def test_a_text_that_is_too_long_to_walk_might_match() -> None:
    long = "a" * (TEXT_CHARS_MAX + 1)
    assert compile_glob("a*b").match(long) is NO, "plain texts are not walked"
    assert compile_glob("a*b").match(long + HOLE) is MAYBE
    assert compile_glob("a?*").match(long) is MAYBE


def test_the_cost_does_not_explode() -> None:
    """A pattern of many stars would take a backtracking matcher for ever."""
    assert GlobPattern("*a" * 30 + "*b").match("a" * 5_000) is NO
    assert GlobPattern("*a?" * 30 + "*b").match("a" * 5_000) is NO


TEXTS = st.text("ab /", max_size=8)
PATTERNS = st.text("ab /*?", max_size=8)


def as_regex(pattern: str) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(c, re.escape(c)) for c in pattern), re.DOTALL)


@given(PATTERNS, TEXTS)
def test_it_agrees_with_a_regex(pattern: str, text: str) -> None:
    assert (compile_glob(pattern).match(text) is YES) == bool(as_regex(pattern).fullmatch(text))


@given(PATTERNS, TEXTS, TEXTS, TEXTS)
def test_what_stands_in_a_hole_changes_nothing_that_is_certain(
    pattern: str, before: str, inside: str, after: str
) -> None:
    with_hole, filled = compile_glob(pattern).match(before + HOLE + after), before + inside + after
    if with_hole is not MAYBE:
        assert compile_glob(pattern).match(filled) is with_hole


@given(PATTERNS, TEXTS, TEXTS)
def test_a_seal_never_lets_more_through(pattern: str, before: str, after: str) -> None:
    assert compile_glob(pattern).match(before + STAR_BARRIER + after) <= compile_glob(
        pattern
    ).match(before + after)


def test_marks_are_not_shown() -> None:
    assert printable_text(f"a{QUOTED_SPACE}b {STAR_BARRIER}c{HOLE}\n\x1b[0m") == "a b c… ?[0m"
    assert printable_text("x" * 500, 10) == "x" * 9 + "…"
