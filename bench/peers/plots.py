"""Bar charts and curves as SVG, for the page of the comparison."""

from collections.abc import Mapping, Sequence
from html import escape
from math import log10

from lines import format_number

COLOURS = ("#1b6ca8", "#d1495b", "#edae49", "#66a182", "#8d5a97", "#5c677d", "#c77d3e")
FONT = 'font-family="sans-serif" font-size="12"'
ROW = 24
LEFT = 130
WIDTH = 640
POWERS = [10.0**power for power in range(-3, 6)]


def draw_bars(title: str, unit: str, values: Mapping[str, float | None]) -> str:
    """Draw one bar for each peer on a logarithmic scale, with its number."""
    known = {name: value for name, value in values.items() if value}
    low = min(known.values()) / 3
    span = log10(max(known.values()) / low)
    parts = [_open_svg(WIDTH, ROW * len(known) + 44, f"{title} ({unit}, logarithmic)")]
    for at, (name, value) in enumerate(known.items()):
        top = 34 + at * ROW
        wide = (WIDTH - LEFT - 90) * log10(value / low) / span
        parts.append(_draw_text(LEFT - 8, top + 14, name, anchor="end"))
        size = f'width="{wide:.1f}" height="{ROW - 6}"'
        parts.append(f'<rect x="{LEFT}" y="{top}" {size} fill="{COLOURS[at % len(COLOURS)]}"/>')
        parts.append(_draw_text(LEFT + wide + 6, top + 14, format_number(value)))
    return "\n".join([*parts, "</svg>", ""])


def draw_curves(
    title: str, unit: str, sizes: Sequence[int], values: Mapping[str, Sequence[float | None]]
) -> str:
    """Draw one line for each peer over the sizes. Both axes are logarithmic."""
    whole = {name: [value for value in some if value] for name, some in values.items()}
    drawn = {name: some for name, some in whole.items() if len(some) == len(sizes)}
    flat = [value for some in drawn.values() for value in some]
    low = min(flat) / 1.3
    high = max(flat) * 1.3
    height = 320
    left = 60
    top = 36
    right = 130
    bottom = 40

    def x(size: float) -> float:
        share = log10(size / sizes[0]) / log10(sizes[-1] / sizes[0])
        return left + (WIDTH - left - right) * share

    def y(value: float) -> float:
        return top + (height - top - bottom) * (1 - log10(value / low) / log10(high / low))

    parts = [_open_svg(WIDTH, height, f"{title} ({unit}, both axes logarithmic)")]
    parts += [_draw_text(x(size), height - 16, str(size), anchor="middle") for size in sizes]
    for value in (power for power in POWERS if low <= power <= high):
        across = f'x1="{left}" x2="{WIDTH - right}" y1="{y(value):.1f}" y2="{y(value):.1f}"'
        parts.append(f'<line {across} stroke="#ddd"/>')
        parts.append(_draw_text(left - 6, y(value) + 4, f"{value:g}", anchor="end"))
    colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(values)}
    label = 0.0
    for name, some in sorted(drawn.items(), key=lambda pair: -pair[1][-1]):
        points = " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in zip(sizes, some, strict=True))
        stroke = f'fill="none" stroke="{colours[name]}" stroke-width="2"'
        parts.append(f'<polyline points="{points}" {stroke}/>')
        # Labels stand below one another also where the lines end close together.
        label = max(y(some[-1]) + 4, label + 14)
        parts.append(_draw_text(WIDTH - right + 8, label, name, fill=colours[name]))
    return "\n".join([*parts, "</svg>", ""])


def _draw_text(x: float, y: float, text: str, *, anchor: str = "start", fill: str = "#000") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}"'
    return f"<text {place} {FONT}>{escape(text)}</text>"


def _open_svg(width: int, height: int, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">\n'
        f'<rect width="{width}" height="{height}" fill="#fff"/>\n'
        f'<text x="12" y="20" font-family="sans-serif" font-size="14" font-weight="bold">'
        f"{escape(title)}</text>"
    )
