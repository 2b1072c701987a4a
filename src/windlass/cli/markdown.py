"""Markdown as it streams: each word is styled when it arrives, and nothing is ever redrawn.

What cannot be styled before the rest is known, such as a table, stays as the model wrote it.
"""

import re

from windlass.cli.screen import Screen

HEADING = "bold cyan"
STRONG = "bold"
QUOTE = "italic"
CODE = "cyan"
FAINT = "dim"
FENCES = ("```", "~~~")
FENCE_INDENT = "  "

_MARK = re.compile(r"( *)(#{1,6} +|[-*+] +|\d{1,3}[.)] +|> ?|```|~~~|\|)?")
_MARK_BEGUN = re.compile(r" *(?:#{1,6} *|[-*+] *|\d{1,3}[.)]? *|>|`{1,2}|~{1,2})?")
"""The beginning of a line that could still become a mark."""
_FENCE_BEGUN = re.compile(r" *(?:`{0,3}|~{0,3})")
_SIGN = re.compile(r"(\*\*|`)")


class MarkdownStream:
    """Streams one reply after the other onto a page."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._pending = ""
        """Text that cannot be shown yet: the beginning of a line, or half of `**`."""
        self._fenced = False
        """The lines are code, between two fences."""
        self._start_line()

    def _start_line(self) -> None:
        self._line_open = False
        self._is_fence = False
        """The line is a fence itself, which is not shown."""
        self._block_style = ""
        self._inline_style = ""
        self._last_char = ""
        """The last character of the line that was shown."""

    def feed(self, text: str) -> None:
        """Show the next piece of the reply."""
        *whole_lines, last = (self._pending + text).split("\n")
        self._pending = ""
        for line in whole_lines:
            self._write_part(line, whole=True)
            self._end_line()
        self._write_part(last, whole=False)

    def end_reply(self) -> None:
        """Show what was held back: the reply is complete."""
        pending = self._pending
        self._pending = ""
        self._write_part(pending, whole=True)
        self._screen.end_line()
        self._fenced = False
        self._start_line()

    def _end_line(self) -> None:
        if not self._is_fence:
            self._screen.start_new_line()
        self._start_line()

    def _write_part(self, text: str, *, whole: bool) -> None:
        """Show a part of a line; the rest of it, if `whole`."""
        if not self._line_open:
            begun = _FENCE_BEGUN if self._fenced else _MARK_BEGUN
            if not whole and begun.fullmatch(text):
                self._pending = text
                return
            text = self._open_code_line(text) if self._fenced else self._open_line(text)
        if self._is_fence:
            return
        if self._fenced:
            self._screen.write_verbatim(text, CODE)
            return
        if not whole and text.endswith("*"):
            # Whether stars are a mark depends on what follows them.
            stars = len(text) - len(text.rstrip("*"))
            self._pending = text[-stars:]
            text = text[:-stars]
        parts: list[str] = _SIGN.split(text)
        for part, following in zip(parts, [*parts[1:], ""], strict=True):
            self._write_words(part, following)

    def _open_code_line(self, text: str) -> str:
        """Begin a line between two fences, or end the code; returns what is to be shown."""
        self._line_open = True
        if text.strip() in FENCES:
            self._fenced = False
            self._is_fence = True
            return ""
        return f"{FENCE_INDENT}{text}" if text else text

    def _open_line(self, text: str) -> str:
        """Begin a line, show its mark, and return what stands behind the mark."""
        self._line_open = True
        found = _MARK.match(text)
        mark = (found[2] or "").strip() if found else ""
        # A table cannot be laid out before all of it is known.
        if not found or not mark or mark == "|":
            return text
        if mark in FENCES:
            self._fenced = True
            self._is_fence = True
            return ""
        if mark[0] == "#":
            self._block_style = HEADING
        else:
            if mark == ">":
                self._block_style = QUOTE
            shown = self._screen.glyphs.bullet if mark in ("-", "*", "+") else mark
            self._screen.hang_mark(found[1], f"{shown} ", FAINT)
        return text[found.end() :]

    def _write_words(self, part: str, following: str) -> None:
        """Show words, or switch the style at a mark; `following` is the next part."""
        if part == "`":
            self._toggle_style(CODE)
        elif part == "**" and self._inline_style != CODE and self._is_bold_marker(following):
            self._toggle_style(STRONG)
        elif part:
            self._screen.stream_text(part, self._inline_style or self._block_style)
        self._last_char = part[-1:] or self._last_char

    def _toggle_style(self, style: str) -> None:
        self._inline_style = "" if self._inline_style == style else style

    def _is_bold_marker(self, following: str) -> bool:
        """Whether two stars begin or end bold text. In `2 ** 3` they do not."""
        if self._inline_style == STRONG:
            return not self._last_char.isspace()
        return not self._last_char.isalnum() and bool(following) and not following[0].isspace()
