"""A part of a page that a program writes: it stands between two marks that say its name."""

from pathlib import Path


def fill_section(page: Path, name: str, text: str) -> None:
    """Put the text between the marks of this name; everything else stays as it is."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, mark, rest = page.read_text("utf-8").partition(begin)
    if not mark:
        return
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", "utf-8")
