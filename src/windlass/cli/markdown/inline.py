"""The marks within a line of Markdown: emphasis, code, links and images, as far as they are known.

Invariant: nothing that was shown is taken back. Text that may still become a mark is held until the
next piece of the text decides it, or until the line ends.
"""

import re
from dataclasses import dataclass

STRONG = "bold"
EMPHASIS = "italic"
STRIKE = "strike"
CODE = "cyan"
LINK = "underline"
FAINT = "dim"
HALVES = ("~", "!", "\\")
LINK_CHARS_MAX = 500
"""A link that is longer than this is shown as it was written."""

_SPECIAL = re.compile(r"`+|\*{1,3}|_{1,3}|~~|!?\[|\\.|[\\~!]\Z")
"""Marks, escaped characters, and at the end of a text the first half of either."""
_LINK_FORM = re.compile(
    r"(!?)\[([^\[\]\n]*)\]\(<?([^()<>\s]*(?:\([^()\s]*\)[^()<>\s]*)?)>?(?:\s+\"[^\"]*\")?\)"
)
_LINK_BEGUN = re.compile(r"!?\[[^\[\]\n]*(?:\](?:\([^\n]*)?)?")
_ESCAPABLE = re.compile(r"[!-/:-@\[-`{-~]")

StyledText = tuple[str, str]
"""A style and a text."""


@dataclass(slots=True)
class InlineState:
    """Which marks are open in the line."""

    code: str = ""
    """The backticks that began the code; empty outside of code."""
    strong: bool = False
    emphasis: bool = False
    strike: bool = False
    last_char: str = ""

    @property
    def style(self) -> str:
        if self.code:
            return CODE
        named = ((self.strong, STRONG), (self.emphasis, EMPHASIS), (self.strike, STRIKE))
        return " ".join(style for is_open, style in named if is_open)

    def read(self, text: str, *, whole: bool) -> tuple[list[StyledText], str]:
        """The styled pieces of a text, and the end of it that has to wait for more.

        `whole`: no more of the line will come, so nothing waits.
        """
        pieces: list[StyledText] = []
        at = 0
        while at < len(text):
            found = _SPECIAL.search(text, at)
            if found is None:
                self._add(pieces, text[at:])
                break
            self._add(pieces, text[at : found.start()])
            if not whole and self._is_open_ended(text, found):
                return pieces, text[found.start() :]
            at = self._take_mark(pieces, text, found)
        return pieces, ""

    def _is_open_ended(self, text: str, found: re.Match[str]) -> bool:
        """Whether what follows can change the meaning of a mark."""
        if found.end() == len(text):
            return True
        if self.code or not found[0].endswith("["):
            return False
        begun = _LINK_BEGUN.match(text, found.start())
        is_short = len(text) - found.start() < LINK_CHARS_MAX
        is_complete = _LINK_FORM.match(text, found.start()) is not None
        return begun is not None and begun.end() == len(text) and is_short and not is_complete

    def _take_mark(self, pieces: list[StyledText], text: str, found: re.Match[str]) -> int:
        """Read one mark. Returns where the text continues after it."""
        mark = found[0]
        if self.code:
            if mark == self.code:
                self.code = ""
            else:
                self._add(pieces, mark)
        elif mark in HALVES:
            self._add(pieces, mark)
        elif mark[0] == "`":
            self.code = mark
        elif mark[0] == "\\":
            escaped = mark[1:]
            self._add(pieces, escaped if _ESCAPABLE.fullmatch(escaped) else mark)
        elif mark.endswith("["):
            return self._take_link(pieces, text, found)
        elif not self._toggle(mark, text[found.end() : found.end() + 1]):
            self._add(pieces, mark)
        return found.end()

    def _take_link(self, pieces: list[StyledText], text: str, found: re.Match[str]) -> int:
        link = _LINK_FORM.match(text, found.start())
        if link is None:
            self._add(pieces, found[0])
            return found.end()
        is_image, words, url = bool(link[1]), link[2], link[3]
        style = f"{self.style} {LINK}".strip()
        if is_image:
            pieces.append((FAINT, f"[image: {words or url}]"))
        elif words in (url, ""):
            pieces.append((style, url))
        else:
            pieces += [(style, words), (FAINT, f" ({url})")]
        self.last_char = ")"
        return link.end()

    def _toggle(self, mark: str, following: str) -> bool:
        """Open or close the style of a mark. Returns whether it was a mark at all."""
        names = {"~~": ("strike",), "3": ("strong", "emphasis"), "2": ("strong",)}
        wanted = names.get(mark) or names.get(str(len(mark)), ("emphasis",))
        is_open = all(getattr(self, name) for name in wanted)
        if is_open:
            may = bool(self.last_char) and not self.last_char.isspace()
            may = may and (mark[0] != "_" or not following.isalnum())
        else:
            may = bool(following) and not following.isspace() and not self.last_char.isalnum()
            may = may or (mark[0] == "*" and len(mark) > 1 and self._joins_words(following))
        if may:
            for name in wanted:
                setattr(self, name, not is_open)
        return may

    def _joins_words(self, following: str) -> bool:
        # `2**3` is a power, and a word in the middle of which bold begins is rare.
        return following.isalpha() and self.last_char.isalpha()

    def _add(self, pieces: list[StyledText], text: str) -> None:
        if text:
            pieces.append((self.style, text))
            self.last_char = text[-1]


def strip_marks(text: str) -> str:
    """The text of a line as it is shown, without its marks."""
    pieces, _ = InlineState().read(text, whole=True)
    return "".join(piece for _, piece in pieces)
