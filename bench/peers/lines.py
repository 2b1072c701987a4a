"""Lines of the comparison, and how they are told: as text, and as a table of a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from statistics import linear_regression

WINDLASS = "windlass"
NONE = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureLine:
    """One measure of all contestants; less is better wherever there is a ratio."""

    name: str
    unit: str = ""
    values: Mapping[str, float | None]
    """None: tried, and no number came of it."""
    words: Mapping[str, str] = field(default_factory=dict)
    """What is said in place of a number, or beside it."""
    ratio: bool = True

    def format_cell(self, peer: str) -> str:
        value, word = self.values.get(peer), self.words.get(peer, "")
        if value is None:
            return word or ("failed" if peer in self.values else NONE)
        told = format_number(value)
        base = self.values.get(WINDLASS)
        if self.ratio and base and peer != WINDLASS:
            told += f" ({format_number(value / base)}{TIMES})"
        return f"{told} {word}".rstrip()


def format_number(value: float) -> str:
    """Three figures that count, or whole numbers above a hundred."""
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
    """How the total grows with the size: 1 is in step with it, 2 with its square."""
    return linear_regression([log(n) for n in sizes], [log(total) for total in totals]).slope
