"""The head of a Markdown file: the part of YAML that is text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.knowledge.front_matter import MalformedFrontMatter, split_front_matter

pytestmark = pytest.mark.contract("X5")

HEAD = """---
name: pdf-forms # a comment
description: >-
  Fill in forms.
  Use it for PDF files.

  And more.
literal: |
  one
    two

  three
'quoted key': 'it''s'
double: "a\\tb \\u00e9 \\"c\\""
plain: Use when: asked
over lines: one
  two
empty:
below:
  words below
# a comment
license: 'MIT'
metadata:
  author: someone
allowed-tools:
- read
- bash
flow: [a, b]
---
# Body
---
"""


def test_what_is_text_is_read() -> None:
    values, body = split_front_matter(HEAD)
    assert values == {
        "name": "pdf-forms",
        "description": "Fill in forms. Use it for PDF files.\nAnd more.",
        "literal": "one\n  two\n\nthree\n",
        "quoted key": "it's",
        "double": 'a\tb é "c"',
        "plain": "Use when: asked",
        "over lines": "one two",
        "empty": "",
        "below": "words below",
        "license": "MIT",
    }
    assert body == "# Body\n---\n"


def test_no_head_is_no_values() -> None:
    assert split_front_matter("# Body\n---\nname: x\n---\n") == ({}, "# Body\n---\nname: x\n---\n")


def test_lines_may_end_as_they_like() -> None:
    assert split_front_matter("\ufeff---\r\nname: a\r\n---\r\nbody") == ({"name": "a"}, "body")


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ("name: a", "does not end"),
        ("just words\n---", "line 2 is not"),
        ("  name: a\n---", "line 2 is not"),
        ("name: a\nname: b\n---", "line 3 repeats 'name'"),
        ("name: 'a\n---", "quoted text"),
        ('name: "a" b\n---', "quoted text"),
        ('name: "\\q"\n---', "not an escape"),
        ('name: "\\ud800"\n---', "not a character"),
        ('name: "\\U00110000"\n---', "not a character"),
        ("name: |\n\ta\n---", "tab"),
        ("name: |\n    a\n  b\n---", "different indents"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_line(head: str, why: str) -> None:
    with pytest.raises(MalformedFrontMatter, match=why):
        split_front_matter(f"---\n{head}")


@pytest.mark.timeout(10)
@pytest.mark.parametrize("line", ["a" + " " * 100_000 + "b", "a: b" + " " * 100_000 + "c"])
def test_one_long_line_is_read_once(line: str) -> None:
    with pytest.raises(MalformedFrontMatter):
        split_front_matter(f"---\n{line}\n'\n---\n")


@given(st.text(st.characters(codec="utf-8")))
def test_what_is_quoted_comes_back_as_it_was(value: str) -> None:
    """JSON's way to quote a text is YAML's, too."""
    text = f"---\nvalue: {json.dumps(value, ensure_ascii=False)}\n---\n"
    assert split_front_matter(text) == ({"value": value}, "")


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\n\v\f\x1c\x1d\x1e\x85")))
def test_what_is_in_single_quotes_comes_back_as_it_was(value: str) -> None:
    quoted = value.replace("'", "''")
    assert split_front_matter(f"---\nvalue: '{quoted}'\n---\n")[0] == {"value": value}


@given(
    st.text(alphabet="ab:-#>|'\"\\ \t\n[]{}&*!u0", max_size=80),
    st.sampled_from(["---\n", "---\nname: ", "---\nname: |\n"]),
)
def test_any_head_is_read_or_refused_in_one_line(text: str, start: str) -> None:
    told = ""
    try:
        values, body = split_front_matter(f"{start}{text}\n---\nbody")
        assert all(isinstance(value, str) for value in values.values())
        assert body.endswith("body")
    except MalformedFrontMatter as error:
        told = str(error)
    assert "\n" not in told
