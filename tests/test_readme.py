"""The README: its figures are those that were measured, and its links work on a package index."""

import re
from pathlib import Path

import pytest

from package_metadata import describe_package

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")
PEERS = (ROOT / "docs" / "peers.md").read_text("utf-8")
LINK = re.compile(r"\[[^]]*\]\(([^)]+)\)")
FIRST_LINES_MAX = 60
"""The example and the picture are among them, so that they are seen first."""


def table_rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def measured() -> dict[str, dict[str, str]]:
    """The figures of the page by row and runtime, without versions and ratios."""
    found: dict[str, dict[str, str]] = {}
    for section in re.findall(r"<!-- (?:\w+): begin -->\n(.*?)<!-- \w+: end -->", PEERS, re.DOTALL):
        rows = table_rows(section)
        if rows:
            names = [name.partition(" ")[0] for name in rows[0]]
            for row in rows[2:]:
                cells = [re.sub(r" \(.*", "", cell) for cell in row]
                found.setdefault(cells[0], dict(zip(names, cells, strict=True)))
    return found


def test_the_figures_are_those_of_the_measurements() -> None:
    table = re.search(r"<!-- peers: begin -->\n(.*?)<!-- peers: end -->", README, re.DOTALL)
    assert table
    names, _, *rows = table_rows(table[1])
    page = measured()
    for label, *cells in rows:
        assert cells == [page[label][name] for name in names[1:]], label


def test_the_example_and_the_picture_come_first() -> None:
    first = "\n".join(README.splitlines()[:FIRST_LINES_MAX])
    assert "docs/img/kill.svg" in first
    assert "```python" in first


def test_links_lead_to_files_of_the_repository() -> None:
    inner = [path.partition("#")[0] for path in LINK.findall(README) if "://" not in path]
    assert [path for path in inner if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("url", ["https://host/owner/windlass", ""])
def test_a_package_index_shows_no_dead_link(url: str) -> None:
    text = describe_package(README, url)
    assert [path for path in LINK.findall(text) if not path.startswith("https://")] == []
    assert ("/raw/main/docs/img/kill.svg" in text) == bool(url)
    assert "a first agent" in text
