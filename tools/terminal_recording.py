"""Record a command in a pseudo-terminal as an animated SVG: `make recording`.

    python tools/terminal_recording.py docs/img/kill.svg windlass demo

The command really runs, and the picture shows what it printed, when it printed it; only pauses are
shortened. It covers output that is appended and coloured, as most commands write it. A command that
moves its cursor is refused, because its picture would be wrong.
"""

import codecs
import fcntl
import os
import pty
import re
import struct
import sys
import termios
import time
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

COLUMNS = 88
ROWS = 26
"""The lines that are visible at once."""
CELL = (8.4, 19)
"""Width and height of a character, in pixels."""
FONT_SIZE = 14
FONTS = '"JetBrains Mono", ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace'
MARGIN = 18
TITLE_BAR = 34
PAUSE_MAX_S = 1.1
END_S = 7.0
"""The last screen stays this long before it begins again."""

COLOURS = {
    "31": "#ff7b72",
    "32": "#7ee787",
    "33": "#e3b341",
    "34": "#79c0ff",
    "35": "#d2a8ff",
    "36": "#76e3ea",
}
_CONTROL = re.compile(
    r"\x1b\[(?P<style>[0-9;]*)m|\x1b\[(?P<other>[?0-9;]*[A-Za-z])|(?P<line>\r?\n)"
    r"|(?P<text>[^\x1b\r\n]+)|(?P<stray>.)",
    re.DOTALL,
)
_UNFINISHED = re.compile(r"(?:\x1b[^A-Za-z]*|\r)\Z")
_HARMLESS = {"?25l", "?25h", "?2004l", "?2004h"}
"""Showing and hiding the cursor, and bracketed paste."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one style that was printed at once."""

    at_s: float
    row: int
    column: int
    text: str
    style: tuple[str, ...]


@dataclass(slots=True)
class Recorder:
    """Turns output into pieces at their places."""

    pieces: list[Piece] = field(default_factory=list[Piece])
    row: int = 0
    column: int = 0
    style: tuple[str, ...] = ()

    def feed(self, at_s: float, text: str) -> None:
        """Take what was printed at a time. Raises ValueError if it moves the cursor."""
        for found in _CONTROL.finditer(text):
            match found.lastgroup:
                case "text":
                    self._print(at_s, found[0])
                case "line":
                    self.row += 1
                    self.column = 0
                case "style":
                    self._set_style(found["style"])
                case "other" if found["other"] in _HARMLESS:
                    pass
                case _:
                    raise ValueError(f"this output moves the cursor: {found[0]!r}")

    def _set_style(self, codes: str) -> None:
        for code in codes.split(";"):
            self.style = () if code in ("", "0") else (*self.style, code)

    def _print(self, at_s: float, words: str) -> None:
        while words:
            space = COLUMNS - self.column
            taken, words = words[:space], words[space:]
            if taken.strip():
                self.pieces.append(Piece(at_s, self.row, self.column, taken, self.style))
            self.column += sum(map(_cells_of, taken))
            if words:
                self.row += 1
                self.column = 0


