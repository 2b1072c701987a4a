"""Markdown as it streams: however it is cut into pieces, the page is the same."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.cli.markdown import MarkdownStream
from windlass.cli.screen import Screen

SAMPLE = """\
# A heading

Some **strong** words and `code_with_*stars*`, and 2 ** 3 and a*b*c.

- one is a long item that must wrap at the width of the page, behind its bullet
  - two
1. first
> said

```python
x = {"a": 1}    # kept as it is, however long the line may be: it is not wrapped at all
    indented
```
| a | b |
|---|---|
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
    assert shown(SAMPLE).splitlines() == [
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
        '  x = {"a": 1}    # kept as it is, however long the line may be: it is not wrapped at all',
        "      indented",
        "| a | b |",
        "|---|---|",
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


@given(st.text("*`#->| \n12.ab"))
def test_no_text_is_lost_whatever_it_is(text: str) -> None:
    """Signs may go; letters and numbers stay, in their order."""
    said = re.sub(r"[^ab]", "", text)
    assert re.sub(r"[^ab]", "", shown(*text)) == said


@pytest.mark.parametrize(
    ("text", "style"),
    [("**a**", "bold"), ("`a`", "cyan"), ("# a", "bold cyan")],
)
def test_what_is_marked_has_a_style(text: str, style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[tuple[str, str]]()
    monkeypatch.setattr(
        Screen, "stream_text", lambda _self, text, style="": seen.append((text, style))
    )
    shown(text)
    assert ("a", style) in seen
