"""Pages as text: hostile ones too, and with or without the addresses of their links."""

import pytest

from windlass.html_text import html_to_text


@pytest.mark.parametrize(
    "piece",
    ["<", "<!--", "<!", "<?", "<![CDATA[", "<a b='", "</", "&", "<a ", "<svg>", "<title>x<"],
)
@pytest.mark.slow
def test_a_hostile_page_takes_no_longer_than_another(piece: str) -> None:
    """T13: this would time out if the time grew with the square of the size."""
    html_to_text(piece * (500_000 // len(piece)))


def test_links_are_shown_only_where_they_are_wanted() -> None:
    page = "<p>See <a href='/x'>this</a>.</p>"
    base = "https://a.example/"
    assert html_to_text(page, base) == ("", "See this (https://a.example/x).")
    assert html_to_text(page, base, show_links=False) == ("", "See this.")