def _cells_of(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def record(command: Sequence[str]) -> Recorder:
    """Run a command in a pseudo-terminal. Raises SystemExit if it fails."""
    child, terminal = pty.fork()
    if child == 0:
        size = {"COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
        os.environ.update(TERM="xterm-256color", **size)  # noqa: TID251 - of the command to come
        os.execvp(command[0], list(command))  # noqa: S606 - the caller's own command
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    recorder = Recorder()
    shown_s = 0.0
    before = time.monotonic()
    for text in _read_output(terminal):
        now = time.monotonic()
        shown_s += min(now - before, PAUSE_MAX_S)
        before = now
        recorder.feed(round(shown_s, 2), text)
    _, status = os.waitpid(child, 0)
    if code := os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{' '.join(command)} ended with {code}")
    return recorder


def _read_output(terminal: int) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    pending = ""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # Linux says so when the other side is closed.
            data = b""
        if not data:
            return
        text = pending + decoder.decode(data)
        # An escape sequence may be cut in two; the rest comes with the next read.
        whole = _UNFINISHED.sub("", text)
        pending = text[len(whole) :]
        yield whole


def draw(pieces: Sequence[Piece], title: str) -> str:
    """Return the animated picture."""
    width = round(COLUMNS * CELL[0] + 2 * MARGIN)
    height = TITLE_BAR + ROWS * CELL[1] + MARGIN
    lasts_s = round(max(piece.at_s for piece in pieces) + END_S, 2)
    groups: dict[float, list[Piece]] = {}
    for piece in join_pieces(pieces):
        groups.setdefault(piece.at_s, []).append(piece)
    body = "\n".join(_draw_group(at_s, group, lasts_s) for at_s, group in groups.items())
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"
 width="{width}" height="{height}" role="img" aria-label="{escape(title)}">
<style>
text {{ font: {FONT_SIZE}px {FONTS}; fill: #d6dee8; white-space: pre }}
.d {{ opacity: .62 }} .b {{ font-weight: 700 }}
{" ".join(f".c{code} {{ fill: {colour} }}" for code, colour in COLOURS.items())}
</style>
<rect width="{width}" height="{height}" rx="9" fill="#0f1722"/>
<g fill="#3a4658">{"".join(f'<circle cx="{x}" cy="17" r="5.5"/>' for x in (20, 38, 56))}</g>
<text x="{width / 2}" y="22" text-anchor="middle" class="d">{escape(title)}</text>
<clipPath id="v"><rect y="{TITLE_BAR}" width="{width}" height="{ROWS * CELL[1] + 6}"/></clipPath>
<g clip-path="url(#v)"><g>
{_draw_scrolling(pieces, lasts_s)}
{body}
</g></g>
</svg>
"""


def join_pieces(pieces: Sequence[Piece]) -> list[Piece]:
    """Join neighbours of one style that were printed within a tenth of a second."""
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if (
            last is not None
            and (last.row, last.style) == (piece.row, piece.style)
            and last.column + len(last.text) == piece.column
            and piece.at_s - last.at_s < 0.1  # noqa: PLR2004 - as the docstring says
        ):
            joined[-1] = Piece(last.at_s, last.row, last.column, last.text + piece.text, last.style)
        else:
            joined.append(piece)
    return joined


def _draw_scrolling(pieces: Sequence[Piece], lasts_s: float) -> str:
    """Move the lines up as new ones come. It is also the clock that everything else follows."""
    moments = {0.0: 0}
    scrolled = 0
    for piece in pieces:
        if piece.row + 1 - ROWS > scrolled:
            scrolled = piece.row + 1 - ROWS
            moments[piece.at_s] = scrolled
    times = ";".join(f"{at_s / lasts_s:.4f}" for at_s in moments)
    values = ";".join(f"0 {-scrolled * CELL[1]}" for scrolled in moments.values())
    return (
        f'<animateTransform id="r" attributeName="transform" type="translate" calcMode="discrete" '
        f'begin="0s;r.end" dur="{lasts_s}s" keyTimes="{times}" values="{values}"/>'
    )


def _draw_group(at_s: float, pieces: Sequence[Piece], lasts_s: float) -> str:
    until_s = round(lasts_s - at_s, 2)
    shown = (
        f'<set attributeName="visibility" to="visible" begin="r.begin+{at_s}s" dur="{until_s}s"/>'
    )
    return f'<g visibility="hidden">{shown}{"".join(map(_draw_piece, pieces))}</g>'


def _draw_piece(piece: Piece) -> str:
    text = piece.text.rstrip()
    indent = len(text) - len(text.lstrip())
    x = round(MARGIN + (piece.column + indent) * CELL[0], 1)
    y = TITLE_BAR + (piece.row + 1) * CELL[1] - 5
    text = text.lstrip()
    names = {"1": "b", "2": "d"}
    style = " ".join(names.get(code) or f"c{code}" for code in piece.style)
    kind = f' class="{style}"' if style else ""
    # The length keeps columns in line, whichever font the reader has.
    length = round(sum(map(_cells_of, text)) * CELL[0], 1)
    return f'<text x="{x}" y="{y}" textLength="{length}"{kind}>{escape(text)}</text>'


def main() -> None:
    target, *command = sys.argv[1:]
    recorder = record(command)
    title = " ".join(["$", Path(command[0]).name, *command[1:]])
    picture = draw(recorder.pieces, title)
    Path(target).write_text(picture, "utf-8")
    sys.stdout.write(f"{target}: {len(picture) // 1000} kB\n")


if __name__ == "__main__":
    main()
