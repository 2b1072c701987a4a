"""The ways in which a known secret value may be written.

Invariant: each form is found by a plain search, so only encodings that give one text for one value
are listed here. A value that was changed in another way, say reversed or in halves, is not found.

A known value may also be broken into lines: by `base64`, in a mail, by a shell. Invariant: the cost
grows with the length of a text and not faster. A quick look at all lines joined shows whether a
closer one is due, which joins only words at the ends of lines.
"""

import json
import re
from base64 import b32encode, b64encode
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote, quote_plus

JOINED_CHARS_MIN = 16
"""A shorter value could be two words, one at the end of a line and one at the start of the next."""
_BREAK = re.compile(r"\n[ \t]*")
_WRITTEN_BREAK = re.compile(r"(?:\\r)?\\n[ \t]*")
"""A break as it is written in JSON."""
_LINE_END = re.compile(r"[=\\]?\r?\Z")
"""What may come before a break: `=` in a mail, a backslash in a shell, `\\r` in some files."""
_ANY_BREAK = re.compile(r"[\n\r=\\]")
_GAP = re.compile(r"\s")
"""Only words are joined, so a form with a gap in it is not found."""
_GAP_BYTES = b" \t\r\n"
"""What may come between two words that are joined."""
_OPEN_END = re.compile(r"[=\\]?\r?\n[ \t]*|(?:\\r)?\\n[ \t]*|(?:\\r|[=\\]?\r?)\Z")
"""A break of either kind, or what may become one."""


class JoinedLines(NamedTuple):
    """The words at the ends of lines, without the breaks between them."""

    text: str
    places: list[tuple[int, int]]
    """Where each part begins in `text`, and where in the text that it was taken from."""

    def original_place(self, place: int) -> int:
        """Return where in the original text a character is."""
        at = bisect_right(self.places, (place, 1 << 60)) - 1
        start, original = self.places[at]
        return original + place - start


def join_lines(text: str) -> Iterator[JoinedLines]:
    """Yield the words that are broken into lines, joined; nothing for a text of one line."""
    if "\n" in text:
        yield _join_at(text, _BREAK)
    if "\\n" in text:
        yield _join_at(text, _WRITTEN_BREAK)


def may_be_broken(form: str) -> bool:
    """Whether a form can be distinguished from words at the ends of lines."""
    return len(form) >= JOINED_CHARS_MIN and not _GAP.search(form)


def squeeze_lines(text: str) -> Iterator[bytes]:
    """Yield the text in UTF-8 without its gaps: quickly, to see if a closer look is due."""
    has_backslash = "\\" in text
    data = text.encode("utf-8", "surrogatepass")
    if b"\n" in data:
        ends = data.replace(b"\r\n", b"\n") if b"\r" in data else data
        ends = ends.replace(b"=\n", b"\n") if b"=" in ends else ends
        ends = ends.replace(b"\\\n", b"\n") if has_backslash else ends
        yield ends.translate(None, _GAP_BYTES)
    if has_backslash and b"\\n" in data:
        ends = data.replace(b"\\r\\n", b"\\n").replace(b"=\\n", b"\\n")
        yield ends.replace(b"\\n", b"").translate(None, _GAP_BYTES)


def squeeze_tail(text: str) -> str:
    """Return the end of an unfinished text, without breaks and without what may begin one.

    It is the same object if there is nothing of that kind.
    """
    if _ANY_BREAK.search(text) is None:
        return text
    return _OPEN_END.sub("", text)


def _join_at(text: str, breaks: re.Pattern[str]) -> JoinedLines:
    parts: list[str] = []
    places: list[tuple[int, int]] = []
    size = 0
    start = 0
    for found in (*breaks.finditer(text), None):
        stop = len(text) if found is None else found.start()
        line = _LINE_END.sub("", text[start:stop])
        for word, at in _outer_words(line):
            parts.append(word)
            places.append((size, start + at))
            size += len(word)
        start = len(text) if found is None else found.end()
    return JoinedLines("".join(parts), places)


