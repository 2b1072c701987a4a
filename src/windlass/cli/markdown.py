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
        self._line_open = False
        self._fenced = False
        self._block = ""
        self._inline = ""
        self._last_char = ""
        """The last character of the line that was shown."""

    def feed(self, text: str) -> None:
        """Show the next piece of the reply."""
        first, *others = (self._pending + text).split("\n")
        self._pending = ""
        self._write_part(first, whole=bool(others))
        for at, line in enumerate(others, 1):
            self._end_line()
            self._write_part(line, whole=at < len(others))

    def end_reply(self) -> None:
        """Show what was held back: the reply is complete."""
        held, self._pending = self._pending, ""
        self._write_part(held, whole=True)
        self._screen.end_line()
        self._line_open = self._fenced = False
        self._block = self._inline = self._last_char = ""

    def _end_line(self) -> None:
        fence_line = self._block in FENCES
        if not fence_line:
            self._screen.start_new_line()
        self._line_open = False
        self._block = self._inline = self._last_char = ""

    def _write_part(self, text: str, *, whole: bool) -> None:
        """Show a part of a line; the rest of it, if `whole`."""
        if not self._line_open:
            if not whole and (_MARK_BEGUN if not self._fenced else _FENCE_BEGUN).fullmatch(text):
                self._pending = text
                return
            text = self._open_line(text)
        if self._block in FENCES:
            return
        if self._fenced:
            self._screen.write_verbatim(text, CODE)
            return
        if not whole and text.endswith("*"):
            # Whether stars are a mark depends on what follows them.
            text, self._pending = text.rstrip("*"), text[len(text.rstrip("*")) :]
        parts: list[str] = _SIGN.split(text)
        for part, following in zip(parts, [*parts[1:], ""], strict=True):
            self._write_words(part, following)

    def _open_line(self, text: str) -> str:
        """Begin a line, and return what stands behind its mark."""
        self._line_open = True
        if self._fenced:
            if text.strip() in FENCES:
                self._fenced, self._block = False, FENCES[0]
                return ""
            return f"{FENCE_INDENT}{text}" if text else text
        found = _MARK.match(text)
        mark = (found[2] or "").strip() if found else ""
        if not found or not mark:
            return text
        if mark in FENCES:
            self._fenced, self._block = True, FENCES[0]
            return ""
        if mark == "|":
            return text
        if mark[0] == "#":
            self._block = HEADING
        else:
            self._block = QUOTE if mark == ">" else ""
            shown = self._screen.glyphs.bullet if mark in ("-", "*", "+") else mark
            self._screen.hang_mark(found[1], f"{shown} ", FAINT)
        return text[found.end() :]

    def _write_words(self, part: str, following: str) -> None:
        code = self._inline == CODE
        if part == "`":
            self._inline = "" if code else CODE
        elif part == "**" and not code and self._is_bold_marker(following):
            self._inline = "" if self._inline == STRONG else STRONG
        elif part:
            self._screen.stream_text(part, self._inline or self._block)
        self._last_char = part[-1:] or self._last_char

    def _is_bold_marker(self, following: str) -> bool:
        """Whether two stars begin or end bold text. In `2 ** 3` they do not."""
        if self._inline == STRONG:
            return not self._last_char.isspace()
        return not self._last_char.isalnum() and bool(following) and not following[0].isspace()
