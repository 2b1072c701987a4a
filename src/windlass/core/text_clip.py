"""Text of a model, a tool or a person, made fit for one line.

Invariant: it cannot steer a terminal, look like a second line, or fill a screen.
"""

import re

LINE_CHARS_MAX = 300

_UNSEEN_CHARS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0f"
    "\U00016fe4\U000e0100-\U000e01ef]"
)
"""Letters and marks that count as printable, and of which nothing is to be seen."""
_NO_WIDTH = re.compile("[\u00ad\u180e\u200b\u2060-\u2064\ufeff\U000e0000-\U000e007f]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_LINE_END = re.compile(r"\r?\n")
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # Colours and cursor moves.
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\Z)"  # Titles, links and other strings.
    r"|\x1b[ -/]*[0-~]?"  # Everything else that begins with an escape.
    r"|\x9b[0-?]*[ -/]*[@-~]",
    re.DOTALL,
)


def printable_line(text: str, chars_max: int = LINE_CHARS_MAX) -> str:
    """The beginning of a text as one line, with `?` for each character that is not printable."""
    return printable_chars(clip_line(text, chars_max))


def reveal_line(text: str, keep: str = "") -> str:
    """The whole text as one line, with an escape for each character that is not printable.

    For questions to a person: words of others can then neither add their own line, nor hide.
    Characters in `keep` stay as they are.
    """
    seen = "".join(
        char if char.isprintable() or char in keep else _escape_char(char) for char in text
    )
    if seen.isascii():
        return seen
    return _UNSEEN_CHARS.sub(lambda found: _escape_char(found[0]), seen)


def reveal_lines(text: str) -> list[str]:
    """The lines of a text that a person is asked about, each as `reveal_line` shows it.

    Only a line feed ends a line: other characters that some programs take for that are shown.
    """
    lines = _LINE_END.split(text)
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    return [reveal_line(line, keep="\t") for line in lines]


def strip_escapes(text: str) -> str:
    """The text without the codes by which a program colours its output or steers a terminal."""
    if "\x1b" not in text and "\x9b" not in text:
        return text
    return _ESCAPES.sub("", text)


def strip_controls(text: str) -> str:
    """The text without escape codes, and without other characters that steer a terminal.

    Tabs and the ends of lines stay.
    """
    return _CONTROLS.sub("", strip_escapes(text))


def strip_unseen(text: str) -> str:
    """The text without characters that take no room, by which words can be hidden in it.

    Those that join letters and pictures stay.
    """
    return text if text.isascii() else _NO_WIDTH.sub("", text)


def _escape_char(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def clip_line(text: str, chars_max: int) -> str:
    """The beginning of a text as one line of at most `chars_max`; `…` shows that it was cut."""
    # The text may be megabytes long, so only its beginning is split into words.
    line = " ".join(text[: 10 * chars_max].split())
    if len(line) <= chars_max:
        return line
    return line[: chars_max - 1] + "…"


def printable_chars(text: str, keep: str = "") -> str:
    """The text with `?` for each character that is neither printable nor in `keep`."""
    return "".join(char if char.isprintable() or char in keep else "?" for char in text)