def _outer_words(line: str) -> Iterator[tuple[str, int]]:
    """Yield the first and the last word of a line with their places, and a gap between them.

    A line of one word is joined to the lines on both sides.
    """
    words = line.split(None, 1)
    if not words or words[0] == line:
        yield line, 0
        return
    yield f"{words[0]} " if line.startswith(words[0]) else " ", 0
    last = line.rsplit(None, 1)[-1]
    if line.endswith(last):
        yield last, len(line) - len(last)
    else:
        yield " ", len(line) - 1


_ENCODED_CHARS_MIN = 8
_HTML_TEXT = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_PRINTABLE = frozenset(range(0x20, 0x7F))
_ALPHANUMERIC = frozenset(byte for byte in _PRINTABLE if chr(byte).isalnum())
_EQUALS = ord("=")
_SPACE = ord(" ")
_PERCENT = re.compile(r"%[0-9A-F]{2}")
_HTML_SAFE_JSON = "<>&'\u2028\u2029"
"""What some encoders of JSON escape to make it safe in a page."""


def broken_forms(value: str) -> Iterator[str]:
    """Yield the forms that programs break into lines: Base64, hexadecimal, and those of mails."""
    data = value.encode("utf-8", "surrogatepass")
    yield value
    yield data.hex()
    yield from _base64_forms(data)
    yield from _base64_forms(value.encode("utf-16-le", "surrogatepass"))
    yield from _mail_forms(data)


def encoded_forms(value: str) -> Iterator[str]:
    """Yield the value in each way in which it may be written."""
    data = value.encode("utf-8", "surrogatepass")
    yield value
    yield from _json_forms(value)
    yield from _url_forms(value)
    yield from _html_forms(value)
    yield from _hex_forms(data)
    yield from _shell_forms(value)
    yield from _base64_forms(data)
    yield from _base32_forms(data)
    yield from _octal_forms(data)
    yield from (separator.join(map(str, data)) for separator in (", ", ","))
    yield from _mail_forms(data)
    yield from _wide_forms(value)
    if len(value) >= _ENCODED_CHARS_MIN:
        # Names of hosts, headers and keys are often written in one case.
        yield from (value.lower(), value.upper())


def _octal_forms(data: bytes) -> Iterator[str]:
    """Yield the bytes in octal, as shells and C write all or the unusual ones, or as numbers."""
    yield "".join(f"\\{byte:03o}" for byte in data)
    yield "".join(chr(byte) if byte in _PRINTABLE else f"\\{byte:03o}" for byte in data)
    yield " ".join(f"{byte:03o}" for byte in data)


def _mail_forms(data: bytes) -> Iterator[str]:
    """Yield the quoted-printable forms of mails: what must be written as a number is, or more."""
    for plain in (_PRINTABLE - {_EQUALS}, _PRINTABLE - {_EQUALS, _SPACE}, _ALPHANUMERIC):
        yield "".join(chr(byte) if byte in plain else f"={byte:02X}" for byte in data)


def _wide_forms(value: str) -> Iterator[str]:
    """Yield the forms in UTF-16, of which each second byte is zero for most letters.

    Encoded further in the order of bytes that Windows has.
    """
    if value.isascii():
        yield from (zero.join(value) for zero in ("\0", "\\u0000", "\\x00"))
    data = value.encode("utf-16-le", "surrogatepass")
    yield data.hex()
    yield from _base64_forms(data)


