"""Secrets as common programs write them: dumps in hexadecimal, pages, shells (G8)."""

import base64
import html
import json
import quopri
import shlex
import subprocess
import textwrap

import pytest

from windlass.core.secrets.mask import Mask
from windlass.core.secrets.mask_pieces import TextStreamMask, ValueHeads


def b64encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


VALUE = "kq7Zr+9/Lm\"Pz_vT2=xW4hJ8n&Y0c'Qd"
DATA = VALUE.encode()
FORMS = {
    "hex of a dump": DATA.hex(" "),
    "hex of a fingerprint": DATA.hex(":").upper(),
    "bytes of a program": "".join(f"\\x{byte:02x}" for byte in DATA),
    "page by a template": html.escape(VALUE).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
    "page with named quotes": html.escape(VALUE).replace("&#x27;", "&apos;"),
    "numbers of letters": "".join(f"&#{ord(letter)};" for letter in VALUE),
    "hex of letters": "".join(f"&#x{ord(letter):x};" for letter in VALUE),
    "word of a shell": shlex.quote(VALUE)[1:-1],
    "octal of a program": "".join(f"\\{byte:03o}" for byte in DATA),
    "octal of a dump": " ".join(f"{byte:03o}" for byte in DATA),
    "numbers of a list": ", ".join(map(str, DATA)),
    "mail": quopri.encodestring(DATA).decode(),
    "header of a mail": "".join(
        chr(byte) if chr(byte).isalnum() else f"={byte:02X}" for byte in DATA
    ),
    "UTF-16 taken for something else": VALUE.encode("utf-16-le")[:-1].decode("latin-1"),
    "UTF-16 in hex": VALUE.encode("utf-16-le").hex(),
}
AROUND = b"0123456789" * 6
BROKEN = {
    "Base64 of a mail": base64.encodebytes(AROUND + DATA + AROUND).decode(),
    "Base64 of a certificate": "\n".join(textwrap.wrap(b64encode(AROUND + DATA), 64)),
    "indented": "\n    ".join(textwrap.wrap(b64encode(b"x" + AROUND + DATA), 76)),
    "with two letters for a break": base64.encodebytes(DATA + AROUND)
    .decode()
    .replace("\n", "\r\n"),
    "in JSON": json.dumps(base64.encodebytes(b"xy" + AROUND + DATA).decode()),
    "in short lines": "\n".join(textwrap.wrap(b64encode(DATA + AROUND), 20)),
    "UTF-16": "\n".join(textwrap.wrap(b64encode(VALUE.encode("utf-16-le")), 76)),
    "hex of a dump": "\n".join(textwrap.wrap((AROUND + DATA).hex(), 60)),
    "mail": quopri.encodestring(AROUND + DATA + AROUND).decode(),
    "continued in a shell": f"{VALUE[:11]}\\\n{VALUE[11:]}",
}


def feed(mask: Mask, text: str, size: int) -> str:
    stream = TextStreamMask(mask, ValueHeads(mask))
    pieces = (text[at : at + size] for at in range(0, len(text), size))
    return "".join(stream.feed(piece) for piece in pieces) + stream.end()


@pytest.mark.contract("G8")
@pytest.mark.parametrize("form", BROKEN.values(), ids=BROKEN)
def test_a_value_is_known_although_it_is_broken_into_lines(form: str) -> None:
    mask = Mask({"KEY": VALUE}, key_like=False)
    text = f"It says:\n{form}\nand more."
    masked = mask.mask_text(text)
    assert masked.count("[secret: KEY]") == 1
    assert masked.startswith("It says:\n")
    assert masked.endswith("\nand more.")
    # The same in a stream, however it is cut: at most the first letters are out before it is known.
    for size in (1, 3, 7, len(text)):
        shown = feed(mask, text, size)
        assert shown.endswith(masked.rpartition("[secret")[2])
        assert len(shown) <= len(masked) + 4


@pytest.mark.contract("G8")
def test_words_at_the_ends_of_lines_are_left_as_they_are() -> None:
    """A value of two words is not what two lines happen to begin and end with."""
    mask = Mask({"A": "password", "B": "correct-horse-battery"}, key_like=False)
    text = "the pass\nword, and a correct-\nhorse\n-battery of tests"
    assert mask.mask_text("the pass\nword") == "the pass\nword"
    assert mask.mask_text("a correct-horse battery\n") == "a correct-horse battery\n"
    assert mask.mask_text(text) == "the pass\nword, and a [secret: B] of tests"
    assert feed(mask, "the pass\nword\n", 1) == "the pass\nword\n"


@pytest.mark.contract("G8")
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_value_is_known_however_a_program_writes_it(form: str) -> None:
    mask = Mask({"KEY": VALUE}, key_like=False)
    assert mask.mask_text(f"a {form} b") == "a [secret: KEY] b"
    stream = TextStreamMask(mask, ValueHeads(mask))
    text = f"a {form} b"
    shown = "".join(stream.feed(text[at : at + 3]) for at in range(0, len(text), 3)) + stream.end()
    # A stream may have shown the first letter before it could know what it begins.
    assert shown.endswith("[secret: KEY] b")
    assert len(shown) <= len("a [secret: KEY] b") + 1


@pytest.mark.slow
@pytest.mark.contract("G8")
def test_a_value_is_known_as_bash_quotes_it() -> None:
    command = ["bash", "-c", 'printf %q "$1"', "x", VALUE]
    written = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert VALUE not in written
    assert Mask({"KEY": VALUE}, key_like=False).mask_text(written) == "[secret: KEY]"
