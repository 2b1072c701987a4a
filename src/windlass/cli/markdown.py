"""Markdown as it streams: each word is styled when it comes, and nothing is ever redrawn.

What cannot be styled without knowing the rest, such as a table, stays as the model wrote it.
"""

import re

from windlass.cli.screen import Screen

HEAD, STRONG, QUOTE, CODE, FAINT = "bold cyan", "bold", "italic", "cyan", "dim"
FENCES = ("```", "~~~")
FENCE_INDENT = "  "

_MARK = re.compile(r"( *)(#{1,6} +|[-*+] +|\d{1,3}[.)] +|> ?|```|~~~|\|)?")
_MARK_BEGUN = re.compile(r" *(?:#{1,6} *|[-*+] *|\d{1,3}[.)]? *|>|`{1,2}|~{1,2})?")
"""The beginning of a line that may still become a mark."""
_FENCE_BEGUN = re.compile(r" *(?:`{0,3}|~{0,3})")
_SIGN = re.compile(r"(\*\*|`)")


class Markdown:
    """Streams a reply onto a page."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._held = ""
        """What cannot be shown yet: the beginning of a line, or half a sign."""
        self._line_open = False
        self._fenced = False
        self._block = self._inline = ""
        self._before: str = ""
        """The last character that was shown of the line."""

    def feed(self, text: str) -> None:
        first, *others = (self._held + text).split("\n")
        self._held = ""
        self._part(first, whole=bool(others))
        for at, line in enumerate(others, 1):
            self._end_line()
            self._part(line, whole=at < len(others))

    def end(self) -> None:
        """Show what was held back. The reply is over."""
        held, self._held = self._held, ""
        self._part(held, whole=True)
        self._screen.end()
        self._line_open = self._fenced = False
        self._block = self._inline = self._before = ""

    def _end_line(self) -> None:
        fence_line = self._block in FENCES
        if not fence_line:
            self._screen.newline()
        self._line_open = False
        self._block = self._inline = self._before = ""

    def _part(self, text: str, *, whole: bool) -> None:
        """Some of a line; all that is left of it, if it is whole."""
        if not self._line_open:
            if not whole and (_MARK_BEGUN if not self._fenced else _FENCE_BEGUN).fullmatch(text):
                self._held = text
                return
            text = self._open(text)
        if self._block in FENCES:
            return
        if self._fenced:
            self._screen.verbatim(text, CODE)
            return
        if not whole and text.endswith("*"):
            # What a sign means depends on what follows it.
            text, self._held = text.rstrip("*"), text[len(text.rstrip("*")) :]
        parts: list[str] = _SIGN.split(text)
        for part, following in zip(parts, [*parts[1:], ""], strict=True):
            self._words(part, following)

    def _open(self, text: str) -> str:
        """Begin a line; what is left of it behind its mark."""
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
            self._block = HEAD
        else:
            self._block = QUOTE if mark == ">" else ""
            shown = self._screen.glyphs.bullet if mark in ("-", "*", "+") else mark
            self._screen.hang(found[1], f"{shown} ", FAINT)
        return text[found.end() :]

    def _words(self, part: str, following: str) -> None:
        code = self._inline == CODE
        if part == "`":
            self._inline = "" if code else CODE
        elif part == "**" and not code and self._turns(following):
            self._inline = "" if self._inline == STRONG else STRONG
        elif part:
            self._screen.stream(part, self._inline or self._block)
        self._before = part[-1:] or self._before

    def _turns(self, following: str) -> bool:
        """Whether two stars begin or end something, and are not two stars: `2 ** 3`."""
        if self._inline == STRONG:
            return not self._before.isspace()
        return not self._before.isalnum() and bool(following) and not following[0].isspace()
