"""A reply in Markdown, shown while it streams.

Invariant: nothing that was shown is ever redrawn. A word appears when it is complete, a line of
code when it has ended, and a table when all of it is known.
"""

import re

from windlass.cli.markdown.blocks import EMPHASIS, FAINT, CodeBlock, InlineState, TableRows
from windlass.cli.screen import Screen

HEADING = "bold cyan"
FENCES = ("```", "~~~")
RULE_CELLS = 20

_MARK = re.compile(r"( *)(#{1,6} +|[-*+] +|\d{1,3}[.)] +|> ?|```|~~~|\|)?")
_MARK_BEGUN = re.compile(r" *(?:#{1,6} *|[-*+]{1,2} *|\d{1,3}[.)]? *|>|`{1,2}|~{1,2}|_{1,2})?")
"""The beginning of a line that could still become a mark."""
_RULE = re.compile(r" {0,3}(?:(?:- *){3,}|(?:\* *){3,}|(?:_ *){3,})")
_RULE_BEGUN = re.compile(r" {0,3}(?:[-*_] *){2,}")


class MarkdownStream:
    """Streams one reply after the other onto a page."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._pending = ""
        """Text that cannot be shown yet: the beginning of a line, or of a mark."""
        self._code: CodeBlock | None = None
        self._fence = ""
        """What ends the code: the fence that began it."""
        self._table = TableRows()
        self._start_line()

    def _start_line(self) -> None:
        self._line_open = False
        self._is_silent = False
        """The line is a fence or a rule, and nothing of it is shown."""
        self._block_style = ""
        self._inline = InlineState()

    def feed(self, text: str) -> None:
        """Show the next piece of the reply."""
        *whole_lines, last = (self._pending + text).split("\n")
        self._pending = ""
        for line in whole_lines:
            self._take_line(line)
        self._take_part(last)

    def end_reply(self) -> None:
        """Show what was held back: the reply is complete."""
        pending = self._pending
        self._pending = ""
        if pending and (self._is_held_whole or not self._line_open):
            self._take_line(pending)
        else:
            self._write_part(pending, whole=True)
        self._end_table()
        self._screen.end_line()
        self._code = None
        self._start_line()

    @property
    def _is_held_whole(self) -> bool:
        """Whether lines are shown only when they are complete."""
        return self._code is not None or bool(self._table.lines)

    def _take_line(self, line: str) -> None:
        """Show a line, or the rest of it, which is complete."""
        if not self._line_open:
            if self._code is not None:
                self._take_code_line(line)
                return
            if line.lstrip().startswith("|"):
                self._table.lines.append(line)
                return
            self._end_table()
            if _RULE.fullmatch(line):
                bar = "-" if self._screen.glyphs.bar == "|" else "─"
                self._screen.write_verbatim(bar * RULE_CELLS, FAINT)
                self._screen.start_new_line()
                return
        self._write_part(line, whole=True)
        if not self._is_silent:
            self._screen.start_new_line()
        self._start_line()

    def _take_part(self, text: str) -> None:
        """Show as much of an incomplete line as is known."""
        may_be_row = text.lstrip().startswith("|") or bool(self._table.lines)
        if not self._line_open and (self._code is not None or may_be_row):
            self._pending = text
            return
        self._write_part(text, whole=False)

    def _take_code_line(self, line: str) -> None:
        if self._code is None or line.strip() == self._fence:
            self._code = None
        else:
            self._code.show_line(self._screen, line)

    def _end_table(self) -> None:
        if self._table.lines:
            self._table.show(self._screen)

    def _write_part(self, text: str, *, whole: bool) -> None:
        """Show a part of a line; the rest of it, if `whole`."""
        if not self._line_open:
            may_be_mark = _MARK_BEGUN.fullmatch(text) or _RULE_BEGUN.fullmatch(text)
            if not whole and (may_be_mark or text.lstrip()[:3] in FENCES):
                self._pending = text
                return
            text = self._open_line(text)
        if self._is_silent:
            return
        pieces, self._pending = self._inline.read(text, whole=whole)
        for style, piece in pieces:
            self._screen.stream_text(piece, style or self._block_style)

    def _open_line(self, text: str) -> str:
        """Begin a line, show its mark, and return the text after the mark."""
        self._line_open = True
        found = _MARK.match(text)
        mark = (found[2] or "").strip() if found else ""
        if not found or not mark or mark == "|":
            return text
        if mark in FENCES:
            words = text[found.end() :].strip("`~ ").split()
            self._fence = text.strip()[: len(text.strip()) - len(text.strip().lstrip(mark[0]))]
            self._code = CodeBlock(words[0] if words else "")
            self._is_silent = True
            return ""
        if mark[0] == "#":
            self._block_style = HEADING
        else:
            if mark == ">":
                self._block_style = EMPHASIS
            shown = self._screen.glyphs.bullet if mark in ("-", "*", "+") else mark
            self._screen.hang_mark(found[1], f"{shown} ", FAINT)
        return text[found.end() :]
