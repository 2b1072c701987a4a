"""A section of a page that a program writes, between two marks with its name."""

from pathlib import Path


def fill_section(page: Path, name: str, text: str) -> None:
    """Replace the text between the marks of this name. A page without the marks is left alone."""
    begin = f"<!-- {name}: begin -->"
    end = f"<!-- {name}: end -->"
    before, mark, rest = page.read_text("utf-8").partition(begin)
    if not mark:
        return
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", "utf-8")
