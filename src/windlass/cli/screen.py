"""The page that a command writes on: lines wrap at words, behind a gutter, in colour or without.

The words are the same everywhere. A pipe, `NO_COLOR` or a dumb terminal gets no escape codes, and
an encoding without our symbols gets ASCII. Nothing that was written is ever moved or rewritten,
except the footer: one line below the page that is removed before anything is written.
"""

import re
import sys
from dataclasses import dataclass
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console

from windlass.core.text_clip import strip_escapes, strip_unseen

WIDTH_MAX = 96
"""Longer lines are hard to read."""
WIDTH_MIN = 20

TEXT_STYLE = ""
THINKING_STYLE = "dim italic"
CALL_STYLE = "cyan"
PERSON = "bold"
QUIET = "dim"
GOOD = "green"
BAD = "red"
TROUBLE = "yellow"


@dataclass(frozen=True, slots=True, kw_only=True)
class GlyphSet:
    """The symbols of a page."""

    bar: str
    first: str
    last: str
    person: str
    call: str
    result: str
    denied: str
    trouble: str
    progress: str
    yes: str
    no: str
    cut: str
    bullet: str
    dot: str
    spinner: str


UNICODE_GLYPHS = GlyphSet(
    bar="│",
    first="┌",
    last="└",
    person="›",  # noqa: RUF001 - a prompt, not an angle bracket
    call="→",
    result="←",
    denied="✗",
    trouble="!",
    progress="·",
    yes="✓",
    no="✗",
    cut="…",
    bullet="•",
    dot="·",
    spinner="⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏",
)
ASCII_GLYPHS = GlyphSet(
    bar="|",
    first="+",
    last="+",
    person=">",
    call="->",
    result="<-",
    denied="x",
    trouble="!",
    progress=".",
    yes="ok",
    no="x",
    cut="...",
    bullet="-",
    dot="-",
    spinner="|/-\\",
)

CLEAR_BELOW = "\x1b[J"
"""Erases from the cursor to the end of the screen."""

_PARTS = re.compile(r"\n|[^\S\n]+|\S+")
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that could control a terminal, or reverse the direction of its text."""


class Screen:
    """A page that grows downwards."""

    def __init__(
        self, file: TextIO | None = None, *, width: int | None = None, has_footer: bool = True
    ) -> None:
        self._file = file or sys.stdout
        self._may_show_footer = has_footer
        self._encoding = getattr(self._file, "encoding", None) or "utf-8"
        # Rich knows what the terminal can do, and reads its variables.
        self._console = Console(file=self._file, highlight=False)
        self.styled = (
            self._console.is_terminal
            and not self._console.no_color
            and self._console.color_system is not None
        )
        self._given_width = width
        self.width = 0
        self.update_width()
        self.glyphs = UNICODE_GLYPHS if self._can_encode(UNICODE_GLYPHS) else ASCII_GLYPHS
        self.gutter = ""
        """Written at the left of each line that begins from now on."""
        # Cells of the open line that are written. 0 means that no line is open.
        self._column = 0
        self._indent = 0
        # The end of what was streamed: a word is written only when it is known where it fits.
        self._space = ""
        self._word = ""
        self._style = ""
        self._has_footer = False

    def update_width(self) -> None:
        """Measure the width again: the window may have changed."""
        self.width = max(WIDTH_MIN, min(self._given_width or self._console.width, WIDTH_MAX))

    @property
    def is_terminal(self) -> bool:
        return self._console.is_terminal

    def show_footer(self, text: str = "") -> None:
        """Show a line below the page, which is removed before the next write.

        Does nothing where the line could not be removed.
        """
        columns = self._console.width
        if not (self.styled and self._may_show_footer) or (self._column and self._word_ends_row):
            return
        if not text:
            self.clear_footer()
            return
        # Some terminals wrap as soon as the last column is filled, and a wrapped line could not be
        # removed.
        line = replace_control_chars(text).replace("\n", " ")
        shown = _truncate(line, max(1, columns - 1), self.glyphs.cut)
        with self._console.capture() as styled:
            self._console.out(shown, style="dim", highlight=False, end="")
        # In one write, so that nothing flickers. An open line gets its cursor back.
        if self._column:
            back = f"\x1b[A\r\x1b[{self._column % columns}C"
            self._file.write(f"{CLEAR_BELOW}\n{styled.get()}{back}")
        else:
            self._file.write(f"\r{styled.get()}{CLEAR_BELOW}")
        self._file.flush()
        self._has_footer = True

    @property
    def _word_ends_row(self) -> bool:
        """Whether the cursor is after the last column, where terminals differ."""
        return self._column % self._console.width == 0

    def clear_footer(self) -> None:
        """Remove the footer."""
        if self._has_footer:
            self._has_footer = False
            self._file.write(CLEAR_BELOW if self._column else f"\r{CLEAR_BELOW}")
            self._file.flush()

    def write_line(
        self,
        text: str = "",
        style: str = "",
        *,
        mark: str = "",
        mark_style: str = "",
        indent: int = 0,
    ) -> None:
        """Write a paragraph behind a mark, which may have its own style; or a blank line."""
        if not text:
            self.end_line()
            self._write(self.gutter.rstrip(), "dim")
            self._write("\n")
            self._column = 0
            return
        self.begin_line(mark, mark_style or style, indent)
        self.stream_text(text, style)
        self.end_line()

    def begin_line(self, mark: str = "", style: str = "", indent: int = 0) -> None:
        """Begin a line that will be streamed."""
        self.end_line()
        self._write_gutter()
        self._write(" " * indent)
        self._indent = indent
        if mark:
            self._write(mark + " ", style)
            self._indent += cell_len(mark) + 1

    def stream_text(self, text: str, style: str = "") -> None:
        """Continue the line, or begin one. A word appears once it is complete."""
        if style != self._style:
            self._flush_word()
            self._style = style
        for part in _PARTS.findall(replace_control_chars(text)):
            if part == "\n":
                self._flush_word()
                self._wrap_line()
            elif part.isspace():
                self._flush_word()
                self._space += part
            else:
                self._word += part

    def start_new_line(self) -> None:
        """Continue at the very left of the next line."""
        self._flush_word()
        self._write("\n")
        self._column = 0
        self._indent = 0
        self._space = ""

    def hang_mark(self, space: str, mark: str, style: str = "") -> None:
        """Write a mark before the words that follow; wrapped lines are indented behind it."""
        self._flush_word()
        if not self._column:
            self._write_gutter()
        self._write(space + mark, style)
        self._indent = cell_len(space + mark)

    def write_verbatim(self, text: str, style: str = "") -> None:
        """Write text exactly as it is, without wrapping."""
        self._flush_word()
        if text and not self._column:
            self._write_gutter()
        self._write(replace_control_chars(text), style)

    def forget_line(self) -> None:
        """A person typed a line and Enter, which has ended our line too."""
        self._column = 0
        self._indent = 0

    def end_line(self) -> None:
        """End the line, if there is one."""
        self._flush_word()
        self._space = ""
        self._style = ""
        if self._column:
            self._write("\n")
        self._column = 0
        self._indent = 0

    def clip_to_line(self, text: str, cells_taken: int = 0) -> str:
        """As much of a text as fits in one line, after a mark and `cells_taken` more cells.

        Line breaks and runs of spaces become one space.
        """
        # The longest mark is two cells wide, and a space follows it.
        room = self.width - cell_len(self.gutter) - 3 - cells_taken
        text = " ".join(replace_control_chars(text).split())
        return _truncate(text, room, self.glyphs.cut)

    def trim_to_width(self, text: str, cells_taken: int = 0) -> str:
        """As much of a line as fits, with its spaces as they are."""
        return _truncate(
            replace_control_chars(text),
            self.width - cell_len(self.gutter) - cells_taken,
            self.glyphs.cut,
        )

    def _flush_word(self) -> None:
        """Write the pending word, on a new line if it does not fit on this one."""
        if not self._word:
            return
        if not self._column:
            self._write_gutter()
        size = cell_len(self._space + self._word)
        if self._column + size > self.width and self._column > self._text_start:
            self._wrap_line()
        # A word wider than the page is not broken, so that a path can be copied.
        self._write(self._space + self._word, self._style)
        self._space = ""
        self._word = ""

    @property
    def _text_start(self) -> int:
        """The column where the text of a line begins."""
        return cell_len(self.gutter) + self._indent

    def _wrap_line(self) -> None:
        self._write("\n")
        self._column = 0
        self._space = ""
        self._write_gutter()
        self._write(" " * self._indent)

    def _write_gutter(self) -> None:
        self._write(self.gutter, "dim")

    def _write(self, text: str, style: str = "") -> None:
        if not text:
            return
        self.clear_footer()
        self._column += cell_len(text)
        # A character that the encoding lacks must not raise in the middle of a run.
        text = text.encode(self._encoding, "replace").decode(self._encoding)
        if self.styled and style:
            self._console.out(text, style=style, highlight=False, end="")
        else:
            self._file.write(text)
        self._file.flush()

    def _can_encode(self, glyphs: GlyphSet) -> bool:
        symbols = "".join(getattr(glyphs, name) for name in glyphs.__slots__)
        try:
            symbols.encode(self._encoding)
        except UnicodeEncodeError:
            return False
        return not self._console.is_dumb_terminal


def _truncate(text: str, room: int, mark: str) -> str:
    if cell_len(text) <= room:
        return text
    while text and cell_len(text) > room - cell_len(mark):
        text = text[:-1]
    return text.rstrip() + mark


def replace_control_chars(text: str) -> str:
    """The text without escape codes, and with `?` for each other character that could control."""
    seen = strip_unseen(strip_escapes(text))
    return _UNSAFE.sub("?", seen.replace("\r\n", "\n").expandtabs(4))
