"""Plots of a report as SVG: drawn by hand, with nothing to load and nothing that runs."""

from collections.abc import Sequence
from html import escape
from typing import TypeAlias

from windlass.evaluation.statistics import Interval

ROW_HEIGHT = 22
LABEL_WIDTH = 220
PLOT_WIDTH = 420
VALUE_WIDTH = 150
LABEL_CHARS = 32
DOT = 4.5

PlotRow: TypeAlias = tuple[str, float, Interval, str]
"""A label, a value with its interval, and words behind them."""


def plot_rates(rows: Sequence[PlotRow], title: str) -> str:
    """Return a plot of rates between 0 and 1, each with its interval."""
    parts = [_grid(len(rows), [(step / 4, f"{step * 25} %") for step in range(5)])]
    for at, (label, rate, interval, words) in enumerate(rows):
        parts.append(_row(at, label, (rate, interval.low, interval.high), words, "rate"))
    return _picture(parts, len(rows), title)


def plot_differences(rows: Sequence[PlotRow], title: str) -> str:
    """Return a plot of differences between -1 and 1, each with its interval."""
    marks = [(0.0, "-100 %"), (0.25, "-50 %"), (0.5, "0"), (0.75, "+50 %"), (1.0, "+100 %")]
    parts = [_grid(len(rows), marks)]
    for at, (label, difference, interval, words) in enumerate(rows):
        kind = "better" if interval.low > 0 else "worse" if interval.high < 0 else "same"
        values = (_half(difference), _half(interval.low), _half(interval.high))
        parts.append(_row(at, label, values, words, kind))
    return _picture(parts, len(rows), title)


def plot_values(rows: Sequence[tuple[str, Sequence[float]]], title: str, unit: str) -> str:
    """Return a dot for each trial of each case, on a scale from zero to the largest value."""
    largest = max((value for _, values in rows for value in values), default=0.0) or 1.0
    marks = [(step / 4, f"{largest * step / 4:.3g} {unit}") for step in range(5)]
    parts = [_grid(len(rows), marks)]
    for at, (label, values) in enumerate(rows):
        middle = _middle(at)
        parts.append(_label(at, label))
        parts += [
            f'<circle class="dot" cx="{_x(value / largest):.1f}" cy="{middle}" r="3.5">'
            f"<title>{escape(f'{label}: {value:.4g} {unit}')}</title></circle>"
            for value in values
        ]
    return _picture(parts, len(rows), title)


def _half(difference: float) -> float:
    return (max(-1.0, min(1.0, difference)) + 1) / 2


def _x(share: float) -> float:
    return LABEL_WIDTH + max(0.0, min(1.0, share)) * PLOT_WIDTH


def _middle(at: int) -> float:
    return at * ROW_HEIGHT + ROW_HEIGHT / 2


def _label(at: int, label: str) -> str:
    shown = label if len(label) <= LABEL_CHARS else f"{label[: LABEL_CHARS - 1]}…"
    return (
        f'<text class="label" x="{LABEL_WIDTH - 10}" y="{_middle(at) + 4}">'
        f"{escape(shown)}<title>{escape(label)}</title></text>"
    )


def _row(at: int, label: str, values: tuple[float, float, float], words: str, kind: str) -> str:
    value, low, high = values
    middle = _middle(at)
    return (
        f'{_label(at, label)}<line class="interval {kind}" x1="{_x(low):.1f}" y1="{middle}" '
        f'x2="{_x(high):.1f}" y2="{middle}"/>'
        f'<circle class="point {kind}" cx="{_x(value):.1f}" cy="{middle}" r="{DOT}"/>'
        f'<text class="words" x="{LABEL_WIDTH + PLOT_WIDTH + 12}" y="{middle + 4}">'
        f"{escape(words)}</text>"
    )


def _grid(rows: int, marks: Sequence[tuple[float, str]]) -> str:
    bottom = rows * ROW_HEIGHT
    lines = (
        f'<line class="grid" x1="{_x(share):.1f}" y1="0" x2="{_x(share):.1f}" y2="{bottom}"/>'
        f'<text class="mark" x="{_x(share):.1f}" y="{bottom + 16}">{escape(text)}</text>'
        for share, text in marks
    )
    return "".join(lines)


def _picture(parts: Sequence[str], rows: int, title: str) -> str:
    width = LABEL_WIDTH + PLOT_WIDTH + VALUE_WIDTH
    height = rows * ROW_HEIGHT + 24
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )
