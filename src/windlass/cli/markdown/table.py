"""Tables of Markdown, laid out for the width of the page."""

import re
from collections.abc import Sequence
from itertools import zip_longest

from rich.cells import cell_len

from windlass.cli.markdown.inline import FAINT, STRONG, strip_marks
from windlass.cli.screen import Screen
from windlass.cli.wrapping import wrap_cells

COLUMN_MIN = 6
GAP = "  "

_CELL_END = re.compile(r"(?<!\\)\|")
_RULE_CELL = re.compile(r":?-+:?")


class TableRows:
    """The lines of a table, until it is complete."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def show(self, screen: Screen) -> None:
        """Write the table, or the lines as they are if they are not one."""
        lines = self.lines
        self.lines = []
        rows = [_split_cells(line) for line in lines]
        if len(rows) < 2 or not all(map(_RULE_CELL.fullmatch, rows[1])):  # noqa: PLR2004 - a head
            for line in lines:
                screen.stream_text(line)
                screen.start_new_line()
            return
        head, rule, *body = rows
        to_right = [cell.endswith(":") and not cell.startswith(":") for cell in rule]
        table = [[strip_marks(cell) for cell in row] for row in (head, *body)]
        widths = _fit_widths(table, screen.width)
        _show_row(screen, table[0], widths, to_right, STRONG)
        bar = "-" if screen.glyphs.bar == "|" else "─"
        screen.write_verbatim(GAP.join(bar * width for width in widths), FAINT)
        screen.start_new_line()
        for row in table[1:]:
            _show_row(screen, row, widths, to_right, "")


def _split_cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    return [cell.strip().replace("\\|", "|") for cell in _CELL_END.split(inner)]


def _fit_widths(table: Sequence[Sequence[str]], room: int) -> list[int]:
    """The width of each column: as wide as its cells, or less if the page is narrow."""
    columns = list(zip_longest(*table, fillvalue=""))
    widths = [max(map(cell_len, column), default=0) or 1 for column in columns]
    room = max(room - len(GAP) * (len(widths) - 1), len(widths))
    while sum(widths) > room and max(widths) > COLUMN_MIN:
        widths[widths.index(max(widths))] -= 1
    return widths


def _show_row(
    screen: Screen, row: Sequence[str], widths: Sequence[int], to_right: Sequence[bool], style: str
) -> None:
    wrapped = [wrap_cells(cell, width) or [""] for cell, width in zip(row, widths, strict=False)]
    for lines in zip_longest(*wrapped, fillvalue=""):
        cells: list[str] = []
        for at, text in enumerate(lines):
            space = " " * (widths[at] - cell_len(text))
            cells.append(space + text if at < len(to_right) and to_right[at] else text + space)
        screen.write_verbatim(GAP.join(cells).rstrip(), style)
        screen.start_new_line()
