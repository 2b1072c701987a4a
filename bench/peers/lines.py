"""Lines of the comparison, and their table in Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from statistics import linear_regression

WINDLASS = "windlass"
NONE = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureLine:
    """One measure of all contestants. Where there is a ratio, less is better."""

    name: str
    unit: str = ""
    values: Mapping[str, float | None]
    """None: it was tried, and there is no number."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Text instead of a number, or beside it."""
    ratio: bool = True

    def format_cell(self, peer: str) -> str:
        value = self.values.get(peer)
        word = self.words.get(peer, "")
        if value is None:
            return word or ("failed" if peer in self.values else NONE)
        cell = format_number(value)
        base = self.values.get(WINDLASS)
        if self.ratio and base and peer != WINDLASS:
            cell += f" ({format_number(value / base)}{TIMES})"
        return f"{cell} {word}".rstrip()


def format_number(value: float) -> str:
    """Format with three significant figures; above a hundred as a whole number."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def markdown_table(
    lines: Sequence[MeasureLine], peers: Sequence[str], names: Mapping[str, str]
) -> str:
    head = ["", *(names[peer] for peer in peers)]
    rows = [head, ["---", *("---:" for _ in peers)]]
    for line in lines:
        name = f"{line.name}, {line.unit}" if line.unit else line.name
        rows.append([name, *(line.format_cell(peer) for peer in peers)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def growth_exponent(sizes: Sequence[int], totals: Sequence[float]) -> float:
    """Return the exponent of growth: 1 is linear in the size, 2 quadratic."""
    return linear_regression([log(n) for n in sizes], [log(total) for total in totals]).slope
