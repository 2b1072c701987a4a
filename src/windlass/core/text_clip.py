"""Text of a model, a tool or a person, made fit for one line.

The law: it cannot steer a terminal, look like a second line, or fill a screen.
"""

LINE_CHARS_MAX = 300


def printable_line(text: str, chars_max: int = LINE_CHARS_MAX) -> str:
    """The beginning of a text as one line, with `?` for each character that is not printable."""
    return printable_chars(clip_line(text, chars_max))


def reveal_line(text: str, keep: str = "") -> str:
    """The whole text as one line, with an escape for each character that is not printable.

    For questions to a person: words of others can then neither add a line of their own, nor hide.
    Characters in `keep` stay as they are.
    """
    return "".join(
        char if char.isprintable() or char in keep else _escape_char(char) for char in text
    )


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
