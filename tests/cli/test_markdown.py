"""Markdown as it streams: however it is cut into pieces, the page is the same."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.cli.markdown.stream import MarkdownStream
from windlass.cli.screen import Screen

SAMPLE = """\
# A heading

Some **strong** words and `code_with_*stars*`, and 2 ** 3 and a*b*c.

- one is a long item that must wrap at the width of the page, behind its bullet
  - two
1. first
> said

```python
x = {"a": 1}    # kept as it is, however long the line may be: it is wrapped behind its indentation
    indented
```
| a | b |
|---|---|
| 1 | a **longer** cell, which has to wrap |
After.
"""


def shown(*pieces: str, styled: bool = False, width: int = 40) -> str:
    file = io.StringIO()
    screen = Screen(file, width=width)
    screen.styled = styled
    page = MarkdownStream(screen)
    for piece in pieces:
        page.feed(piece)
    page.end_reply()
    return file.getvalue()


def test_the_signs_are_gone_and_lines_wrap() -> None:
    assert [line.rstrip() for line in shown(SAMPLE).splitlines()] == [
        "A heading",
        "",
        "Some strong words and code_with_*stars*,",
        "and 2 ** 3 and a*b*c.",
        "",
        "• one is a long item that must wrap at",
        "  the width of the page, behind its",
        "  bullet",
        "  • two",
        "1. first",
        "> said",
        "",
        '  x = {"a": 1}    # kept as it is,',
        "    however long the line may be: it is",
        "    wrapped behind its indentation",
        "      indented",
        "a  b",
        "─  ────────────────────────────────",
        "1  a longer cell, which has to wrap",
        "After.",
    ]


@given(st.lists(st.integers(1, 12), min_size=1))
def test_however_it_is_cut_the_page_is_the_same(sizes: list[int]) -> None:
    pieces, at = list[str](), 0
    while at < len(SAMPLE):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(SAMPLE[at : at + size])
        at += size
    assert shown(*pieces) == shown(SAMPLE)


@given(st.text("*`#->|_~[]()!\\ \n12.ab"))
def test_no_text_is_lost_whatever_it_is(text: str) -> None:
    """Signs may go; letters and numbers stay, in their order."""
    said = re.sub(r"[^ab]", "", text)
    assert re.sub(r"[^ab]", "", shown(*text)) == said


@pytest.mark.parametrize(
    ("text", "style"),
    [
        ("**a**", "bold"),
        ("*a*", "italic"),
        ("_a_", "italic"),
        ("***a***", "bold italic"),
        ("~~a~~", "strike"),
        ("`a`", "cyan"),
        ("# a", "bold cyan"),
        ("[a](b)", "underline"),
    ],
)
def test_what_is_marked_has_a_style(text: str, style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[tuple[str, str]]()
    monkeypatch.setattr(
        Screen, "stream_text", lambda _self, text, style="": seen.append((text, style))
    )
    shown(text)
    assert ("a", style) in seen


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ("[words](https://a.b/c_(d)) go on", "words (https://a.b/c_(d)) go on"),
        ("<[https://a.b](https://a.b)>", "<https://a.b>"),
        ("![A cat](cat.png)", "[image: A cat]"),
        ("![](cat.png)", "[image: cat.png]"),
        ("snake_case_name and 2**3 and 2 * 3 * 4", "snake_case_name and 2**3 and 2 * 3 * 4"),
        ("\\*not\\* emphasis", "*not* emphasis"),
        ("[not a link] (really)", "[not a link] (really)"),
        ("``a ` b``", "a ` b"),
    ],
)
def test_links_images_and_what_only_looks_like_a_mark(text: str, page: str) -> None:
    """U2: links show where they lead, and images their names."""
    assert shown(*text, width=60) == f"{page}\n"


def test_lists_keep_their_depth_and_a_wrapped_line_stands_behind_its_mark() -> None:
    text = "- one\n  - two, which is long enough to wrap\n    1. three\n"
    assert shown(text, width=30).splitlines() == [
        "• one",
        "  • two, which is long enough",
        "    to wrap",
        "    1. three",
    ]


def test_a_table_is_laid_out_for_the_page_and_keeps_every_word() -> None:
    """U2."""
    text = "| a | number |\n|---|---:|\n| x \\| **y** | 1 |\n| some long words here | 23 |\n"
    assert shown(*text, width=20).splitlines() == [
        "a             number",
        "────────────  ──────",
        "x | y              1",
        "some long         23",
        "words here",
    ]
    assert shown("| not a table\nsaid |\n").splitlines() == ["| not a table", "said |"]


def test_code_is_coloured_by_its_language_and_a_text_over_several_lines_stays_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = list[tuple[str, str]]()
    monkeypatch.setattr(
        Screen, "write_verbatim", lambda _self, text, style="": seen.append((text, style))
    )
    shown('```python\ndef f():\n    """One\n    two."""\n```\n')
    assert ("def", "magenta") in seen
    assert ("f", "blue") in seen
    assert ("    two.", "green") in seen or ('    two."""', "green") in seen
    seen.clear()
    shown("```nonsense\ndef f():\n```\n")
    assert ("def f():", "cyan") in seen
