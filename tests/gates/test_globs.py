"""Globs with holes: certain, perhaps, or not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.gates.globs import BLANK, HOLE, SEAL, TEXT_CHARS_MAX, Glob, Match, glob, shown

YES, MAYBE, NO = Match.YES, Match.MAYBE, Match.NO


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
        ("a b", f"a{BLANK}b", MAYBE),
        ("a*b", f"a{BLANK}b", YES),
        ("sudo apt*", f"sudo {SEAL}apt update", YES),
        ("sudo *", f"sudo {SEAL}apt update", MAYBE),
        ("x*", f"x{HOLE}" * 5, YES),
    ],
)
def test_a_text_is_matched(pattern: str, text: str, found: Match) -> None:
    assert glob(pattern).match(text) is found


def test_a_text_that_is_too_long_to_walk_might_match() -> None:
    long = "a" * (TEXT_CHARS_MAX + 1)
    assert glob("a*b").match(long) is NO, "plain texts are not walked"
    assert glob("a*b").match(long + HOLE) is MAYBE
    assert glob("a?*").match(long) is MAYBE


def test_the_cost_does_not_explode() -> None:
    """A pattern of many stars would take a backtracking matcher for ever."""
    assert Glob("*a" * 30 + "*b").match("a" * 5_000) is NO
    assert Glob("*a?" * 30 + "*b").match("a" * 5_000) is NO


TEXTS = st.text("ab /", max_size=8)
PATTERNS = st.text("ab /*?", max_size=8)


def as_regex(pattern: str) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(c, re.escape(c)) for c in pattern), re.DOTALL)


@given(PATTERNS, TEXTS)
def test_it_agrees_with_a_regex(pattern: str, text: str) -> None:
    assert (glob(pattern).match(text) is YES) == bool(as_regex(pattern).fullmatch(text))


@given(PATTERNS, TEXTS, TEXTS, TEXTS)
def test_what_stands_in_a_hole_changes_nothing_that_is_certain(
    pattern: str, before: str, inside: str, after: str
) -> None:
    with_hole, filled = glob(pattern).match(before + HOLE + after), before + inside + after
    if with_hole is not MAYBE:
        assert glob(pattern).match(filled) is with_hole


@given(PATTERNS, TEXTS, TEXTS)
def test_a_seal_never_lets_more_through(pattern: str, before: str, after: str) -> None:
    assert glob(pattern).match(before + SEAL + after) <= glob(pattern).match(before + after)


def test_marks_are_not_shown() -> None:
    assert shown(f"a{BLANK}b {SEAL}c{HOLE}\n\x1b[0m") == "a b c… [0m"
    assert shown("x" * 500, 10) == "x" * 10 + "…"