def _html_forms(value: str) -> Iterator[str]:
    """Yield the forms in a page. Quotes have several names, and any letter has a number."""
    yield value.translate(_HTML_TEXT)
    for double, single in (("&quot;", "&#x27;"), ("&quot;", "&#39;"), ("&#34;", "&#39;")):
        yield value.translate(_HTML_TEXT | str.maketrans({'"': double, "'": single}))
    yield value.translate(_HTML_TEXT | str.maketrans({'"': "&quot;", "'": "&apos;"}))
    # Some encoders replace a slash as well, or all that is neither a letter nor a digit.
    for slash in ("&#47;", "&#x2F;", "&#x2f;"):
        html = str.maketrans({"/": slash, '"': "&quot;", "'": "&#39;"})
        yield value.replace("/", slash)
        yield value.translate(_HTML_TEXT | html)
    others = _not_alphanumeric(value)
    for number in ("&#{};", "&#x{:x};", "&#x{:X};"):
        yield "".join(
            number.format(ord(letter)) if letter in others else letter for letter in value
        )
    yield "".join(f"&#{ord(letter)};" for letter in value)
    yield "".join(f"&#x{ord(letter):x};" for letter in value)
    yield "".join(f"&#x{ord(letter):X};" for letter in value)


def _hex_forms(data: bytes) -> Iterator[str]:
    r"""Yield the bytes in hexadecimal, as dumps write them: joined, apart, or as `\x` escapes."""
    for separator in ("", " ", ":"):
        digits = data.hex(separator) if separator else data.hex()
        yield from (digits, digits.upper())
    pairs = data.hex(" ").split(" ")
    yield "".join(f"\\x{pair}" for pair in pairs)
    yield "".join(f"\\x{pair.upper()}" for pair in pairs)


def _shell_forms(value: str) -> Iterator[str]:
    """Yield the value as shells quote it."""
    yield value.replace("'", "'\"'\"'")
    yield value.replace("'", r"'\''")
    yield re.sub(r"[^\w@%+=:,./-]", r"\\\g<0>", value, flags=re.ASCII)


def _json_forms(value: str) -> Iterator[str]:
    for escaped in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        yield escaped[1:-1]
        yield escaped[1:-1].replace("/", r"\/")
    # `\u0041` is the same letter as `A`. Encoders escape what is not safe for them, or everything.
    for unsafe in (value, _HTML_SAFE_JSON, _not_alphanumeric(value)):
        for digits in ("04x", "04X"):
            yield "".join(
                _escape(letter, digits) if letter in unsafe else letter for letter in value
            )


def _not_alphanumeric(value: str) -> str:
    return "".join(letter for letter in value if not (letter.isascii() and letter.isalnum()))


def _escape(letter: str, digits: str) -> str:
    """Return a letter as `u` with four digits behind a backslash (two for some letters)."""
    units = letter.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(f"\\u{code:{digits}}" for code in codes)


def _url_forms(value: str) -> Iterator[str]:
    """Yield the forms in a URL, even if the URL is part of another one."""
    every = "".join(f"%{byte:02X}" for byte in value.encode("utf-8", "surrogatepass"))
    data = value.encode("utf-8", "surrogatepass")
    for once in (quote(data, safe=""), quote(data), quote_plus(data), every):
        for escaped in (once, quote(once, safe=""), quote(once)):
            yield escaped
            yield _PERCENT.sub(lambda found: found[0].lower(), escaped)


def _base64_forms(data: bytes) -> Iterator[str]:
    for before in range(3):
        # In the middle of other data, only those characters are certain that encode nothing else.
        encoded = b64encode(b"\0" * before + data).decode()
        rest = (before + len(data)) % 3
        core = encoded[(0, 2, 3)[before] : len(encoded) - (0, 3, 2)[rest]]
        if len(core) >= _ENCODED_CHARS_MIN:
            yield core
            yield core.replace("+", "-").replace("/", "_")
            yield quote(core, safe="")


def _base32_forms(data: bytes) -> Iterator[str]:
    for before in range(5):
        encoded = b32encode(b"\0" * before + data).decode()
        # A character holds five bits: those that hold bits of a neighbour are left out.
        first = -(-before * 8 // 5)
        last = (before + len(data)) * 8 // 5
        core = encoded[first:last]
        if len(core) >= _ENCODED_CHARS_MIN:
            yield from (core, core.lower())
