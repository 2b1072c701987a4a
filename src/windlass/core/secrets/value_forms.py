"""The ways in which a known secret value may be written.

Invariant: each form is found by a plain search, so only encodings that give one text for one value
are listed here. A value that was changed in another way, say reversed or in halves, is not found.
"""

import json
import re
from base64 import b32encode, b64encode
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

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
    """Yield the forms in a URL, also if the URL is part of another one."""
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
