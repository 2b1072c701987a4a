"""Pages that cost more to read than to send (T13)."""

import time

import pytest

from windlass.html_text import html_to_text

pytestmark = pytest.mark.slow

PAGE_CHARS = 2_000_000
SECONDS_MAX = 6.0
"""Of processor time. The worst of them took 20 s before."""
MARKS = ["<", "<pre>", "<\0", "<li>", "<svg>", "x<b>", "<title>a"]


@pytest.mark.contract("T13")
@pytest.mark.parametrize(
    "mark", ["<td>", *(pytest.param(mark, marks=pytest.mark.slow) for mark in MARKS)]
)
def test_a_page_of_nothing_but_tags_is_read_in_time(mark: str) -> None:
    page = "<p>first</p>" + mark * (PAGE_CHARS // len(mark))
    start = time.process_time()
    _, text = html_to_text(page)
    assert time.process_time() - start < SECONDS_MAX
    assert text.startswith("first")
    assert text.endswith("[only the first 150000 tags of the page were read]")


@pytest.mark.contract("T13")
@pytest.mark.parametrize("section", ["<![", "<![<![<![", "<![ x ]>", "<![if IE]>", "<![CDATA[x]]>"])
def test_a_page_with_a_broken_section_is_read(section: str) -> None:
    _, text = html_to_text(f"<p>first {section} </p><p>second</p>>")
    assert text.startswith("first")
