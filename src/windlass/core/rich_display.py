"""How values show themselves in a notebook: as a card, in HTML and in Markdown.

Invariant: whatever a model, a tool or a person wrote is data. It is escaped or put in a block of
code, so that it can become neither a part of the page nor a picture that is fetched.
"""

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

Tone = Literal["plain", "good", "bad", "asking"]

BODY_CHARS_MAX = 4_000
"""More of a text than this is not shown; the value itself has all of it."""
_BORDERS: dict[Tone, str] = {
    "plain": "#8a94a6",
    "good": "#2e9d5b",
    "bad": "#d1495b",
    "asking": "#d99a1c",
}
_CARD_STYLE = "border-left:3px solid {border};padding:.2em .8em;margin:.3em 0"
_BODY_STYLE = "white-space:pre-wrap;margin:.25em 0;font-family:inherit;background:none"


class DisplayCard(msgspec.Struct, frozen=True):
    """What is shown of a value."""

    title: str
    note: str = ""
    """Beside the title, in small print."""
    body: str = ""
    rows: tuple[tuple[str, str], ...] = ()
    """Names and values, in a table."""
    tone: Tone = "plain"
    cards: tuple["DisplayCard", ...] = ()
    """Of the values in it."""


class RichDisplay:
    """Makes a value show itself in a notebook, by its card."""

    __slots__ = ()

    def display_card(self) -> DisplayCard:
        """Return what is shown of this value in a notebook."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return render_html(self.display_card())

    def _repr_markdown_(self) -> str:
        return "\n\n".join(render_markdown(self.display_card()))


def render_html(card: DisplayCard) -> str:
    """Return a card as HTML that needs no style sheet and reads on light and dark pages."""
    from html import escape  # noqa: PLC0415 - only notebooks need it

    border = _BORDERS[card.tone]
    note = f' <small style="opacity:.7">{escape(card.note)}</small>' if card.note else ""
    parts = [f"<div><b>{escape(card.title)}</b>{note}</div>"]
    if card.body:
        parts.append(f'<pre style="{_BODY_STYLE}">{escape(_clip(card.body))}</pre>')
    if card.rows:
        cells = "".join(
            f'<tr><td style="text-align:left;opacity:.7">{escape(name)}</td>'
            f'<td style="text-align:left">{escape(_clip(value))}</td></tr>'
            for name, value in card.rows
        )
        parts.append(f"<table>{cells}</table>")
    parts.extend(map(render_html, card.cards))
    return f'<div style="{_CARD_STYLE.format(border=border)}">{"".join(parts)}</div>'


def render_markdown(card: DisplayCard) -> Iterator[str]:
    """Yield the blocks of a card in Markdown. What others wrote is in blocks of code."""
    note = f" ({_in_code(card.note)})" if card.note else ""
    yield f"**{_in_code(card.title)}**{note}"
    if card.body:
        yield _fence(_clip(card.body))
    if card.rows:
        yield "\n".join(
            f"- {_in_code(name)}: {_in_code(_clip(value))}" for name, value in card.rows
        )
    for each in card.cards:
        yield from render_markdown(each)


def _clip(text: str) -> str:
    return text if len(text) <= BODY_CHARS_MAX else f"{text[:BODY_CHARS_MAX]}…"


def _in_code(text: str) -> str:
    """A text as one line of code; its own backticks would end it, so they are quotes."""
    return f"`{' '.join(text.split()).replace('`', chr(39))}`"


def _fence(text: str) -> str:
    """A text between fences that are longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
